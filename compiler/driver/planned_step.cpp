#include "compiler/driver/planned_step.h"
#include "compiler/annotations/annotations.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/normalize/normalize.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/schedule/schedule.h"
#include "compiler/specialize/microbatch_inputs.h"
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/onnx/attributes.h"
#include "runtime/base/atomic_file.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;
namespace cleave {
namespace {

// fp8 asks for hardware that multiplies it.
Status checkPrecision(const CompileRequest &request) {
  const std::string gpu = planner::computeCapability(request.cluster.device.kind);
  if (request.recipe.precision != recipe::Precision::Fp8 || gpu.empty()) return Status::ok();
  if (std::atoi(gpu.c_str() + std::string("sm_").size()) >= 89) return Status::ok();
  return inputError(
      fmt::format("{}: precision fp8 needs GPUs of compute capability 8.9 or later (sm_89), {} is {}; take "
                  "bf16",
                  request.recipe.at("precision"), request.cluster.device.kind, gpu));
}

// A plan is not made of a model that may be another one than was exported; an estimate tells the doubts as warnings.
Status settleDoubts(const CompileRequest &request, bool forCode, PlannedStep &planned) {
  const std::vector<std::string> &doubts = planned.pipeline->doubts();
  planned.imported = request.importCheck.empty() ? planned.pipeline->importSource() : request.importCheck;
  if (doubts.empty()) return Status::ok();
  if (forCode && !request.acceptsDoubts)
    return inputError(fmt::format("{}: the file does not tell all that the numbers depend on:\n  {}\n--accept-doubts "
                                  "takes these as they are; `cleave inspect --notes` lists all of their names",
                                  request.model, fmt::join(doubts, "\n  ")));
  planned.imported += fmt::format(": {} doubt{} accepted", doubts.size(), doubts.size() == 1 ? "" : "s");
  planned.warnings.insert(planned.warnings.end(), doubts.begin(), doubts.end());
  return Status::ok();
}

// Does the loss compare elements with labels of its own? One of them then means a place that stays empty.
bool isOverElements(const recipe::Loss &loss) {
  using enum recipe::LossKind;
  return llvm::is_contained({Bce, BceWithLogits, KlDiv, L1, Huber, Mse}, loss.kind) && !loss.labels.output;
}

// Samples that fill a batch do not count where all losses ignore their labels, and no other sample sees them.
// `emptyPlaces`: losses over elements ignore a label, too (AttachLoss).
std::string obstacleToSmallerBatch(const recipe::Recipe &recipe, const planner::Problem &problem, bool emptyPlaces) {
  for (const recipe::Loss &loss : recipe.losses) {
    const std::string kind = recipe::toString(loss.kind);
    if (emptyPlaces && isOverElements(loss)) continue;
    const bool isOfClasses = loss.kind == recipe::LossKind::SoftmaxCrossEntropy || loss.kind == recipe::LossKind::Nll;
    if (!isOfClasses) return fmt::format("loss {} has no label that it ignores", kind);
    if (loss.labels.output || (loss.labels.dtype && loss.labels.dtype->starts_with("float")))
      return fmt::format("loss {} reads probabilities, none of which it ignores", kind);
    if (!loss.ignoreIndex) return fmt::format("loss {} ignores no label: ignore_index is null", kind);
  }
  const std::string meets = problem.samplesMeetAt();
  return meets.empty() ? "" : fmt::format("the samples of a batch meet at '{}'", meets);
}

// The least batch with a place for each sample that divides over the devices among which the search may divide it, and
// over the microbatches asked for.
int64_t dividingBatch(int64_t samples, const planner::Constraints &asked, const planner::Cluster &cluster) {
  const int64_t others = asked.tp.value_or(1) * asked.pp.value_or(1) * asked.cp.value_or(1) * asked.ep.value_or(1);
  const int64_t open = std::max<int64_t>(1, cluster.numDevices() / others);
  const int64_t ways = (asked.dp ? *asked.dp * asked.fsdp.value_or(1) : open) * asked.microbatches.value_or(1);
  return (samples + ways - 1) / ways * ways;
}

// Builds the step again for the decision where code is made of it and it cut the batch, and warns of what the decision
// changes.
Status buildSplit(PlannedStep &planned, bool forCode) {
  const CompileRequest &request = *planned.request;
  bool staged = planned.decision.stages > 1;
  bool ring = planned.decision.attention == planner::AttentionSplit::Ring;
  int64_t blocks = ring ? planned.decision.mesh.axisSize("cp") : 1;
  bool delaysWeights = false;
  if (staged) {
    auto shape =
        planner::scheduleShape(planned.decision.schedule, int(planned.decision.mesh.axisSize(dist::pipelineAxis)));
    if (!shape) return shape.status();
    delaysWeights = shape->weightVersions > 1;
  }
  if (delaysWeights && request.recipe.precision == recipe::Precision::Fp8 &&
      request.recipe.fp8.scaling == recipe::Scaling::Delayed)
    return inputError(fmt::format("schedule {} runs forward passes of a step before the last one has ended, when the "
                                  "scales of precision fp8 are not known yet: take fp8.scaling=current, or a schedule "
                                  "with a flush (1f1b)",
                                  planned.decision.schedule));
  if (delaysWeights) {
    planned.splitWarnings.push_back(
        "schedule " + planned.decision.schedule +
        " takes gradients at the weights before the last update, W(t+1) = W(t) - lr g(W(t-1)): "
        "losses differ from those of synchronous training");
  }
  // The search knows attention by its products, and prices what a GPU's library makes of them (Device::fusedAttention).
  bool byLibrary = forCode && recipe::allowsLibraryAttention(request.recipe) &&
                   !planner::computeCapability(request.cluster.device.kind).empty();
  planned.built = {planned.decision.microbatches,       blocks, staged, delaysWeights, byLibrary,
                   planned.decision.mesh.axisSize("tp")};
  if (forCode && planned.isRebuilt())
    CLEAVE_RETURN_IF_ERROR(rebuild(request, nullptr, planned.built, planned.pipeline));
  if (planned.decision.microbatches > 1) {
    planned.samplesMeetAt = planned.problem.samplesMeetAt();
    if (planned.samplesMeetAt.empty()) planned.samplesMeetAt = planned.pipeline->lossMeetsAt(); // as it is rebuilt
  }
  if (!planned.samplesMeetAt.empty()) {
    planned.splitWarnings.push_back(
        "samples of a batch can meet at '" + planned.samplesMeetAt + "', with " +
        std::to_string(planned.decision.microbatches) +
        " microbatches only those of the same one: losses and gradients differ from those of "
        "the whole batch (--microbatches 1), as gradient accumulation does elsewhere");
  }
  return Status::ok();
}

// `batch`: where the model's samples lie, once that is known.
Result<PlannedStep> chooseSplit(std::shared_ptr<const CompileRequest> of, bool forCode, Batch &batch) {
  const CompileRequest &request = *of;
  auto constraints = planner::parseConstraints(request.split, request.cluster);
  if (!constraints) return constraints.status();
  CLEAVE_RETURN_IF_ERROR(checkPrecision(request));
  PlannedStep planned;
  planned.request = std::move(of);
  planned.pipeline = std::make_unique<Pipeline>(request);
  CLEAVE_RETURN_IF_ERROR(planned.pipeline->buildStep({}));
  batch = planned.pipeline->batchPlace();
  planned.samples = batch.samples;
  planned.warnings = planned.pipeline->warnings();
  CLEAVE_RETURN_IF_ERROR(settleDoubts(request, forCode, planned));
  planned.notes = request.notes;
  planned.notes.insert(planned.notes.end(), planned.pipeline->notes().begin(), planned.pipeline->notes().end());
  if (request.recipe.precision == recipe::Precision::Tf32 && request.cluster.device.isCpu())
    planned.warnings.push_back("precision tf32 is fp32 on a CPU: only NVIDIA GPUs have it");
  for (const std::string &warning : planned.warnings) request.warn(warning);
  auto problem = planned.pipeline->problem(1);
  if (!problem) return problem.status();
  planned.problem = std::move(*problem);
  if (!request.problemFile.empty())
    CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(planned.problem.text(), request.problemFile));
  planned.noSmallerBatch = obstacleToSmallerBatch(request.recipe, planned.problem, request.mayHaveEmptyPlaces());
  for (const auto &[name, input] : stepInputs(planned.pipeline->step()))
    if (planned.noSmallerBatch.empty() && input.isLabel && input.range.ignored.size() != 1)
      planned.noSmallerBatch = fmt::format("the labels '{}' have no number that all of their losses ignore", name);
  if (request.recipe.data && request.recipe.data->lastBatch == recipe::LastBatch::Smaller &&
      !planned.noSmallerBatch.empty())
    return inputError(fmt::format("{}: data.last_batch cannot be smaller: {}; take repeat or drop",
                                  request.recipe.at("data.last_batch"), planned.noSmallerBatch));
  planned.cluster = planner::usedBy(planned.problem, request.cluster);
  if (std::string left = annotations::pinResults(request.results, planned.problem, *constraints); !left.empty())
    planned.notes.push_back(left);
  auto decision = planner::solve(planned.problem, planned.cluster, *constraints, request.search);
  if (!decision) return decision.status();
  planned.decision = std::move(*decision);
  CLEAVE_RETURN_IF_ERROR(buildSplit(planned, forCode));
  return planned;
}

// Has it failed because a size does not divide? By the error's words, which say so.
bool isIndivisible(const Result<PlannedStep> &step) {
  return !step && step.status().message().find("divide") != std::string::npos;
}

// A batch that does not divide over the devices gets places that stay empty where that makes the faster step: their
// labels are ones that the losses ignore.
Result<PlannedStep> chooseBatch(const CompileRequest &request, bool forCode) {
  auto constraints = planner::parseConstraints(request.split, request.cluster);
  if (!constraints) return constraints.status();
  Batch batch;
  batch.samples = 0;
  Result<PlannedStep> asIs = chooseSplit(std::make_shared<const CompileRequest>(request), forCode, batch);
  const int64_t samples = batch.samples, places = dividingBatch(samples, *constraints, request.cluster);
  if (places == samples) return asIs;
  const bool batchFails = isIndivisible(asIs);
  auto withoutPlaces = [&](const std::string &why) -> Result<PlannedStep> {
    if (!batchFails) return std::move(asIs);
    return Status(ErrorKind(asIs.status().exitStatus()),
                  fmt::format("{}; no place of a larger batch can stay empty: {}", asIs.status().message(), why));
  };
  if (places >= 2 * samples) // half would wait
    return withoutPlaces(fmt::format("{} samples are not more than the {} empty places", samples, places - samples));
  if (!request.recipe.ramp.empty()) return withoutPlaces("the recipe has a ramp");
  if (asIs && !obstacleToSmallerBatch(request.recipe, asIs->problem, /*emptyPlaces=*/true).empty()) return asIs;
  CompileRequest larger = askedAgain(request, "places");
  larger.emptyPlaces = true;
  larger.recipe.dims[batch.symbol.empty() ? "batch" : batch.symbol] = places;
  Result<PlannedStep> filled = chooseSplit(std::make_shared<const CompileRequest>(larger), forCode, batch);
  const bool isFaster = filled && filled->noSmallerBatch.empty() &&
                        (!asIs || filled->decision.predicted.stepSeconds < asIs->decision.predicted.stepSeconds);
  if (!asIs && filled && !filled->noSmallerBatch.empty()) return withoutPlaces(filled->noSmallerBatch);
  if (batchFails && !filled) return filled.status();
  if (!isFaster) return asIs;
  if (!request.problemFile.empty())
    CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(filled->problem.text(), request.problemFile));
  filled->samples = samples;
  filled->notes.push_back(fmt::format("the batch of {} samples has {} places, of which {} {} empty, {:.0f} % of a "
                                      "step: places divide over devices and microbatches",
                                      samples, places, places - samples, places - samples == 1 ? "stays" : "stay",
                                      100.0 * double(places - samples) / double(places)));
  return filled;
}

