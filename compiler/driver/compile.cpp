#include "compiler/driver/compile.h"
#include "compiler/annotations/annotations.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/kernels/shared_object.h"
#include "compiler/driver/pipeline.h"
#include "compiler/import/import.h"
#include "compiler/normalize/normalize.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/recipe/glob.h"
#include "compiler/recipe/schedule.h"
#include "compiler/schedule/schedule.h"
#include "compiler/specialize/microbatch_inputs.h"
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/printable.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/plan/weight_files.h"
#include "runtime/train/data/lengths.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;
namespace cleave {
namespace {

// The step as built for the planner, and what the search made of it.
struct Planned {
  std::shared_ptr<const CompileRequest> request; // whose step it is: with as many places in its batch
  std::unique_ptr<Pipeline> pipeline;            // holds the step at the decision's microbatch
  planner::Problem problem;
  planner::Cluster cluster; // as this step uses it
  planner::Decision decision;
  std::vector<std::string> notes, warnings;
  std::string imported = {};        // what the import rests on
  std::string samplesMeetAt = {};   // of several microbatches: Problem::samplesMeetAt
  std::string noSmallerBatch = {};  // plan::Training::no_smaller_batch
  int64_t samples = 1;              // of a step; the step's batch may have more places
  Pipeline::StepOptions built = {}; // of the step that code is made of
  // It is not the step of the whole batch as the model has it.
  bool isRebuilt() const {
    return built.microbatches > 1 || built.staged || built.sequenceBlocks > 1 || built.libraryAttention;
  }

