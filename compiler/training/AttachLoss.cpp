// AttachLoss: @model's results become the loss (sum and weight); labels become its last argument.
#include "compiler/training/graph_loss.h"
#include "compiler/training/metrics.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/sample_dim.h"

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::LossKind;

namespace cleave::training {
namespace {

class AttachLoss : public RecipePass<AttachLoss> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AttachLoss)
  using RecipePass::RecipePass;
  AttachLoss(const recipe::Recipe &recipe, const TrainingOptions &options) : RecipePass(recipe), options(options) {}
  StringRef getArgument() const final { return "attach-loss"; }
  StringRef getDescription() const final { return "make the loss of the recipe the model's result"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<onnx::OnnxDialect>(); }

  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    for (Operation &op : model.front().without_terminator())
      op.setAttr(phaseName, StringAttr::get(&getContext(), phaseText(Phase::Forward)));
    FailureOr<Value> output = findOutput(model);
    if (failed(output)) return signalPassFailure();
    PhaseBuilder builder(model, Phase::Forward);
    Formula f(builder, NameLoc::get(StringAttr::get(&getContext(), "loss")));
    compared.output = *output;
    FailureOr<LossTerms> terms = build(f, model, *output);
    if (failed(terms)) return signalPassFailure();
    SmallVector<StepResult> results{{"loss_sum", {}, terms->sum}};
    if (terms->weight) results.push_back({"loss_weight", {}, terms->weight});
    addCounts(model, results);
    if (failed(addMetrics(builder, model, results))) return signalPassFailure();
    setStepResults(model, results);
    eraseDeadOps(model);
  }