// Whether a parameter's entries that are zero and get no gradient stay zero, and no other entry's update sees them.
bool goesElementByElement(const recipe::Optimizer &optimizer) {
  using enum recipe::OptimizerKind;
  auto isOne = [](recipe::OptimizerKind kind) { return llvm::is_contained({Sgd, Adam, AdamW, Adagrad, Lion}, kind); };
  return isOne(optimizer.kind) && optimizer.eps > 0 && optimizer.stateType != recipe::StateType::Fp8 &&
         llvm::all_of(optimizer.groups, [&](const recipe::OptimizerGroup &group) {
           return (!group.kind || isOne(*group.kind)) && group.eps.value_or(1) > 0;
         });
}

// Sizes that divide over the axes of the mesh asked for; they may nearly double. Where the search chooses the axes, tp
// and ep are within a node, and padding is to cost little. A preset is laid as published.
padding::PadDimensionsOptions paddingFor(const CompileRequest &request, const planner::Constraints &asked) {
  if (!request.split.like.empty()) return {};
  const int64_t given = asked.dp.value_or(1) * asked.fsdp.value_or(1) * asked.pp.value_or(1);
  if (!asked.tp && !asked.ep && !asked.cp)
    return {.multiple = given < request.cluster.numDevices() ? request.cluster.devicesPerNode : 1, .most = 0.05};
  const int64_t halves = asked.cp.value_or(1) > 1 ? 2 * *asked.cp : 1; // a causal sequence is split in pairs of blocks
  return {.multiple = asked.tp.value_or(1) * asked.ep.value_or(1), .multipleOfInputs = halves, .most = 0.99};
}

