// Samples of several lengths: what follows a sample's end in its row is padding, or with `pack` the next samples.
//
//   lengths [4, 8], samples of 3, 2 and 6 positions                     rows as a step of the longest has them
//     padded   lengthOf 3, 2, 6                                         aaa.....  bb......  cccccc..
//     packed   lengthOf 5, 6: in their order, as long as they fit       aaabb...  cccccc..
//
// Fields that the data does not have are filled (sequence.h): which positions are tokens, where a sample's positions
// begin anew, which sample of the row each belongs to, and a mask of [positions, positions] in which those of one
// sample see each other. Padding sees itself, so that a softmax over its row is a number.
#pragma once
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/joined_array.h"
#include "runtime/train/data/settings.h"

namespace cleave::runtime {

// A sample, or a part of a long one: elements [begin, begin + count) along the first dimension of the arrays.
struct SamplePart {
  int64_t begin, count;
};

// Where a field's numbers come from.
struct RaggedSource {
  JoinedArray array = {}; // empty: they are filled
  int64_t shift = 0;      // labels of tokens: the element behind
  Content content = Content::Given;
};

// `sources`: one a field, whose lengthDims are filled. Fields without such a dimension take row i of their array for
// sample i. Errors: a sample that is longer than the longest length, labels without a number for padding, fields that
// cannot be cut into samples.
Result<DataSource> makeRagged(const DataSettings &settings, std::vector<Field> fields,
                              std::vector<RaggedSource> sources, std::vector<SamplePart> samples);

} // namespace cleave::runtime
