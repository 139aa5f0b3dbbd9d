// Which dimensions of the inputs are as long as a step's samples, where those have several lengths; and samples that
// are cut, while a ramp lasts.
//
//   lengths 128, 512:   ids [128] and [512] -> its first;   class [1] and [1] -> none;   mask [1,128,128] -> two
#pragma once
#include "runtime/train/data/dataset.h"

namespace cleave::runtime {

// The fields of the step of each shape (step_shapes.h), of several lengths marked as below.
Result<std::vector<std::vector<Field>>> fieldsOf(const plan::Plan &plan);

// Fills lengthDims of the fields of each length: the dimensions that differ between the shortest and the longest.
// Error: the lengths have different inputs.
Status markLengths(std::vector<std::vector<Field>> &fields);
// The same where all steps have one length: the dimensions of that size.
void markLength(std::vector<Field> &fields, int64_t length);

// The same samples, each cut to the leading part that `fields` have room for: of tokens [512] the first 128. Null: all
// have room. It reads `whole`, which must outlive it. Error: other inputs, or larger ones.
Result<std::unique_ptr<Dataset>> leadingPart(const Dataset &whole, std::vector<Field> fields);

} // namespace cleave::runtime