private:
  TrainingOptions options;
  SmallVector<Value> counts;
  Compared compared; // by the loss

  LogicalResult addMetrics(OpBuilder &builder, func::FuncOp model, SmallVectorImpl<StepResult> &results) {
    if (!recipe.eval) return success();
    const SmallVector<StepResult> outputs = stepResults(model);
    for (const recipe::Metric &metric : recipe.eval->metrics) {
      auto fail = [&](const std::string &why) {
        return model.emitError() << (metric.where.empty() ? "" : metric.where + ": ") << "the metric '" << metric.name
                                 << "' " << why;
      };
      Compared of = compared;
      if (metric.output) of.output = namedResult(outputs, *metric.output);
      if (!of.output) return fail("reads the output '" + *metric.output + "', which the model does not have");
      if (metric.labels) of.labels = namedInput(model, *metric.labels);
      if (!of.labels && metric.labels)
        return fail("reads the input '" + *metric.labels + "', which the model does not have");
      Formula f(builder, NameLoc::get(StringAttr::get(&getContext(), metricPrefix + metric.name)));
      Result<SmallVector<StepResult>> built = buildMetric(f, metric, recipe.loss, of);
      if (!built) return fail(built.status().message());
      llvm::append_range(results, *built);
    }
    return success();
  }

  static Value namedInput(func::FuncOp model, StringRef wanted) {
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = model.getArgAttrOfType<StringAttr>(i, "onnx.name"); name && name.getValue() == wanted)
        return model.getArgument(i);
    return {};
  }

  void addCounts(func::FuncOp model, SmallVectorImpl<StepResult> &results) {
    SymbolTable symbols(getOperation());
    for (auto [number, part] : llvm::enumerate(counts)) {
      std::string name = countTensor(number);
      addPersistent(model, symbols, name, part.getType(), "accumulator", 0);
      results.push_back({name, {}, part});
    }
  }

  InFlightDiagnostic error(func::FuncOp model) {
    InFlightDiagnostic diagnostic = model.emitError();
    if (!recipe.loss.where.empty()) diagnostic << recipe.loss.where << ": ";
    diagnostic << "loss " << recipe::toString(recipe.loss.kind) << ": ";
    return diagnostic;
  }

  FailureOr<Value> findOutput(func::FuncOp model) {
    SmallVector<StepResult> outputs = stepResults(model);
    std::string names;
    for (const StepResult &output : outputs) names += (names.empty() ? "" : ", ") + output.name;
    if (outputs.empty()) return error(model) << "the model has no output";
    Value found;
    if (recipe.loss.output) {
      found = namedResult(outputs, *recipe.loss.output);
      if (!found) return error(model) << "the model has no output '" << *recipe.loss.output << "'; it has " << names;
    } else if (outputs.size() > 1) {
      return error(model) << "name the output it reads (loss.output); the model has " << names;
    } else {
      found = outputs.front().value;
    }
    if (!onnx::isFloatTensor(found)) return error(model) << "its output must be floating point, is " << found.getType();
    return found;
  }

  FailureOr<LossTerms> build(Formula f, func::FuncOp model, Value x) {
    const recipe::Loss &loss = recipe.loss;
    auto type = tensorType(x);
    // Half precision sums would lose the loss.
    if (type.getElementTypeBitWidth() < 32) x = f.cast(x, Float32Type::get(&getContext()));
    if (loss.kind == LossKind::Output) {
      nameLabels(model);
      if (type.getNumElements() != 1) return error(model) << "the output must be a scalar, is " << type;
      GraphLoss split = splitGraphLoss(f, model, x, loss.reduction == recipe::Reduction::Mean, options.microbatches,
                                       options.lossOfBatch);
      Builder b(&getContext());
      getOperation()->setAttr(lossTermsName, b.getDenseF64ArrayAttr(split.coefficients));
      if (!split.meetsAt.empty()) getOperation()->setAttr(lossMeetsAtName, b.getStringAttr(split.meetsAt));
      counts = std::move(split.counts);
      return split.terms;
    }
    SmallVector<int64_t> labelShape(type.getShape());
    std::optional<dist::SamplePlace> place = samplePlaces(model).lookup(x);
    if (loss.posWeight.size() > 1 && (type.getRank() == 0 || type.getShape().back() != int64_t(loss.posWeight.size())))
      return error(model) << "pos_weight has " << loss.posWeight.size() << " numbers, for the last dimension of "
                          << type;
    if (!isClassLoss(loss.kind)) {
      FailureOr<Value> labels = addLabels(f, model, labelShape, place, Float32Type::get(&getContext()));
      if (failed(labels)) return failure();
      compared.labels = *labels;
      return buildElementLoss(f, loss, x, *labels);
    }
    int64_t rank = type.getRank(), axis = loss.axis < 0 ? loss.axis + rank : loss.axis;
    if (axis < 0 || axis >= rank) return error(model) << "axis " << loss.axis << " does not fit the output " << type;
    if (!loss.weight.empty() && type.getDimSize(unsigned(axis)) != int64_t(loss.weight.size()))
      return error(model) << "weight has " << loss.weight.size() << " numbers, the output " << type << " has "
                          << type.getDimSize(unsigned(axis)) << " classes";
    StringRef dtype = loss.labels.dtype ? StringRef(*loss.labels.dtype) : StringRef();
    if (loss.kind == LossKind::SoftmaxCrossEntropy && dtype.contains("float")) { // probabilities instead of classes
      FailureOr<Value> labels = addLabels(f, model, labelShape, place, Float32Type::get(&getContext()));
      if (failed(labels)) return failure();
      compared.labels = *labels, compared.axis = axis;
      return buildSoftClassLoss(f, loss, x, *labels, axis);
    }
    labelShape.erase(labelShape.begin() + axis);
    if (place && place->dim == axis)
      place.reset();
    else if (place && place->dim > axis)
      --place->dim;
    FailureOr<Value> labels = addLabels(f, model, labelShape, place, IntegerType::get(&getContext(), 64));
    if (failed(labels)) return failure();
    if (!isa<IntegerType>(tensorType(*labels).getElementType()))
      return error(model) << "labels must be integers (class numbers), are " << labels->getType();
    // Narrow integers could not hold the number of classes they are compared with.
    bool narrow = tensorType(*labels).getElementTypeBitWidth() < 32;
    Value classes = narrow ? f.cast(*labels, IntegerType::get(&getContext(), 64)) : *labels;
    compared.labels = classes, compared.axis = axis;
    return buildClassLoss(f, loss, x, classes, axis);
  }

  // The graph's own input of the labels' name is what data sets call labels.
  void nameLabels(func::FuncOp model) {
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = model.getArgAttrOfType<StringAttr>(i, "onnx.name");
          name && name.getValue() == recipe.loss.labels.name)
        model.setArgAttr(i, "cleave.role", StringAttr::get(&getContext(), "label"));
  }

  // The labels' element type, from the recipe's word or else `fallback`; null for an unknown word.
  Type elementType(Type fallback) {
    if (!recipe.loss.labels.dtype) return fallback;
    Builder b(&getContext());
    return llvm::StringSwitch<Type>(*recipe.loss.labels.dtype)
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

  // The name of the dimension that counts samples, as the inputs have it.
  StringRef sampleSymbol(func::FuncOp model) {
    for (unsigned i = 0; i < model.getNumArguments(); ++i) {
      auto symbols = model.getArgAttrOfType<ArrayAttr>(i, "onnx.dims");
      int64_t dim = onnx::sampleDim(model, i);
      if (!symbols || dim < 0) continue;
      if (auto symbol = dyn_cast<StringAttr>(symbols[unsigned(dim)]); symbol && !symbol.empty())
        return symbol.getValue();
    }
    return "batch";
  }

  // The shape that labels have where the recipe gives none: samples in a dimension of their own. [512] as 8 samples of
  // 64 is [8, 64], as 64 times 8 samples [64, 8].
  struct LabelShape {
    SmallVector<int64_t> sizes;
    int64_t sampleDim = 0;
  };
  LabelShape ownShape(func::FuncOp model, ArrayRef<int64_t> needed, std::optional<dist::SamplePlace> place) {
    LabelShape own{SmallVector<int64_t>(needed), 0};
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

  // Appends the argument and gives it the shape the loss needs, in which the samples lie at `place`. A given shape may
  // order the same elements otherwise ([batch * 24] for [batch, 24]); a named dimension other than the batch has the
  // value the recipe binds.
  FailureOr<Value> addLabels(Formula f, func::FuncOp model, ArrayRef<int64_t> needed,
                             std::optional<dist::SamplePlace> place, Type fallback) {
    const recipe::Labels &labels = recipe.loss.labels;
    Type element = elementType(fallback);
    if (!element) return error(model) << "unknown labels.dtype '" << *labels.dtype << "'";
    auto [shape, dim] = ownShape(model, needed, place);
    if (labels.shape) {
      const StringRef symbol = sampleSymbol(model);
      shape.clear();
      dim = 0;
      for (const std::string &entry : *labels.shape) {
        int64_t size = 0;
        auto bound = recipe.dims.find(entry);
        if ((entry == "batch" || entry == symbol) && !needed.empty()) {
          size = place ? samplesOf(model) : needed.front();
          dim = int64_t(shape.size());
        } else if (bound != recipe.dims.end())
          size = bound->second;
        else if (StringRef(entry).getAsInteger(10, size))
          return error(model) << "dims does not bind '" << entry << "'";
        shape.push_back(size);
      }
    }
    auto type = RankedTensorType::get(shape, element);
    auto wanted = RankedTensorType::get(needed, element);
    if (type.getNumElements() != wanted.getNumElements())
      return error(model) << "labels.shape gives " << type << ", the loss needs " << wanted;
    Builder b(&getContext());
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = model.getArgAttrOfType<StringAttr>(i, "onnx.name"); name && name.getValue() == labels.name)
        return error(model) << "labels.name '" << labels.name << "' is already an input of the model";
    unsigned index = model.getNumArguments();
    if (failed(model.insertArgument(index, type,
                                    b.getDictionaryAttr({b.getNamedAttr("onnx.name", b.getStringAttr(labels.name)),
                                                         b.getNamedAttr("cleave.role", b.getStringAttr("label"))}),
                                    model.getLoc())))
      return error(model) << "could not add the labels argument";
    Value argument = model.getArgument(index);
    onnx::setSampleDim(model, index, dim);
    return ArrayRef(shape) == needed ? argument : f.make<onnx::ReshapeOp>(argument, needed);
  }
};

} // namespace

std::unique_ptr<Pass> createAttachLoss(const recipe::Recipe &recipe, const TrainingOptions &options) {
  return std::make_unique<AttachLoss>(recipe, options);
}
void registerAttachLoss() { PassRegistration<AttachLoss>(); }

} // namespace cleave::training
