#include "compiler/driver/compile.h"
#include "compiler/annotations/annotations.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/kernels/shared_object.h"
#include "compiler/driver/planned_step.h"
#include "compiler/import/import.h"
#include "compiler/normalize/normalize.h"
#include "compiler/planner/search/driver/size_text.h"
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

// With what the model says of its training and of its split.
Result<CompileRequest> completed(CompileRequest request) {
  if (!request.recipeIsWhole)
    CLEAVE_RETURN_IF_ERROR(import_::completeRecipe(request.model, request.recipe, request.notes));
  if (request.annotations)
    CLEAVE_RETURN_IF_ERROR(annotations::readSplit(request.model, request.recipe, request.cluster, request.split,
                                                  request.results, request.notes));
  return request;
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

void fillTraining(const CompileRequest &request, const PlannedStep &planned, plan::Plan &plan) {
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
Result<OtherStep> addStep(const CompileRequest &last, const std::map<std::string, int64_t> &dims, plan::StepShape shape,
                          const std::string &what, const PlannedStep &planned) {
  const std::string suffix = runtime::suffixOf(shape);
  CompileRequest request = askedAgain(last, "step" + suffix);
  for (const auto &[dim, size] : dims) request.recipe.dims[dim] = size;
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
void warnOfPacking(const CompileRequest &request, const plan::Plan &plan, PlannedStep &planned) {
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
  planned.splitWarnings.push_back(
      fmt::format("data.pack: samples that share a row see each other, for the model has no input "
                  "that tells them apart: a mask of [{0}, {0}] (data.fill) or segment_ids of [{0}]",
                  lengths.back()));
}

// The steps of all lengths but the longest, or of the stages of a ramp.
Result<std::vector<OtherStep>> addSteps(const CompileRequest &request, PlannedStep &planned) {
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

// What no plan can be made of, whatever its split.
Status checkRequest(const CompileRequest &request) {
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
  return Status::ok();
}

// Code for the split. `given`: the request as it was asked for.
Result<Compiled> generate(const CompileRequest &request, const CompileRequest &given, PlannedStep &planned) {
  CLEAVE_ASSIGN_OR_RETURN(const UnpaddedStep unpadded, unpaddedStep(planned));
  CLEAVE_RETURN_IF_ERROR(planned.pipeline->partition(planned.decision));
  auto others = addSteps(*planned.request, planned);
  if (!others) return others.status();
  const size_t known = planned.pipeline->warnings().size();
  auto generated = planned.pipeline->generate(planned.decision);
  if (!generated) return generated.status();
  for (size_t i = known; i < planned.pipeline->warnings().size(); ++i)
    planned.splitWarnings.push_back(planned.pipeline->warnings()[i]);
  fillShapes(request, *others, *generated);
  warnOfPacking(request, *generated, planned);
  Compiled compiled{std::move(*generated), planned.report(given)};
  plan::Plan &plan = compiled.plan;
  plan.set_producer("cleave " CLEAVE_VERSION);
  plan.set_reference_graph(unpadded.reference);
  plan.set_padded_graph(unpadded.padded);
  plan.set_code_digest(runtime::codeDigest(plan));
  plan.set_recipe_yaml(request.recipe.resolved());
  plan.set_cluster_yaml(planned.cluster.yaml());
  plan.set_device_memory_bytes(static_cast<int64_t>(request.cluster.device.memoryBytes));
  plan.set_model_path(absolutePath(request.model));
  plan.set_model_digest(planned.pipeline->modelDigest());
  plan.set_checkpoint_path(planned.pipeline->checkpointFolder());
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> missing, runtime::recordWeightFiles(plan, request.checkWeights));
  setRanges(unpadded.inputs, "", plan);
  for (const OtherStep &step : *others) setRanges(step.inputs, runtime::suffixOf(step.shape), plan);
  fillTraining(request, planned, plan);
  report::fillFromPlan(compiled.report, plan, planned.cluster);
  if (!missing.empty())
    compiled.report.notes.push_back(
        fmt::format("the model's weights are not here: {}. `cleave run` needs them", fmt::join(missing, ", ")));
  plan.set_report_json(report::renderJson(compiled.report));
  return compiled;
}

} // namespace

Result<report::Report> estimate(const CompileRequest &given) {
  const Result<CompileRequest> whole = completed(given);
  if (!whole) return whole.status();
  const CompileRequest &request = *whole;
  auto planned = planStep(request, /*forCode=*/false);
  if (!planned) return planned.status();
  for (const std::string &warning : planned->splitWarnings) request.warn(warning);
  return planned->report(given);
}

Result<std::vector<Candidate>> compileBest(const CompileRequest &given) {
  const Result<CompileRequest> whole = completed(given);
  if (!whole) return whole.status();
  CLEAVE_RETURN_IF_ERROR(checkRequest(*whole));
  Result<PlannedStep> planned = planStep(*whole, /*forCode=*/true);
  if (!planned) return planned.status();
  const SearchedStep searched = *planned;
  const std::vector<planner::Decision> runnersUp = std::move(planned->decision.runnersUp);
  std::vector<Candidate> candidates;
  Status failed; // of the search's choice
  auto add = [&](const planner::Decision &decision, Result<PlannedStep> split) {
    Candidate &one = candidates.emplace_back(Candidate{{decision.row}, {}, {}});
    Result<Compiled> compiled = split ? generate(*whole, given, *split) : split.status();
    if (!compiled) {
      one.tried.split.whyNot = "not compiled: " + compiled.status().message();
      if (candidates.size() == 1) failed = compiled.status();
      return;
    }
    one.compiled = std::move(*compiled);
    one.warnings = std::move(split->splitWarnings);
    one.tried.simulatedSeconds = one.compiled->report.simulatedSeconds;
    one.tried.split.memoryBytes = one.compiled->report.predicted.memory.total();
    const std::string isShort = planner::whatIsShort(one.compiled->report.predicted.memory, searched.cluster);
    one.tried.split.fits = isShort.empty();
    if (!isShort.empty()) one.tried.split.whyNot = "its plan " + isShort;
  };
  const planner::Decision choice = planned->decision;
  add(choice, std::move(planned));
  for (const planner::Decision &decision : runnersUp) add(decision, splitOtherwise(searched, decision));
  if (std::ranges::none_of(candidates, [](const Candidate &one) { return one.compiled.has_value(); })) return failed;
  return candidates;
}

size_t fastest(const std::vector<Candidate> &candidates, double report::TriedSplit::*seconds) {
  const Candidate *best = nullptr, *compiled = nullptr;
  for (const Candidate &one : candidates) {
    if (!one.compiled) continue;
    if (!compiled) compiled = &one;
    if (!one.tried.split.whyNot.empty() || one.tried.*seconds <= 0) continue;
    if (!best || one.tried.*seconds < best->tried.*seconds) best = &one;
  }
  return size_t((best ? best : compiled) - candidates.data());
}

Compiled keep(const CompileRequest &request, std::vector<Candidate> candidates, size_t kept) {
  for (const std::string &warning : candidates[kept].warnings) request.warn(warning);
  Compiled compiled = std::move(*candidates[kept].compiled);
  if (request.search.refine <= 1 && candidates[kept].tried.measuredSeconds <= 0) return compiled;
  candidates[kept].tried.isChosen = true;
  for (Candidate &one : candidates) compiled.report.tried.push_back(std::move(one.tried));
  report::noteTriedSplits(compiled.report);
  compiled.plan.set_report_json(report::renderJson(compiled.report));
  return compiled;
}

Result<Compiled> compile(const CompileRequest &request) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, compileBest(request));
  const size_t kept = fastest(candidates, &report::TriedSplit::simulatedSeconds);
  return keep(request, std::move(candidates), kept);
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
