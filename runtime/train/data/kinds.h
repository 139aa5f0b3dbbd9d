// The data kinds, one function and file each. See openData for errors; `settings.paths` has one or more, for
// images and CIFAR-10 one.
#pragma once
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/settings.h"

namespace cleave::runtime {

// One array a field, the leading axis is the sample; an array with one axis more is taken as [steps, batch, ...].
// Several files stand one behind the other. `seed`: of what settings.augment changes about images of uint8.
Result<DataSource> openArrays(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);
// minGPT's CharDataset: the sorted set of the text's characters is the vocabulary; sample i is text[i, i + block), its
// labels the same shifted by one. Several files have one vocabulary, and no sample goes from one into the next.
Result<DataSource> openChars(const DataSettings &settings, const std::vector<Field> &fields);
// Files of token numbers (token_file.h): sample i is the i-th block, its labels shifted by one. No sample goes from one
// file into the next.
Result<DataSource> openTokens(const DataSettings &settings, const std::vector<Field> &fields);
// CIFAR-10's binary files: a folder with data_batch_*.bin (and test_batch.bin), or one .bin file. Pixels as [0, 1]
// floats (or raw uint8), labels as a number or, for a field [10] of floats, one-hot.
Result<DataSource> openCifar10(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);
// A folder as torchvision's ImageFolder has it: one for each class, in whose sorted order they are numbered, with PNG
// and JPEG files anywhere below. Resized so that the shorter side is `size` (0: so that the model's size is just
// covered), cropped in the middle; pixels as raw uint8, or as [0, 1] floats less `mean`, over `std`; [1, height, width]
// is grey. Labels as for CIFAR-10. The leading `train_split` of each class trains.
// `seed`: of what settings.augment changes.
Result<DataSource> openImages(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);
// Random numbers of the right shapes: floats uniform in [-1, 1), integers below the field's upper bound, float labels 0
// or 1.
Result<DataSource> openSynthetic(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);

// The samples of all sources, each opened by itself; the sampler draws from them by weight (blend.h). Errors: a source
// that fills another input than the others.
Result<DataSource> openMixture(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);
// Any of these, by `settings.kind`.
Result<DataSource> openKind(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed);

// Reads `samples` of another dataset: [begin, begin + count).
std::unique_ptr<Dataset> slice(std::shared_ptr<Dataset> whole, int64_t begin, int64_t count);
// The first part of the samples trains, at least one; the rest, if any, evaluates.
DataSource splitSamples(std::shared_ptr<Dataset> whole, double trainSplit);

} // namespace cleave::runtime