  report::Report report(const CompileRequest &given) const {
    report::Report made = report::makeReport(problem, cluster, decision);
    made.given = {given.split, given.search.moves, given.annotations};
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
};

// With what the model says of its training and of its split.
Result<CompileRequest> completed(CompileRequest request) {
  if (!request.recipeIsWhole)
    CLEAVE_RETURN_IF_ERROR(import_::completeRecipe(request.model, request.recipe, request.notes));
  if (request.annotations)
    CLEAVE_RETURN_IF_ERROR(annotations::readSplit(request.model, request.recipe, request.cluster, request.split,
                                                  request.results, request.notes));
  return request;
}

// The step of the whole batch, which is built, becomes that of a microbatch, as the options want it.
Status rebuild(const CompileRequest &request, Pipeline *beside, Pipeline::StepOptions options,
               std::unique_ptr<Pipeline> &built) {
  const std::map<std::string, StepInput> ofBatch = stepInputs(built->step());
  options.lossOfBatch = built->lossTerms();
  options.batch = built->batchPlace();
  built = beside ? std::make_unique<Pipeline>(request, *beside) : std::make_unique<Pipeline>(request);
  CLEAVE_RETURN_IF_ERROR(built->buildStep(options));
  return checkMicrobatchInputs(ofBatch, stepInputs(built->step()), options.microbatches);
}

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
Status settleDoubts(const CompileRequest &request, bool forCode, Planned &planned) {
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

// Builds the step with the whole batch at once and searches; `forCode`: builds it again if the search cut the batch.
// `batch`: where the model's samples lie, once that is known.
Result<Planned> chooseSplit(std::shared_ptr<const CompileRequest> of, bool forCode, Batch &batch) {
  const CompileRequest &request = *of;
  auto constraints = planner::parseConstraints(request.split, request.cluster);
  if (!constraints) return constraints.status();
  CLEAVE_RETURN_IF_ERROR(checkPrecision(request));
  Planned planned;
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
    planned.warnings.push_back("schedule " + planned.decision.schedule +
                               " takes gradients at the weights before the last update, W(t+1) = W(t) - lr g(W(t-1)): "
                               "losses differ from those of synchronous training");
    request.warn(planned.warnings.back());
  }
  // The search knows attention by its products, and prices what a GPU's library makes of them (Device::fusedAttention).
  bool byLibrary = forCode && blocks == 1 && recipe::allowsLibraryAttention(request.recipe) &&
                   !planner::computeCapability(request.cluster.device.kind).empty();
  planned.built = {planned.decision.microbatches, blocks, staged, delaysWeights, byLibrary};
  if (forCode && planned.isRebuilt())
    CLEAVE_RETURN_IF_ERROR(rebuild(request, nullptr, planned.built, planned.pipeline));
  if (planned.decision.microbatches > 1) {
    planned.samplesMeetAt = planned.problem.samplesMeetAt();
    if (planned.samplesMeetAt.empty()) planned.samplesMeetAt = planned.pipeline->lossMeetsAt(); // as it is rebuilt
  }
  if (!planned.samplesMeetAt.empty()) {
    planned.warnings.push_back("samples of a batch can meet at '" + planned.samplesMeetAt + "', with " +
                               std::to_string(planned.decision.microbatches) +
                               " microbatches only those of the same one: losses and gradients differ from those of "
                               "the whole batch (--microbatches 1), as gradient accumulation does elsewhere");
    request.warn(planned.warnings.back());
  }
  return planned;
}

// A batch that does not divide over the devices gets places that stay empty where that makes the faster step: their
// labels are ones that the losses ignore.
Result<Planned> chooseBatch(const CompileRequest &request, bool forCode) {
  auto constraints = planner::parseConstraints(request.split, request.cluster);
  if (!constraints) return constraints.status();
  Batch batch;
  batch.samples = 0;
  Result<Planned> asIs = chooseSplit(std::make_shared<const CompileRequest>(request), forCode, batch);
  const int64_t samples = batch.samples, places = dividingBatch(samples, *constraints, request.cluster);
  if (places == samples) return asIs;
  const bool batchFails = !asIs && asIs.status().message().find("divide") != std::string::npos;
  auto withoutPlaces = [&](const std::string &why) -> Result<Planned> {
    if (!batchFails) return std::move(asIs);
    return Status(ErrorKind(asIs.status().exitStatus()),
                  fmt::format("{}; no place of a larger batch can stay empty: {}", asIs.status().message(), why));
  };
  if (places >= 2 * samples) // half would wait
    return withoutPlaces(fmt::format("{} samples are not more than the {} empty places", samples, places - samples));
  if (!request.recipe.ramp.empty()) return withoutPlaces("the recipe has a ramp");
  if (asIs && !obstacleToSmallerBatch(request.recipe, asIs->problem, /*emptyPlaces=*/true).empty()) return asIs;
  CompileRequest larger = request;
  larger.emptyPlaces = true;
  larger.warn = [](const std::string &) {}; // it was told
  larger.problemFile.clear();               // and written
  if (!larger.irFolder.empty()) larger.irFolder += "/places";
  larger.recipe.dims[batch.symbol.empty() ? "batch" : batch.symbol] = places;
  Result<Planned> filled = chooseSplit(std::make_shared<const CompileRequest>(larger), forCode, batch);
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

// Sizes that divide over the axes asked for may nearly double; over those of a free search, which are those of a node,
// they grow by little, so that a split that needs none of it loses little either.
padding::PadDimensionsOptions paddingFor(const planner::Constraints &asked, const planner::Cluster &cluster) {
  const int64_t halves = asked.cp.value_or(1) > 1 ? 2 * *asked.cp : 1; // a causal sequence is split in pairs of blocks
  const int64_t axes = asked.tp.value_or(1) * halves * asked.ep.value_or(1);
  if (axes > 1) return {.multiple = axes, .most = 0.99};
  return {.multiple = asked.tp && asked.ep ? 1 : cluster.devicesPerNode, .most = 0.03};
}

// Dimensions that do not divide over the devices get entries that count nothing where that makes the faster step.
Result<Planned> choose(const CompileRequest &request, bool forCode) {
  Result<Planned> asIs = chooseBatch(request, forCode);
  CLEAVE_ASSIGN_OR_RETURN(planner::Constraints constraints, planner::parseConstraints(request.split, request.cluster));
  const padding::PadDimensionsOptions padding = paddingFor(constraints, request.cluster);
  const recipe::Recipe &recipe = request.recipe;
  const bool hasOneShape = recipe.ramp.empty() && !(recipe.data && !recipe.data->lengths.empty());
  if (padding.multiple < 2 || !hasOneShape || recipe.precision == recipe::Precision::Fp8 ||
      !goesElementByElement(recipe.optimizer))
    return asIs;
  const bool mayDivide = asIs ? llvm::any_of(asIs->problem.tensors,
                                             [&](const planner::Tensor &tensor) {
                                               return llvm::any_of(tensor.dims, [&](int64_t size) {
                                                 return padding::paddedSize(size, padding) != size;
                                               });
                                             })
                              : asIs.status().message().find("divide") != std::string::npos;
  if (!mayDivide) return asIs;
  CompileRequest padded = request;
  padded.padding = padding;
  padded.warn = [](const std::string &) {}; // it was told
  padded.problemFile.clear();
  if (!padded.irFolder.empty()) padded.irFolder += "/padded";
  Result<Planned> filled = chooseBatch(padded, forCode);
  if (!filled || !onnx::paddingAttr.isOn(filled->pipeline->step())) return asIs;
  constexpr double worthwhile = 0.99; // of a step
  if (asIs && filled->decision.predicted.stepSeconds > worthwhile * asIs->decision.predicted.stepSeconds) return asIs;
  return filled;
}

// What the plan is compared with, and what its inputs may hold: of the step without padding.
struct UnpaddedStep {
  std::string reference;
  std::map<std::string, StepInput> inputs;
};
Result<UnpaddedStep> unpaddedStep(const Planned &planned) {
  auto of = [](Pipeline &pipeline) -> Result<UnpaddedStep> {
    CLEAVE_ASSIGN_OR_RETURN(std::string reference, pipeline.referenceGraph());
    return UnpaddedStep{std::move(reference), stepInputs(pipeline.step())};
  };
  if (planned.request->padding.multiple < 2) return of(*planned.pipeline);
  CompileRequest plain = *planned.request;
  plain.padding = {};
  plain.irFolder.clear();
  auto pipeline = std::make_unique<Pipeline>(plain);
  CLEAVE_RETURN_IF_ERROR(pipeline->buildStep({}));
  if (planned.isRebuilt()) CLEAVE_RETURN_IF_ERROR(rebuild(plain, nullptr, planned.built, pipeline));
  return of(*pipeline);
}

double flopsOf(const planner::Problem &problem) {
  double flops = 0;
  for (const planner::Node &node : problem.nodes) flops += node.flops + node.backwardFlops;
  return flops;
}

// Samples that are sequences count tokens: integer inputs of one dimension beside that of samples.
int64_t tokensPerSample(const plan::Plan &plan, const std::string &suffix) {
  int64_t tokens = 0;
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::InputBinding &input : fragment.inputs())
        if (runtime::suffixIn(fragment.name()) == suffix && !input.label() && !input.without_samples() &&
            input.buffer().dtype() == plan::I64 && input.global_shape_size() == 2)
          tokens = std::max(tokens, input.global_shape(1 - static_cast<int>(input.sample_dim())));
  return tokens;
}

void fillTraining(const CompileRequest &request, const Planned &planned, plan::Plan &plan) {
  plan::Training &training = *plan.mutable_training();
  training.set_global_batch(planned.samples);
  training.set_microbatches(planned.decision.microbatches);
  training.set_samples_meet_at(planned.samplesMeetAt);
  training.set_no_smaller_batch(planned.noSmallerBatch);
  *training.mutable_lr() = recipe::planned(request.recipe.optimizer.lr);
  training.set_seed(request.recipe.seed);
  training.set_data_yaml(request.recipe.dataYaml());
  training.set_eval_yaml(request.recipe.evalYaml());
  training.set_flops_per_step(flopsOf(planned.problem));
  training.set_tokens_per_sample(tokensPerSample(plan, ""));
  training.set_steps_before(planned.pipeline->stepsBefore());
  std::string kinds;
  for (const recipe::Loss &loss : request.recipe.losses)
    kinds += (kinds.empty() ? "" : " + ") + recipe::toString(loss.kind);
  training.set_loss_kind(kinds);
  if (request.recipe.sumsLosses())
    for (const recipe::Loss &loss : request.recipe.losses) {
      plan::LossPart &part = *training.add_losses();
      part.set_name(loss.name);
      part.set_scale(loss.scale);
    }
}

// Of one shape's fragments: those that end with its suffix.
void setRanges(const std::map<std::string, StepInput> &inputs, const std::string &suffix, plan::Plan &plan) {
  for (plan::Program &program : *plan.mutable_programs())
    for (plan::Fragment &fragment : *program.mutable_fragments())
      if (runtime::suffixIn(fragment.name()) == suffix)
        for (plan::InputBinding &input : *fragment.mutable_inputs())
          if (auto found = inputs.find(input.name()); found != inputs.end()) {
            const IndexRange &range = found->second.range;
            input.set_upper_bound(range.bound);
            if (range.least) input.set_least(*range.least);
            input.mutable_ignored()->Assign(range.ignored.begin(), range.ignored.end());
          }
}

// A shape of the step beside the last.
struct OtherStep {
  plan::StepShape shape;
  std::map<std::string, StepInput> inputs;
};

// The step with other sizes of dimensions, split as the last one, into its module. `what`: of the shape, for messages.
Result<OtherStep> addStep(CompileRequest request, const std::map<std::string, int64_t> &dims, plan::StepShape shape,
                          const std::string &what, const Planned &planned) {
  request.warn = [](const std::string &) {}; // the last has told it
  for (const auto &[dim, size] : dims) request.recipe.dims[dim] = size;
  const std::string suffix = runtime::suffixOf(shape);
  if (!request.irFolder.empty()) request.irFolder += "/step" + suffix;
  auto made = [&]() -> Result<OtherStep> {
    OtherStep step{std::move(shape), {}};
    auto pipeline = std::make_unique<Pipeline>(request, *planned.pipeline);
    CLEAVE_RETURN_IF_ERROR(pipeline->buildStep({}));
    auto problem = pipeline->problem(1);
    if (!problem) return problem.status();
    const bool isFilled = planned.samples < planned.pipeline->batch();
    step.shape.set_global_batch(isFilled ? planned.samples : pipeline->batch());
    if (planned.isRebuilt()) CLEAVE_RETURN_IF_ERROR(rebuild(request, planned.pipeline.get(), planned.built, pipeline));
    auto reference = pipeline->referenceGraph();
    if (!reference) return reference.status();
    step.shape.set_flops_per_step(flopsOf(*problem));
    step.shape.set_reference_graph(std::move(*reference));
    step.inputs = stepInputs(pipeline->step());
    CLEAVE_RETURN_IF_ERROR(pipeline->partition(planned.decision, /*ofAnotherSize=*/true));
    CLEAVE_RETURN_IF_ERROR(planned.pipeline->add(*pipeline, suffix));
    return step;
  }();
  if (!made) return Status(ErrorKind::Input, fmt::format("{}: {}", what, made.status().message()));
  return made;
}

// Samples that share a row see each other, unless an input tells them apart.
void warnOfPacking(const CompileRequest &request, const plan::Plan &plan, Planned &planned) {
  if (!request.recipe.data || !request.recipe.data->pack) return;
  const std::vector<int64_t> &lengths = request.recipe.data->lengths;
  auto fields = runtime::fieldsOf(plan);
  auto settings = runtime::parseDataSettings(request.recipe.dataYaml());
  if (!fields || !settings) return; // the run says why
  if (lengths.size() == 1) runtime::markLength(fields->back(), lengths.back());
  for (const runtime::Field &field : fields->back())
    if (const runtime::Content content = runtime::contentOf(field, *settings);
        content == runtime::Content::Mask || content == runtime::Content::Segments)
      return;
  planned.warnings.push_back(
      fmt::format("data.pack: samples that share a row see each other, for the model has no input "
                  "that tells them apart: a mask of [{0}, {0}] (data.fill) or segment_ids of [{0}]",
                  lengths.back()));
  request.warn(planned.warnings.back());
}

// The steps of all lengths but the longest, or of the stages of a ramp.
Result<std::vector<OtherStep>> addSteps(const CompileRequest &request, Planned &planned) {
  const recipe::Recipe &recipe = request.recipe;
  std::vector<OtherStep> added;
  const bool hasLengths = recipe.data && recipe.data->lengths.size() > 1;
  if (!hasLengths && recipe.ramp.empty()) return added;
  if (planned.built.delayWeights)
    return inputError(fmt::format("{} and schedule {}: its steps run into each other, and "
                                  "each would need the {} of the next; take another --schedule",
                                  hasLengths ? "several lengths of sequences" : "a ramp", planned.decision.schedule,
                                  hasLengths ? "length" : "batch"));
  auto add = [&](const std::map<std::string, int64_t> &dims, const plan::StepShape &shape, const std::string &what) {
    Result<OtherStep> step = addStep(request, dims, shape, what, planned);
    if (step) added.push_back(std::move(*step));
    return step ? Status::ok() : step.status();
  };
  for (const recipe::RampStage &stage : recipe.ramp) {
    plan::StepShape shape;
    shape.set_until(stage.until);
    CLEAVE_RETURN_IF_ERROR(add(stage.dims, shape, fmt::format("{}: ramp, until step {}", stage.where, stage.until)));
  }
  if (!hasLengths) {
    planned.notes.push_back(
        "a step for each stage of the ramp, split as the last one: with parameters, state and scratch "
        "memory in common");
    return added;
  }
  const std::vector<int64_t> &lengths = recipe.data->lengths;
  for (size_t i = 0; i + 1 < lengths.size(); ++i) {
    plan::StepShape shape;
    shape.set_length(lengths[i]);
    std::map<std::string, int64_t> dims;
    for (const std::string &dim : recipe.data->lengthDims) dims[dim] = lengths[i];
    CLEAVE_RETURN_IF_ERROR(add(dims, shape, fmt::format("length {}", lengths[i])));
  }
  planned.notes.push_back(fmt::format("a step for each of the lengths {}, split as that of {}: with parameters, state "
                                      "and scratch memory in common",
                                      fmt::join(lengths, ", "), lengths.back()));
  return added;
}

// Those of the steps, and the last.
void fillShapes(const CompileRequest &request, std::vector<OtherStep> &steps, plan::Plan &plan) {
  for (OtherStep &step : steps) {
    step.shape.set_tokens_per_sample(tokensPerSample(plan, runtime::suffixOf(step.shape)));
    *plan.add_shapes() = step.shape;
  }
  if (!steps.empty())
    plan.add_shapes()->set_length(request.recipe.ramp.empty() ? request.recipe.data->lengths.back() : 0);
}

// A folder ends in '/', so that it is known for one where it is missing.
std::string absolutePath(const std::string &model) {
  std::filesystem::path path = std::filesystem::absolute(model);
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) path /= "";
  return path.lexically_normal().string();
}

} // namespace

Result<report::Report> estimate(const CompileRequest &given) {
  const Result<CompileRequest> whole = completed(given);
  if (!whole) return whole.status();
  const CompileRequest &request = *whole;
  auto planned = choose(request, false);
  if (!planned) return planned.status();
  return planned->report(given);
}

Result<Compiled> compile(const CompileRequest &given) {
  const Result<CompileRequest> whole = completed(given);
  if (!whole) return whole.status();
  const CompileRequest &request = *whole;
  std::vector<std::string> paths = {absolutePath(request.model), request.recipe.init.checkpoint};
  if (request.recipe.data) request.recipe.data->addPaths(paths);
  for (const std::string &path : paths)
    if (!runtime::isUtf8(path))
      return inputError(path + ": a plan holds paths as UTF-8 text, and this one is not: rename it");
  const planner::Device &device = request.cluster.device;
  bool isGpu = !planner::computeCapability(device.kind).empty();
  if (request.emulate && !isGpu)
    return Status(ErrorKind::Usage, "--emulate is for plans of GPUs, and " + device.kind + " is none that is known");
  if (!isGpu && !device.isCpu())
    request.warn("device kind '" + device.kind + "' is no GPU that is known: the plan has code for this machine's CPU");
  if (auto target = codegen::resolveTarget(device.cpu); !target)
    return Status(ErrorKind::Usage, llvm::toString(target.takeError()));
  auto planned = choose(request, true);
  if (!planned) return planned.status();
  CLEAVE_ASSIGN_OR_RETURN(const UnpaddedStep unpadded, unpaddedStep(*planned));
  CLEAVE_RETURN_IF_ERROR(planned->pipeline->partition(planned->decision));
  auto others = addSteps(*planned->request, *planned);
  if (!others) return others.status();
  const size_t known = planned->pipeline->warnings().size();
  auto generated = planned->pipeline->generate(planned->decision);
  if (!generated) return generated.status();
  for (size_t i = known; i < planned->pipeline->warnings().size(); ++i) {
    planned->warnings.push_back(planned->pipeline->warnings()[i]);
    request.warn(planned->warnings.back());
  }
  fillShapes(request, *others, *generated);
  warnOfPacking(request, *generated, *planned);
  Compiled compiled{std::move(*generated), planned->report(given)};
  plan::Plan &plan = compiled.plan;
  plan.set_producer("cleave " CLEAVE_VERSION);
  plan.set_reference_graph(unpadded.reference);
  plan.set_code_digest(runtime::codeDigest(plan));
  plan.set_recipe_yaml(request.recipe.resolved());
  plan.set_cluster_yaml(planned->cluster.yaml());
  plan.set_device_memory_bytes(static_cast<int64_t>(request.cluster.device.memoryBytes));
  plan.set_model_path(absolutePath(request.model));
  plan.set_model_digest(planned->pipeline->modelDigest());
  plan.set_checkpoint_path(planned->pipeline->checkpointFolder());
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> missing, runtime::recordWeightFiles(plan, request.checkWeights));
  setRanges(unpadded.inputs, "", plan);
  for (const OtherStep &step : *others) setRanges(step.inputs, runtime::suffixOf(step.shape), plan);
  fillTraining(request, *planned, plan);
  report::fillFromPlan(compiled.report, plan, planned->cluster);
  if (!missing.empty())
    compiled.report.notes.push_back(
        fmt::format("the model's weights are not here: {}. `cleave run` needs them", fmt::join(missing, ", ")));
  plan.set_report_json(report::renderJson(compiled.report));
  return compiled;
}