// Several shapes share their parameters, fp8 scales by the largest entry, some optimizers see whole tensors.
bool mayBePadded(const recipe::Recipe &recipe) {
  return recipe.ramp.empty() && !(recipe.data && !recipe.data->lengths.empty()) &&
         recipe.precision != recipe::Precision::Fp8 && goesElementByElement(recipe.optimizer);
}

bool hasSizeToPad(const planner::Problem &problem, const padding::PadDimensionsOptions &padding) {
  return llvm::any_of(problem.tensors, [&](const planner::Tensor &tensor) {
    const bool isWeight = tensor.kind == planner::TensorKind::Parameter;
    const int64_t multiple = isWeight ? padding.multiple : padding.multipleOfInputs;
    return llvm::any_of(tensor.dims,
                        [&](int64_t size) { return padding::paddedSize(size, multiple, padding.most) != size; });
  });
}

} // namespace

CompileRequest askedAgain(const CompileRequest &request, const std::string &folder) {
  CompileRequest again = request;
  again.warn = [](const std::string &) {};
  again.problemFile.clear();
  if (!again.irFolder.empty()) again.irFolder += "/" + folder;
  return again;
}

report::Report PlannedStep::report(const CompileRequest &given) const {
  report::Report made = report::makeReport(problem, cluster, decision);
  made.given = {given.split, given.search.moves, given.annotations};
  made.notes.insert(made.notes.begin(), splitWarnings.begin(), splitWarnings.end());
  made.notes.insert(made.notes.begin(), warnings.begin(), warnings.end());
  made.notes.insert(made.notes.begin(), notes.begin(), notes.end());
  made.import = imported;
  made.batch = samples;
  for (const import_::TensorRole &one : pipeline->tensors())
    made.tensors.push_back({one.name, one.shape, one.role, one.why});
  const mlir::SymbolTable symbols(pipeline->step());
  for (report::ParameterLayout &row : made.parameters)
    if (auto param = symbols.lookup<onnx::ParamOp>(row.name))
      if (auto group = onnx::groupAttr.of(param)) row.group = group->str();
  return made;
}

