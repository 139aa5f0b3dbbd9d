#include "compiler/training/label_inputs.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/sample_dim.h"
#include "llvm/ADT/StringSwitch.h"
#include <fmt/format.h>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

// The name of the dimension that counts samples, as the inputs have it.
std::string sampleSymbol(func::FuncOp model) {
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    const std::vector<std::string> symbols = onnx::dimsAttr.of(model, i);
    const int64_t dim = onnx::sampleDim(model, i);
    if (!symbols.empty() && dim >= 0 && !symbols[size_t(dim)].empty()) return symbols[size_t(dim)];
  }
  return "batch";
}

// The labels' element type, from the recipe's word or else `fallback`; null for an unknown word.
Type elementType(const recipe::Labels &labels, Type fallback) {
  if (!labels.dtype) return fallback;
  Builder b(fallback.getContext());
  return llvm::StringSwitch<Type>(*labels.dtype)
      .Case("int64", b.getI64Type())
      .Case("int32", b.getI32Type())
      .Case("int16", b.getIntegerType(16))
      .Case("int8", b.getIntegerType(8))
      .Case("uint8", b.getIntegerType(8, false))
      .Case("bool", b.getI1Type())
      .Case("float32", b.getF32Type())
      .Case("float64", b.getF64Type())
      .Case("float16", b.getF16Type())
      .Case("bfloat16", b.getBF16Type())
      .Default(Type());
}

} // namespace

// Where the recipe gives none: samples in a dimension of their own. [512] as 8 samples of 64 is [8, 64], as 64 times 8
// samples [64, 8].
LabelInputs::Shape LabelInputs::ownShape(ArrayRef<int64_t> needed, std::optional<dist::SamplePlace> place) {
  Shape own{SmallVector<int64_t>(needed), 0};
  if (!place) return own;
  const int64_t samples = samplesOf(model), outer = needed[size_t(place->dim)] / (samples * place->inner);
  SmallVector<int64_t> parts;
  if (outer > 1) parts.push_back(outer);
  parts.push_back(samples);
  if (place->inner > 1) parts.push_back(place->inner);
  auto at = own.sizes.erase(own.sizes.begin() + place->dim);
  own.sizes.insert(at, parts.begin(), parts.end());
  own.sampleDim = place->dim + (outer > 1);
  return own;
}

// The shape that labels.shape states. samples replaces "batch" and the model's batch symbol; at 0 the recipe's dims
// bind them.
Result<LabelInputs::Shape> LabelInputs::givenShape(const recipe::Labels &labels, int64_t samples) {
  const std::string symbol = sampleSymbol(model);
  Shape shape;
  for (const std::string &entry : *labels.shape) {
    int64_t size = 0;
    auto bound = recipe.dims.find(entry);
    if ((entry == "batch" || entry == symbol) && samples > 0) {
      size = samples;
      shape.sampleDim = int64_t(shape.sizes.size());
    } else if (bound != recipe.dims.end())
      size = bound->second;
    else if (StringRef(entry).getAsInteger(10, size))
      return inputError(fmt::format("dims does not bind '{}'", entry));
    shape.sizes.push_back(size);
  }
  return shape;
}

Result<SmallVector<int64_t>> LabelInputs::givenShape(const recipe::Labels &labels) {
  Result<Shape> shape = givenShape(labels, samplesOf(model));
  if (!shape) return shape.status();
  return std::move(shape->sizes);
}

Result<Value> LabelInputs::add(const recipe::Labels &labels, ArrayRef<int64_t> shape, Type fallback) {
  Type element = elementType(labels, fallback);
  if (!element) return inputError(fmt::format("unknown labels.dtype '{}'", *labels.dtype));
  return addArgument(labels, {SmallVector<int64_t>(shape), 0}, element);
}

Result<Value> LabelInputs::add(Formula f, const recipe::Labels &labels, ArrayRef<int64_t> needed,
                               std::optional<dist::SamplePlace> place, Type fallback) {
  Type element = elementType(labels, fallback);
  if (!element) return inputError(fmt::format("unknown labels.dtype '{}'", *labels.dtype));
  Shape shape = ownShape(needed, place);
  if (labels.shape) {
    Result<Shape> given = givenShape(labels, needed.empty() ? 0 : place ? samplesOf(model) : needed.front());
    if (!given) return given.status();
    shape = std::move(*given);
  }
  auto type = RankedTensorType::get(shape.sizes, element);
  auto wanted = RankedTensorType::get(needed, element);
  if (type.getNumElements() != wanted.getNumElements())
    return inputError(fmt::format("labels.shape gives {}, the loss needs {}", textOf(type), textOf(wanted)));
  Result<Value> argument = addArgument(labels, shape, element);
  if (!argument || ArrayRef(shape.sizes) == needed) return argument;
  return f.make<onnx::ReshapeOp>(*argument, needed);
}

Result<Value> LabelInputs::addArgument(const recipe::Labels &labels, const Shape &shape, Type element) {
  auto type = RankedTensorType::get(shape.sizes, element);
  if (Value same = added.lookup(labels.name)) {
    if (same.getType() == type) return same;
    return inputError(fmt::format("labels '{}' are {} here, and {} for a loss before it: give them another name",
                                  labels.name, textOf(type), textOf(same.getType())));
  }
  Builder b(model.getContext());
  for (unsigned i = 0; i < model.getNumArguments(); ++i)
    if (auto name = onnx::nameAttr.of(model, i); name && *name == labels.name)
      return inputError(fmt::format("labels.name '{}' is already an input of the model", labels.name));
  unsigned index = model.getNumArguments();
  if (failed(model.insertArgument(index, type,
                                  b.getDictionaryAttr({onnx::nameAttr.named(b.getContext(), labels.name),
                                                       onnx::labelAttr.named(b.getContext())}),
                                  model.getLoc())))
    return inputError("could not add the labels argument");
  onnx::setSampleDim(model, index, shape.sampleDim);
  Value argument = model.getArgument(index);
  added[labels.name] = argument;
  return argument;
}

} // namespace cleave::training
