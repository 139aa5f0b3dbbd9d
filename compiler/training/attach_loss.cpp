#include "compiler/training/graph_loss.h"
#include "compiler/training/label_inputs.h"
#include "compiler/training/metrics.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "runtime/plan/empty_label.h"

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::LossKind;

namespace cleave::training {
#define GEN_PASS_DEF_ATTACHLOSS
#include "compiler/training/Passes.h.inc"

namespace {

class AttachLoss : public impl::AttachLossBase<AttachLoss> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    for (Operation &op : model.front().without_terminator()) place::setPhase(&op, Phase::Forward);
    PhaseBuilder builder(model, Phase::Forward);
    Formula f(builder, NameLoc::get(StringAttr::get(&getContext(), "loss")));
    labelInputs.emplace(model, recipe);
    SmallVector<LossTerms> terms(recipe.losses.size());
    compared.resize(recipe.losses.size());
    auto isGraphs = [](const recipe::Loss &loss) { return loss.kind == LossKind::Output; };
    for (bool graphs : {true, false}) // a graph's loss has the first counts
      for (auto [loss, own] : llvm::zip_equal(recipe.losses, terms)) {
        if (isGraphs(loss) != graphs) continue;
        FailureOr<LossTerms> made = build(f, model, loss);
        if (failed(made)) return signalPassFailure();
        own = *made;
      }
    SmallVector<StepResult> results = recipe.sumsLosses() ? sumOf(f, terms) : alone(terms.front());
    addCounts(model, results);
    if (failed(addMetrics(builder, model, results))) return signalPassFailure();
    setStepResults(model, results);
    eraseDeadOps(model);
  }

private:
  SmallVector<Value> counts;
  std::optional<LabelInputs> labelInputs;
  SmallVector<Compared> compared; // by each loss

  Compared &comparedBy(const recipe::Loss &loss) { return compared[size_t(&loss - recipe.losses.data())]; }

  LogicalResult addMetrics(OpBuilder &builder, func::FuncOp model, SmallVectorImpl<StepResult> &results) {
    if (!recipe.eval) return success();
    const SmallVector<StepResult> outputs = stepResults(model);
    for (const recipe::Metric &metric : recipe.eval->metrics) {
      auto fail = [&](const std::string &why) {
        return model.emitError() << (metric.where.empty() ? "" : metric.where + ": ") << "the metric '" << metric.name
                                 << "' " << why;
      };
      Compared of = compared[metric.loss];
      if (metric.output) of.output = namedResult(outputs, *metric.output);
      if (!of.output) return fail("reads the output '" + *metric.output + "', which the model does not have");
      if (metric.labels) of.labels = namedInput(model, *metric.labels);
      if (!of.labels && metric.labels)
        return fail("reads the input '" + *metric.labels + "', which the model does not have");
      if (!of.labels && metric.kind != recipe::MetricKind::Mean && metric.kind != recipe::MetricKind::Perplexity)
        return fail("has no labels to compare the output with");
      Formula f(builder, NameLoc::get(StringAttr::get(&getContext(), metricPrefix + metric.name)));
      Result<SmallVector<StepResult>> built = buildMetric(f, metric, recipe.losses[metric.loss], of);
      if (!built) return fail(built.status().message());
      llvm::append_range(results, *built);
    }
    return success();
  }