Status rebuild(const CompileRequest &request, Pipeline *beside, Pipeline::StepOptions options,
               std::unique_ptr<Pipeline> &built) {
  const std::map<std::string, StepInput> ofBatch = stepInputs(built->step());
  options.lossOfBatch = built->lossTerms();
  options.batch = built->batchPlace();
  built = beside ? std::make_unique<Pipeline>(request, *beside) : std::make_unique<Pipeline>(request);
  CLEAVE_RETURN_IF_ERROR(built->buildStep(options));
  return checkMicrobatchInputs(ofBatch, stepInputs(built->step()), options.microbatches);
}

// Padded sizes where that makes the faster step.
Result<PlannedStep> planStep(const CompileRequest &request, bool forCode) {
  Result<PlannedStep> asIs = chooseBatch(request, forCode);
  CLEAVE_ASSIGN_OR_RETURN(planner::Constraints constraints, planner::parseConstraints(request.split, request.cluster));
  const padding::PadDimensionsOptions padding = paddingFor(request, constraints);
  if ((padding.multiple < 2 && padding.multipleOfInputs < 2) || !mayBePadded(request.recipe)) return asIs;
  if (asIs ? !hasSizeToPad(asIs->problem, padding) : !isIndivisible(asIs)) return asIs;
  CompileRequest larger = askedAgain(request, "padded");
  larger.padding = padding;
  Result<PlannedStep> padded = chooseBatch(larger, forCode);
  if (!padded || !onnx::paddingAttr.isOn(padded->pipeline->step())) return asIs;
  constexpr double worthwhile = 0.97; // of a step: sizes that are the model's own are easier to follow
  if (asIs && padded->decision.predicted.stepSeconds > worthwhile * asIs->decision.predicted.stepSeconds) return asIs;
  if (!request.problemFile.empty())
    CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(padded->problem.text(), request.problemFile));
  return padded;
}