Result<import_::Inspection> inspect(const std::string &model, const std::map<std::string, int64_t> &dims) {
  CompileRequest request;
  request.model = model;
  request.recipe.dims = dims;
  std::vector<std::string> notes;
  auto training = import_::trainingOf(model);
  if (!training) return training.status();
  if (*training) {
    if ((*training)->fault.empty()) {
      request.recipe.trainable = recipe::exactly((*training)->trained);
      request.recipe.ties = recipe::Ties::AsExported;
      request.recipe.losses.front().kind = recipe::LossKind::Output;
      request.recipe.losses.front().outputs = {(*training)->loss};
    }
    notes = recipe::whatItSays(**training);
  }
  Pipeline pipeline(request);
  auto seen = pipeline.inspect();
  if (seen) seen->notes.insert(seen->notes.begin(), notes.begin(), notes.end());
  return seen;
}

std::string operatorTable() {
  MLIRContext context;
  context.loadDialect<onnx::OnnxDialect>();
  std::string table = "operator            shape  gradient  factors  cost  lowering\n";
  for (RegisteredOperationName op : context.getRegisteredOperations()) {
    if (op.getDialectNamespace() != "onnx" || !op.hasInterface<onnx::LoweringOpInterface>()) continue;
    auto cell = [](bool has, int width) {
      std::string text = has ? "yes" : "-";
      return text + std::string(size_t(width) - text.size(), ' ');
    };
    std::string name = op.getStringRef().drop_front(5).str();
    table += name + std::string(20 - std::min<size_t>(name.size(), 19), ' ') +
             cell(op.hasInterface<InferTypeOpInterface>(), 7) + cell(op.hasInterface<onnx::GradientOpInterface>(), 10) +
             cell(op.hasInterface<onnx::FactorRuleOpInterface>(), 9) +
             cell(op.hasInterface<onnx::CostOpInterface>(), 6) +
             cell(op.hasInterface<onnx::LoweringOpInterface>(), 0 + 3) + "\n";
  }
  return table;
}

} // namespace cleave
