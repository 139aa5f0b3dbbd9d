#include "runtime/train/data/lengths.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// The leading box of `to`'s sizes out of a sample of `from`'s.
void copyLeading(std::span<const int64_t> from, std::span<const int64_t> to, int64_t unit, const std::byte *in,
                 std::byte *out) {
  if (std::ranges::equal(from, to)) {
    std::memcpy(out, in, static_cast<size_t>(elementCount(to) * unit));
    return;
  }
  const int64_t inOne = elementCount(from.subspan(1)) * unit, outOne = elementCount(to.subspan(1)) * unit;
  for (int64_t i = 0; i < to[0]; ++i)
    copyLeading(from.subspan(1), to.subspan(1), unit, in + i * inOne, out + i * outOne);
}

class LeadingDataset : public Dataset {
public:
  LeadingDataset(const Dataset &whole, std::vector<Field> fields)
      : Dataset(std::move(fields), whole.shuffle()), whole(whole) {}
  int64_t size() const override { return whole.size(); }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    return cut(field, indices, out, [&](std::byte *all) { return whole.fill(field, indices, all); });
  }
  Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    return cut(field, indices, out, [&](std::byte *all) { return whole.fillTraining(field, indices, turn, all); });
  }
  bool isSlow() const override { return whole.isSlow(); }

private:
  Status cut(size_t field, std::span<const int64_t> indices, std::byte *out, auto fillWhole) const {
    const Field &from = whole.fields()[field], &to = fieldList[field];
    if (from.shape == to.shape) return fillWhole(out);
    std::vector<std::byte> all(indices.size() * static_cast<size_t>(from.bytes()));
    CLEAVE_RETURN_IF_ERROR(fillWhole(all.data()));
    for (size_t i = 0; i < indices.size(); ++i, out += to.bytes())
      copyLeading(from.shape, to.shape, byteSize(to.dtype), all.data() + i * static_cast<size_t>(from.bytes()), out);
    return Status::ok();
  }

  const Dataset &whole;
};

} // namespace

Result<std::unique_ptr<Dataset>> leadingPart(const Dataset &whole, std::vector<Field> fields) {
  bool isCut = false;
  for (size_t i = 0; i < std::max(fields.size(), whole.fields().size()); ++i) {
    auto fits = [&](const Field &from, const Field &to) {
      return from.name == to.name && from.dtype == to.dtype && from.shape.size() == to.shape.size() &&
             std::ranges::equal(to.shape, from.shape, std::less_equal<>());
    };
    if (fields.size() != whole.fields().size() || !fits(whole.fields()[i], fields[i]))
      return inputError("the steps of a ramp have other inputs, or larger ones, than the last step");
    isCut |= fields[i].shape != whole.fields()[i].shape;
  }
  std::unique_ptr<Dataset> made;
  if (isCut) made = std::make_unique<LeadingDataset>(whole, std::move(fields));
  return made;
}

Result<std::vector<std::vector<Field>>> fieldsOf(const plan::Plan &plan) {
  std::vector<std::vector<Field>> fields;
  for (size_t shape = 0; shape < shapesOf(plan); ++shape) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<Field> found, dataFields(inputsOf(plan, routineOf(plan, "step", shape))));
    fields.push_back(std::move(found));
  }
  if (!isRamp(plan)) CLEAVE_RETURN_IF_ERROR(markLengths(fields));
  return fields;
}

Status markLengths(std::vector<std::vector<Field>> &fields) {
  const std::vector<Field> shortest = fields.front(), longest = fields.back();
  for (std::vector<Field> &ofLength : fields) {
    if (ofLength.size() != longest.size()) return inputError("the steps of two shapes have different inputs");
    for (size_t i = 0; i < ofLength.size(); ++i) {
      Field &field = ofLength[i];
      if (field.name != longest[i].name || field.shape.size() != longest[i].shape.size() ||
          shortest[i].shape.size() != longest[i].shape.size())
        return inputError(fmt::format("input '{}' is another one in the step of another shape", field.name));
      for (size_t dim = 0; dim < field.shape.size(); ++dim)
        if (shortest[i].shape[dim] != longest[i].shape[dim])
          field.lengthDims.push_back(dim);
        else if (field.shape[dim] != longest[i].shape[dim])
          return inputError(fmt::format("input '{}' is another one in the step of another shape", field.name));
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