  static Value namedInput(func::FuncOp model, StringRef wanted) {
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = onnx::nameAttr.of(model, i); name && *name == wanted) return model.getArgument(i);
    return {};
  }

  static SmallVector<StepResult> alone(const LossTerms &terms) {
    SmallVector<StepResult> results{{"loss_sum", {}, terms.sum}};
    if (terms.weight) results.push_back({"loss_weight", {}, terms.weight});
    return results;
  }

  // Each loss divided by its weight of the whole batch, and their sum: means over microbatches are what the batch has.
  SmallVector<StepResult> sumOf(Formula f, ArrayRef<LossTerms> terms) {
    SmallVector<StepResult> each;
    SmallVector<Value> scaled;
    for (auto [loss, own] : llvm::zip_equal(recipe.losses, terms)) {
      Value mean = f.cast(meanOf(f, own), onnx::tensorType(terms.front().sum).getElementType());
      scaled.push_back(loss.scale == 1 ? mean : f.scale(mean, loss.scale));
      each.push_back({lossPrefix.str() + loss.name, {}, mean});
      if (own.weight) each.push_back({lossWeightPrefix.str() + loss.name, {}, own.weight});
    }
    Value sum = f.sum(scaled);
    SmallVector<StepResult> results{{"loss_sum", {}, sum}, {"loss_weight", {}, f.like(sum, 1)}};
    results.append(each);
    return results;
  }

  // A microbatch's part, times the microbatches.
  Value meanOf(Formula f, const LossTerms &terms) {
    const auto all = static_cast<double>(microbatches);
    auto times = [&](Value x) { return microbatches == 1 ? x : f.scale(x, all); };
    if (!terms.weight) return times(terms.sum);
    if (terms.weight.getDefiningOp<onnx::ConstantOp>() || microbatches == 1) return f.div(terms.sum, terms.weight);
    auto symbol = FlatSymbolRefAttr::get(&getContext(), countTensor(counts.size()));
    counts.push_back(terms.weight);
    return times(f.div(terms.sum, f.make<onnx::ReadOp>(terms.weight.getType(), symbol)));
  }

  void addCounts(func::FuncOp model, SmallVectorImpl<StepResult> &results) {
    SymbolTable symbols(getOperation());
    for (auto [number, part] : llvm::enumerate(counts)) {
      std::string name = countTensor(number);
      addPersistent(model, symbols, name, part.getType(), "accumulator", 0);
      results.push_back({name, {}, part});
    }
  }

  InFlightDiagnostic error(func::FuncOp model, const recipe::Loss &loss) {
    InFlightDiagnostic diagnostic = model.emitError();
    if (!loss.where.empty()) diagnostic << loss.where << ": ";
    diagnostic << "loss " << (loss.name.empty() ? recipe::toString(loss.kind) : loss.name) << ": ";
    return diagnostic;
  }

  FailureOr<Value> findOutput(func::FuncOp model, const recipe::Loss &loss, const std::string &name) {
    SmallVector<StepResult> outputs = stepResults(model);
    if (Value found = namedResult(outputs, name)) return found;
    std::string names;
    for (const StepResult &output : outputs) names += (names.empty() ? "" : ", ") + output.name;
    return error(model, loss) << "the model has no output '" << name << "'; it has " << names;
  }

  // The outputs that the loss reads, in fp32 at least: sums in 16 bits would lose the loss.
  FailureOr<SmallVector<Value>> findOutputs(Formula f, func::FuncOp model, const recipe::Loss &loss) {
    SmallVector<Value> found;
    for (const std::string &name : loss.outputs) {
      FailureOr<Value> one = findOutput(model, loss, name);
      if (failed(one)) return failure();
      found.push_back(*one);
    }
    if (found.empty()) {
      SmallVector<StepResult> outputs = stepResults(model);
      std::string names;
      for (const StepResult &output : outputs) names += (names.empty() ? "" : ", ") + output.name;
      if (outputs.empty()) return error(model, loss) << "the model has no output";
      if (outputs.size() > 1)
        return error(model, loss) << "name the output it reads (loss.output); the model has " << names;
      found.push_back(outputs.front().value);
    }
    for (Value &x : found) {
      if (!onnx::isFloatTensor(x)) return error(model, loss) << "its output must be floating point, is " << x.getType();
      if (tensorType(x).getElementTypeBitWidth() < 32) x = f.cast(x, Float32Type::get(&getContext()));
      if (x.getType() != found.front().getType())
        return error(model, loss) << "its outputs must have one shape, are " << found.front().getType() << " and "
                                  << x.getType();
    }
    return found;
  }

  FailureOr<LossTerms> build(Formula f, func::FuncOp model, const recipe::Loss &loss) {
    FailureOr<SmallVector<Value>> outputs = findOutputs(f, model, loss);
    if (failed(outputs)) return failure();
    Value x = outputs->front();
    comparedBy(loss).output = x;
    if (loss.kind == LossKind::Output) return buildGraphLoss(f, model, loss, x);
    auto type = tensorType(x);
    if (loss.posWeight.size() > 1 && (type.getRank() == 0 || type.getShape().back() != int64_t(loss.posWeight.size())))
      return error(model, loss) << "pos_weight has " << loss.posWeight.size() << " numbers, for the last dimension of "
                                << type;
    if (loss.kind == LossKind::Ctc) return buildCtc(f, model, loss, x);
    if (isClassLoss(loss.kind)) return buildOverClasses(f, model, loss, x);
    const bool isOfRows = loss.kind == LossKind::CosineEmbedding || loss.kind == LossKind::Triplet;
    if (isOfRows && type.getRank() == 0) return error(model, loss) << "its outputs must be embeddings, are " << type;
    Value labels, isEmpty;
    if (loss.kind != LossKind::Triplet) {
      FailureOr<Value> made = addLabels(f, model, loss, x, isOfRows ? type.getRank() - 1 : -1, f32());
      if (failed(made)) return failure();
      Type element = tensorType(*made).getElementType();
      const bool holdsEmpty = element.isF32() || element.isF64() || element.isBF16() || element.isInteger(64);
      if (emptyPlaces && holdsEmpty && !loss.labels.output && !isEmbeddingLoss(loss.kind))
        isEmpty = f.make<onnx::EqualOp>(*made, f.like(*made, runtime::emptyLabel));
      labels = f.cast(*made, type.getElementType());
    }
    if (!isEmbeddingLoss(loss.kind)) comparedBy(loss).labels = labels;
    return isEmbeddingLoss(loss.kind) ? buildEmbeddingLoss(f, loss, *outputs, labels)
                                      : buildElementLoss(f, loss, x, labels, isEmpty, rowsBesideSamples(model, x));
  }

  // Where the first dimension counts no samples: a microbatch's part of it, so that those of all add up to it. 0: it
  // counts them.
  double rowsBesideSamples(func::FuncOp model, Value x) {
    std::optional<dist::SamplePlace> place = samplePlaces(model).lookup(x);
    if (!place || place->dim == 0 || tensorType(x).getRank() == 0) return 0;
    return static_cast<double>(tensorType(x).getDimSize(0)) / static_cast<double>(microbatches);
  }

  FailureOr<LossTerms> buildGraphLoss(Formula f, func::FuncOp model, const recipe::Loss &loss, Value x) {
    nameLabels(model, loss);
    if (tensorType(x).getNumElements() != 1)
      return error(model, loss) << "the output must be a scalar, is " << x.getType();
    GraphLoss split = splitGraphLoss(f, model, x, loss.reduction == recipe::Reduction::Mean, microbatches, lossOfBatch);
    Builder b(&getContext());
    onnx::lossTermsAttr.set(getOperation(), b.getDenseF64ArrayAttr(split.coefficients));
    if (!split.meetsAt.empty()) onnx::lossMeetsAtAttr.set(getOperation(), split.meetsAt);
    counts = std::move(split.counts);
    return split.terms;
  }

  FailureOr<LossTerms> buildOverClasses(Formula f, func::FuncOp model, const recipe::Loss &loss, Value x) {
    auto type = tensorType(x);
    int64_t rank = type.getRank(), axis = loss.axis < 0 ? loss.axis + rank : loss.axis;
    if (axis < 0 || axis >= rank)
      return error(model, loss) << "axis " << loss.axis << " does not fit the output " << type;
    if (!loss.weight.empty() && type.getDimSize(unsigned(axis)) != int64_t(loss.weight.size()))
      return error(model, loss) << "weight has " << loss.weight.size() << " numbers, the output " << type << " has "
                                << type.getDimSize(unsigned(axis)) << " classes";
    FailureOr<bool> isSoft = hasProbabilities(model, loss);
    if (failed(isSoft)) return failure();
    if (*isSoft) {
      FailureOr<Value> labels = addLabels(f, model, loss, x, -1, f32());
      if (failed(labels)) return failure();
      comparedBy(loss).labels = *labels, comparedBy(loss).axis = axis;
      return buildSoftClassLoss(f, loss, x, *labels, axis);
    }
    FailureOr<Value> labels = addLabels(f, model, loss, x, axis, IntegerType::get(&getContext(), 64));
    if (failed(labels)) return failure();
    if (!isa<IntegerType>(tensorType(*labels).getElementType()))
      return error(model, loss) << "labels must be integers (class numbers), are " << labels->getType();
    // Narrow integers could not hold the number of classes they are compared with.
    bool narrow = tensorType(*labels).getElementTypeBitWidth() < 32;
    Value classes = narrow ? f.cast(*labels, IntegerType::get(&getContext(), 64)) : *labels;
    comparedBy(loss).labels = classes, comparedBy(loss).axis = axis;
    return buildClassLoss(f, loss, x, classes, axis);
  }

  // Are the labels of softmax_cross_entropy probabilities instead of classes?
  FailureOr<bool> hasProbabilities(func::FuncOp model, const recipe::Loss &loss) {
    if (loss.kind != LossKind::SoftmaxCrossEntropy) return false;
    if (!loss.labels.output) return loss.labels.dtype && StringRef(*loss.labels.dtype).contains("float");
    FailureOr<Value> output = findOutput(model, loss, *loss.labels.output);
    return failed(output) ? FailureOr<bool>(failure()) : onnx::isFloatTensor(*output);
  }

  // log probabilities [T, N, C], or [N, T, C]: the samples say which.
  FailureOr<LossTerms> buildCtc(Formula f, func::FuncOp model, const recipe::Loss &loss, Value x) {
    auto type = tensorType(x);
    std::optional<dist::SamplePlace> place = samplePlaces(model).lookup(x);
    if (type.getRank() != 3 || (place && (place->dim > 1 || place->inner != 1)))
      return error(model, loss) << "its output must be logarithms of probabilities, [steps, batch, classes] or [batch, "
                                << "steps, classes], is " << type;
    if (place && place->dim == 0) x = f.make<onnx::TransposeOp>(x, ArrayRef<int64_t>{1, 0, 2}), type = tensorType(x);
    const int64_t steps = type.getDimSize(0), samples = type.getDimSize(1);
    if (steps > longestCtc)
      return error(model, loss) << "its " << steps << " steps are unrolled, and " << longestCtc << " are the most";
    if (loss.blank >= type.getDimSize(2))
      return error(model, loss) << "blank " << loss.blank << " is no class of " << type;
    auto fail = [&](const Status &status) { return error(model, loss) << status.message(); };
    Result<SmallVector<int64_t>> shape = labelInputs->givenShape(loss.labels);
    if (!shape) return fail(shape.status());
    if (shape->size() != 2 || shape->front() != samples)
      return error(model, loss) << "labels.shape must be [batch, longest target]";
    Type i64 = IntegerType::get(&getContext(), 64);
    auto named = [](const std::string &name) {
      recipe::Labels labels;
      labels.name = name;
      return labels;
    };
    SmallVector<Value> inputs; // targets, input_lengths, target_lengths
    for (auto [labels, sizes] : {std::pair(loss.labels, ArrayRef<int64_t>(*shape)),
                                 std::pair(named(loss.inputLengths), ArrayRef<int64_t>(samples)),
                                 std::pair(named(loss.targetLengths), ArrayRef<int64_t>(samples))}) {
      Result<Value> added = labelInputs->add(labels, sizes, i64);
      if (!added) return fail(added.status());
      inputs.push_back(f.cast(*added, i64));
    }
    return buildCtcLoss(f, loss, x, inputs[0], inputs[1], inputs[2]);
  }

  // The graph's own input of the labels' name is what data sets call labels.
  void nameLabels(func::FuncOp model, const recipe::Loss &loss) {
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = onnx::nameAttr.of(model, i); name && *name == loss.labels.name) onnx::labelAttr.setArg(model, i);
  }

  Type f32() { return Float32Type::get(&getContext()); }

  // Labels of x's shape, without its dimension `without` (-1: with all).
  FailureOr<Value> addLabels(Formula f, func::FuncOp model, const recipe::Loss &loss, Value x, int64_t without,
                             Type fallback) {
    SmallVector<int64_t> needed(tensorType(x).getShape());
    std::optional<dist::SamplePlace> place = samplePlaces(model).lookup(x);
    if (without >= 0) {
      needed.erase(needed.begin() + without);
      if (place && place->dim == without)
        place.reset();
      else if (place && place->dim > without)
        --place->dim;
    }
    if (loss.labels.output) {
      FailureOr<Value> output = findOutput(model, loss, *loss.labels.output);
      if (failed(output)) return failure();
      if (tensorType(*output).getShape() != ArrayRef(needed))
        return error(model, loss) << "its labels, output '" << *loss.labels.output << "', are " << output->getType()
                                  << ", and the loss needs " << RankedTensorType::get(needed, fallback);
      return f.make<onnx::StopGradientOp>(*output);
    }
    Result<Value> added = labelInputs->add(f, loss.labels, needed, place, fallback);
    if (!added) return error(model, loss) << added.status().message();
    return *added;
  }
};

} // namespace

} // namespace cleave::training