Result<UnpaddedStep> unpaddedStep(const PlannedStep &planned) {
  CLEAVE_ASSIGN_OR_RETURN(std::string reference, planned.pipeline->referenceGraph());
  if (!onnx::paddingAttr.isOn(planned.pipeline->step()))
    return UnpaddedStep{std::move(reference), "", stepInputs(planned.pipeline->step())};
  CompileRequest plain = askedAgain(*planned.request, "unpadded");
  plain.padding = {};
  auto pipeline = std::make_unique<Pipeline>(plain);
  CLEAVE_RETURN_IF_ERROR(pipeline->buildStep({}));
  if (planned.isRebuilt()) CLEAVE_RETURN_IF_ERROR(rebuild(plain, nullptr, planned.built, pipeline));
  CLEAVE_ASSIGN_OR_RETURN(std::string unpadded, pipeline->referenceGraph());
  return UnpaddedStep{std::move(unpadded), std::move(reference), stepInputs(pipeline->step())};
}

Result<PlannedStep> splitOtherwise(const SearchedStep &searched, const planner::Decision &decision) {
  PlannedStep planned;
  static_cast<SearchedStep &>(planned) = searched;
  planned.request = std::make_shared<const CompileRequest>(askedAgain(*searched.request, decision.row.name));
  planned.decision = decision;
  planned.pipeline = std::make_unique<Pipeline>(*planned.request);
  CLEAVE_RETURN_IF_ERROR(planned.pipeline->buildStep({}));
  CLEAVE_RETURN_IF_ERROR(buildSplit(planned, /*forCode=*/true));
  return planned;
}

} // namespace cleave
