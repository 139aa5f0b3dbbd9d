// Which dimensions of the inputs are as long as a step's samples, where those have several lengths.
//
//   lengths 128, 512:   ids [128] and [512] -> its first;   class [1] and [1] -> none;   mask [1,128,128] -> two
#pragma once
#include "runtime/train/data/dataset.h"

namespace cleave::runtime {

// The fields of the step of each length (sequence_lengths.h), marked as below.
Result<std::vector<std::vector<Field>>> fieldsOf(const plan::Plan &plan);

// Fills lengthDims of the fields of each length: the dimensions that differ between the shortest and the longest.
// Error: the lengths have different inputs.
Status markLengths(std::vector<std::vector<Field>> &fields);
// The same where all steps have one length: the dimensions of that size.
void markLength(std::vector<Field> &fields, int64_t length);

} // namespace cleave::runtime
