#include "runtime/train/data/lengths.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/sequence_lengths.h"
#include <fmt/format.h>

namespace cleave::runtime {

Result<std::vector<std::vector<Field>>> fieldsOf(const plan::Plan &plan) {
  std::vector<std::vector<Field>> fields;
  for (size_t length = 0; length < lengthsOf(plan); ++length) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<Field> found, dataFields(inputsOf(plan, routineOf(plan, "step", length))));
    fields.push_back(std::move(found));
  }
  CLEAVE_RETURN_IF_ERROR(markLengths(fields));
  return fields;
}

Status markLengths(std::vector<std::vector<Field>> &fields) {
  const std::vector<Field> shortest = fields.front(), longest = fields.back();
  for (std::vector<Field> &ofLength : fields) {
    if (ofLength.size() != longest.size()) return inputError("the steps of two lengths have different inputs");
    for (size_t i = 0; i < ofLength.size(); ++i) {
      Field &field = ofLength[i];
      if (field.name != longest[i].name || field.shape.size() != longest[i].shape.size() ||
          shortest[i].shape.size() != longest[i].shape.size())
        return inputError(fmt::format("input '{}' is another one in the step of another length", field.name));
      for (size_t dim = 0; dim < field.shape.size(); ++dim)
        if (shortest[i].shape[dim] != longest[i].shape[dim])
          field.lengthDims.push_back(dim);
        else if (field.shape[dim] != longest[i].shape[dim])
          return inputError(fmt::format("input '{}' is another one in the step of another length", field.name));
    }
  }
  return Status::ok();
}

void markLength(std::vector<Field> &fields, int64_t length) {
  for (Field &field : fields)
    for (size_t dim = 0; dim < field.shape.size(); ++dim)
      if (field.shape[dim] == length) field.lengthDims.push_back(dim);
}

} // namespace cleave::runtime
