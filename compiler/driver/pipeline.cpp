#include "compiler/driver/pipeline.h"
#include "compiler/attention/attention.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/parameter_types.h"
#include "compiler/driver/pass_list.h"
#include "compiler/driver/repeated_blocks.h"
#include "compiler/import/import.h"
#include "compiler/import/inspect.h"
#include "compiler/layout/layout.h"
#include "compiler/normalize/normalize.h"
#include "compiler/partition/partition.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/specialize/batch_size_use.h"
#include "compiler/specialize/step_shapes.h"
#include "compiler/training/export_reference.h"
#include "compiler/training/parameter_names.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/onnx/sample_dim.h"
#include "dialects/pass_manager.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/atomic_file.h"
#include "runtime/train/state/snapshot.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

using namespace mlir;
namespace cleave {

Pipeline::Pipeline(const CompileRequest &request)
    : request(request), shared(std::make_shared<MLIRContext>(MLIRContext::Threading::DISABLED)), context(*shared) {
  context.loadDialect<onnx::OnnxDialect, func::FuncDialect, arith::ArithDialect>();
  static const bool areNamed = hasMlirFlags() && (registerPasses(), true); // once in a process
  (void)areNamed;
  collectDiagnostics();
}

Pipeline::Pipeline(const CompileRequest &request, Pipeline &whole)
    : request(request), shared(whole.shared), context(*shared) {
  collectDiagnostics();
}

Pipeline::~Pipeline() { context.getDiagEngine().eraseHandler(handler); }

// The handler that was registered last is asked first.
void Pipeline::collectDiagnostics() {
  handler = context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    std::string text = diagnostic.str();
    if (auto name = dyn_cast<NameLoc>(diagnostic.getLocation()); name && !StringRef(text).starts_with("node '"))
      if (!name.getName().empty()) text = ("node '" + name.getName().getValue() + "': ").str() + text;
    if (diagnostic.getSeverity() == DiagnosticSeverity::Warning)
      warned.push_back(std::move(text));
    else if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      diagnostics += (diagnostics.empty() ? "" : "\n") + text;
    return success();
  });
}

Status Pipeline::failure(const std::string &what) {
  std::string message = diagnostics.empty() ? what : diagnostics;
  diagnostics.clear();
  if (!StringRef(message).contains(request.model)) message = request.model + ": " + message;
  return inputError(message);
}

void Pipeline::dump(const char *phase, OpPassManager *passes) {
  if (request.irFolder.empty()) return;
  (void)llvm::sys::fs::create_directories(request.irFolder);
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (passes) {
    auto name = [](Pass &pass) { return pass.getArgument().str(); };
    stream << "// " << llvm::join(llvm::map_range(passes->getPasses(), name), ", ") << "\n";
  }
  module->print(stream, OpPrintingFlags().enableDebugInfo(false).elideLargeElementsAttrs(64));
  const Status written =
      runtime::writeFileAtomically(text, request.irFolder + "/" + std::to_string(++dumped) + "-" + phase + ".mlir");
  if (!written) request.warn(written.message());
}

Status Pipeline::run(const char *phase, llvm::function_ref<void(OpPassManager &)> build) {
  PassManager passes(&context);
  if (failed(configure(passes))) return failure("CLEAVE_MLIR");
  build(passes);
  bool failed_ = failed(passes.run(*module));
  dump(phase, &passes);
  return failed_ ? failure(std::string(phase) + " failed") : Status::ok();
}

Status Pipeline::readModel() {
  import_::ImportOptions options = import_::ImportOptions::of(request.recipe);
  if (!request.resumed.empty()) options.keepsFrozen = true; // the snapshot has other values than the model's file
  auto imported = import_::importModel(context, request.model, options);
  if (failed(imported)) return failure("the model cannot be read");
  module = std::move(*imported);
  return Status::ok();
}

// The outputs that the losses and the evaluation's metrics read; empty: not told, or all.
static llvm::StringSet<> readOutputs(const recipe::Recipe &recipe) {
  llvm::StringSet<> names;
  for (const recipe::Loss &loss : recipe.losses) {
    if (loss.outputs.empty()) return {};
    for (const std::string &output : loss.outputs) names.insert(output);
    if (loss.labels.output) names.insert(*loss.labels.output);
  }
  if (recipe.eval)
    for (const recipe::Metric &metric : recipe.eval->metrics)
      if (metric.output) names.insert(*metric.output);
  return names;
}

void Pipeline::keepLossOutput() {
  auto model = module->lookupSymbol<func::FuncOp>("model");
  Operation *end = model.front().getTerminator();
  const llvm::StringSet<> names = readOutputs(request.recipe);
  SmallVector<Value> kept;
  SmallVector<DictionaryAttr> attributes;
  for (unsigned index = 0; index < model.getNumResults(); ++index) {
    auto name = onnx::nameAttr.ofResult(model, index);
    if (!name || !names.contains(*name)) continue;
    kept.push_back(end->getOperand(index));
    attributes.push_back(model.getResultAttrDict(index));
  }
  if (!kept.empty()) {
    end->setOperands(kept);
    model.setType(FunctionType::get(&context, model.getArgumentTypes(), TypeRange(ValueRange(kept))));
    model.setAllResultAttrs(attributes);
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(model.front())))
    if (op.getNumResults() > 0 && op.use_empty()) op.erase();
  for (unsigned index = model.getNumArguments(); index-- > 0;) {
    if (!model.getArgument(index).use_empty()) continue;
    if (auto name = onnx::nameAttr.of(model, index))
      noted.push_back("input '" + name->str() + "' is not read by the loss: it takes no data");
    (void)model.eraseArgument(index); // nothing uses it, so it cannot fail
  }
}

static std::vector<recipe::ParameterNames> parameterNames(ModuleOp module) {
  std::vector<recipe::ParameterNames> names;
  for (auto param : module.getOps<onnx::ParamOp>()) names.push_back(training::namesOf(param->getAttrDictionary()));
  return names;
}

Status Pipeline::importModel() {
  CLEAVE_RETURN_IF_ERROR(readModel());
  keepLossOutput();
  const std::vector<recipe::ParameterNames> parameters = parameterNames(*module);
  std::vector<recipe::ParameterNames> others; // constants, and what the exporter lists and the file lacks
  for (auto tensor : onnx::otherTensorsAttr.of(module.get()).getAsRange<DictionaryAttr>())
    others.push_back({tensor.getAs<StringAttr>("name").str(), {}, {}});
  CLEAVE_RETURN_IF_ERROR(recipe::checkGlobs(request.recipe, parameters, std::move(others)));
  for (std::string &warning : recipe::warnOfMergedNames(request.recipe, parameters))
    warned.push_back(std::move(warning));
  for (const std::string &note : onnx::notesAttr.of(module.get())) warned.push_back(note);
  tensorRoles = import_::tensorRoles(*module);
  source = onnx::sourceAttr.of(module.get())->str();
  digest = onnx::digestAttr.of(module.get())->str();
  bool hasBatchNorm = false;
  module->walk([&](onnx::NodeOp node) { hasBatchNorm = hasBatchNorm || node.getOpType() == "BatchNormalization"; });
  if (request.recipe.batchNorm != recipe::BatchNorm::AsExported && !hasBatchNorm)
    warned.push_back("batch_norm: " + recipe::toString(request.recipe.batchNorm) +
                     " changes nothing, the model has no BatchNormalization; exporters fold them into convolutions "
                     "unless torch.onnx.export is given optimize=False, or do_constant_folding=False and "
                     "training=TrainingMode.TRAINING");
  for (const std::string &note : onnx::sharingAttr.of(module.get())) noted.push_back(note);
  for (const std::string &note : onnx::exportNotesAttr.of(module.get())) noted.push_back(note);
  dump("import");
  CLEAVE_RETURN_IF_ERROR(
      run("initialize", [&](OpPassManager &passes) { addInitializePasses(passes, request.recipe); }));
  CLEAVE_RETURN_IF_ERROR(recipe::checkUpdateGlobs(request.recipe, parameterNames(*module)));
  for (std::string &warning : warningsOfParameterTypes(*module)) warned.push_back(std::move(warning));
  return Status::ok();
}

// Whether the samples of that batch meet nowhere in the model, and reach its outputs one by one (but for a loss that is
// one number): asked on a copy, at the recipe's sizes.
bool Pipeline::areApart(const Batch &batch) {
  OwningOpRef<ModuleOp> copy = module->clone();
  auto model = copy->lookupSymbol<func::FuncOp>("model");
  for (auto [input, dim] : llvm::enumerate(batch.dims)) onnx::setSampleDim(model, unsigned(input), dim);
  normalize::NormalizeOptions options;
  options.dims = request.recipe.dims;
  if (batch.symbol.empty()) options.dims.erase("batch");
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  PassManager passes(&context);
  addNormalizePasses(passes, options);
  if (failed(configure(passes)) || failed(passes.run(*copy))) return false;
  const int64_t samples = batch.symbol.empty() ? batch.exported : batch.samples;
  auto problem = partition::extractProblem(
      *copy, {.name = request.model, .batch = samples, .samples = samples, .function = "model"});
  if (failed(problem) || !problem->samplesMeetAt().empty()) return false;
  const training::SamplePlaces places = training::samplePlaces(model);
  return llvm::all_of(model.front().getTerminator()->getOperands(), [&](Value output) {
    return cast<RankedTensorType>(output.getType()).getNumElements() == 1 || places.lookup(output).has_value();
  });
}

Status Pipeline::locateBatch(const std::optional<Batch> &known) {
  auto model = module->lookupSymbol<func::FuncOp>("model");
  found = known ? *known : findBatch(model, request.recipe, [this](const Batch &batch) { return areApart(batch); });
  for (auto [input, dim] : llvm::enumerate(found.dims)) onnx::setSampleDim(model, unsigned(input), dim);
  for (auto [input, place] : llvm::enumerate(found.dims)) {
    auto type = dyn_cast<RankedTensorType>(model.getArgument(unsigned(input)).getType());
    const int64_t dim = std::max<int64_t>(place, 0);
    if (!type || dim >= type.getRank() || type.getDimSize(unsigned(dim)) != 0) continue;
    auto name = onnx::nameAttr.of(model, unsigned(input));
    return inputError(fmt::format("{}: input '{}' has 0 entries in dimension {}: no sample fits", request.model,
                                  name ? name->str() : "", dim));
  }
  if (std::string text = describeBatch(model, found); !text.empty()) noted.push_back(text);
  return Status::ok();
}

// The model's dimensions for one of so many microbatches.
normalize::NormalizeOptions Pipeline::sizesOf(int64_t microbatches) const {
  normalize::NormalizeOptions options;
  options.dims = request.recipe.dims;
  if (found.symbol.empty()) {
    options.dims.erase("batch");
    options.fixedBatch = {.exported = found.exported, .samples = found.samples / microbatches};
  } else
    options.dims[found.symbol] = found.samples / microbatches;
  return options;
}

// Whether a node makes values of the shape of another value.
static bool readsExtents(ModuleOp module) {
  return module
      .walk([](onnx::NodeOp node) {
        const StringRef op = node.getOpType();
        return op == "Shape" || op == "Size" || op == "EyeLike" ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

void Pipeline::markBatchSizeUse(ModuleOp imported, normalize::NormalizeOptions options) {
  std::vector<int64_t> sizes; // of other batches: microbatches, but not of one sample, where much is folded away
  for (int64_t size = found.samples / 2; size > 1 && sizes.size() < 3; --size)
    if (found.samples % size == 0) sizes.push_back(size);
  sizes.push_back(found.samples + 1);
  auto modelOf = [](ModuleOp of) { return of.lookupSymbol<func::FuncOp>("model"); };
  std::vector<OwningOpRef<ModuleOp>> built; // of other sizes
  BatchSizeUse use;
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  for (int64_t size : sizes) {
    if (found.symbol.empty())
      options.fixedBatch.samples = size;
    else
      options.dims[found.symbol] = size;
    OwningOpRef<ModuleOp> other = imported.clone();
    PassManager passes(&context);
    addNormalizePasses(passes, options);
    if (failed(configure(passes)) || failed(passes.run(*other))) continue; // no microbatch can have this size
    SmallVector<ModuleOp> before{*module};
    for (OwningOpRef<ModuleOp> &one : built) before.push_back(*one);
    for (ModuleOp one : before) {
      use = findBatchSizeUse(modelOf(one), modelOf(*other));
      if (use.node.empty()) return;
      if (use.isCertain) break;
    }
    if (use.isCertain) break;
    built.push_back(std::move(other));
  }
  if (use.node.empty()) return;
  onnx::lossMeetsAtAttr.set(module.get(), use.node);
  noted.push_back("'" + use.node +
                  "' computes with the number of samples in the batch: a microbatch has another number there");
}

Status Pipeline::buildStep(const StepOptions &step) {
  int64_t microbatches = step.microbatches;
  CLEAVE_RETURN_IF_ERROR(importModel());
  CLEAVE_RETURN_IF_ERROR(locateBatch(step.batch));
  if (found.samples % microbatches)
    return inputError("the batch of " + std::to_string(found.samples) + " samples cannot be cut into " +
                      std::to_string(microbatches) + " equal microbatches");
  normalize::NormalizeOptions options = sizesOf(microbatches);
  switch (request.recipe.batchNorm) {
  case recipe::BatchNorm::AsExported:
    options.batchNorm = normalize::BatchNormMode::AsExported;
    break;
  case recipe::BatchNorm::Training:
    options.batchNorm = normalize::BatchNormMode::Training;
    break;
  case recipe::BatchNorm::Frozen:
    options.batchNorm = normalize::BatchNormMode::Frozen;
    break;
  }
  if (request.recipe.dropout.kind == recipe::Dropout::Kind::Off) options.dropout = 0.0;
  if (request.recipe.dropout.kind == recipe::Dropout::Kind::Rate) options.dropout = request.recipe.dropout.rate;
  // A microbatch's step is built for a decision that was made at the whole batch, where this is known.
  OwningOpRef<ModuleOp> imported;
  if (microbatches == 1 && found.samples > 1 && readsExtents(*module)) imported = module->clone();
  CLEAVE_RETURN_IF_ERROR(run("normalize", [&](OpPassManager &passes) { addNormalizePasses(passes, options); }));
  if (imported) markBatchSizeUse(*imported, options);
  for (auto doubt : onnx::doubtsAttr.of(module.get()).getAsRange<DictionaryAttr>())
    doubted.push_back(doubt.getAs<StringAttr>("text").str());
  CLEAVE_RETURN_IF_ERROR(noteResumed());
  TrainingOptions training{.microbatches = microbatches,
                           .lossOfBatch = step.lossOfBatch,
                           .emptyPlaces = request.mayHaveEmptyPlaces(),
                           .padding = request.padding,
                           .delayWeights = step.delayWeights,
                           .pipeline = step.staged,
                           .sequenceBlocks = step.sequenceBlocks};
  if (step.libraryAttention) {
    const bool everyVersion = request.recipe.attention != recipe::Attention::Library;
    training.raiseAttention =
        attention::libraryAttention(planner::computeCapability(request.cluster.device.kind), everyVersion,
                                    request.recipe.deterministic, step.sequenceBlocks, step.headWays);
  }
  CLEAVE_RETURN_IF_ERROR(
      run("training", [&](OpPassManager &passes) { addTrainingPasses(passes, request.recipe, training); }));
  if (auto sizes = onnx::paddingAttr.of(module.get()))
    noted.push_back("sizes are padded to divide over the devices, and the padding counts nothing: " + sizes->str());
  if (auto note = onnx::fp8NoteAttr.of(module.get())) noted.push_back(note->str());
  if (StringRef element = recipe::lowElement(request.recipe.precision); !element.empty())
    return run("precision", [&](OpPassManager &passes) { addPrecisionPasses(passes, element); });
  return Status::ok();
}

// The optimizer's kind, and what trains with another: their state differs.
static std::vector<std::string> kindsOf(const recipe::Optimizer &optimizer) {
  std::vector<std::string> kinds{toString(optimizer.kind)};
  for (const recipe::OptimizerGroup &group : optimizer.groups)
    if (group.kind.value_or(optimizer.kind) != optimizer.kind) {
      kinds.push_back(toString(*group.kind));
      kinds.insert(kinds.end(), group.match.begin(), group.match.end());
    }
  return kinds;
}

// What the snapshot has that the training goes on from.
Status Pipeline::noteResumed() {
  if (request.resumed.empty()) return Status::ok();
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Snapshot> saved, runtime::Snapshot::open(request.resumed));
  CLEAVE_ASSIGN_OR_RETURN(int64_t skipped, runtime::skippedBefore(*saved));
  CLEAVE_ASSIGN_OR_RETURN(recipe::Recipe before,
                          recipe::parseRecipeText(saved->manifest().recipe, "the snapshot's recipe"));
  if (kindsOf(before.optimizer) != kindsOf(request.recipe.optimizer))
    return inputError(
        fmt::format("{}: the snapshot's state is of {}, and another optimizer cannot go on with it; begin with "
                    "its weights: `cleave export` and the recipe's `init`",
                    request.recipe.at("optimizer.kind"), toString(before.optimizer.kind)));
  const auto &tensors = saved->manifest().tensors;
  const int64_t steps = saved->manifest().step - skipped;
  Builder builder(&context);
  std::map<std::string, int64_t> sinceOf;
  for (const auto &[name, tensor] : tensors) {
    sinceOf[name] = tensor.since;
    for (const auto &piece : tensor.pieces) sinceOf[piece.name] = tensor.since;
  }
  for (auto param : module->getOps<onnx::ParamOp>()) { // one that was a constant begins as the model's file has it
    auto known = sinceOf.find(param.getSymName().str());
    const int64_t since = known == sinceOf.end() ? steps : known->second;
    if (since > 0) onnx::sinceAttr.set(param, since);
  }
  llvm::SmallVector<NamedAttribute> known;
  for (const auto &[name, tensor] : tensors)
    if (tensor.role == plan::Parameter::OPTIMIZER_STATE)
      known.push_back(builder.getNamedAttr(name, builder.getI64IntegerAttr(tensor.since)));
  onnx::resumedStateAttr.set(module.get(), builder.getDictionaryAttr(known));
  onnx::stepsBeforeAttr.set(module.get(), steps);
  return Status::ok();
}

int64_t Pipeline::stepsBefore() {
  if (onnx::resumedStateAttr.isOn(module.get())) return 0; // the snapshot says it
  auto steps = onnx::stepsBeforeAttr.of(module.get());
  return steps.value_or(0);
}

std::string Pipeline::checkpointFolder() {
  auto folder = onnx::checkpointFolderAttr.of(module.get());
  return folder ? folder->str() : "";
}

std::vector<double> Pipeline::lossTerms() {
  auto terms = onnx::lossTermsAttr.of(module.get());
  return terms ? std::vector<double>(terms.asArrayRef().begin(), terms.asArrayRef().end()) : std::vector<double>();
}

std::string Pipeline::lossMeetsAt() {
  auto node = onnx::lossMeetsAtAttr.of(module.get());
  return node ? node->str() : "";
}

bool Pipeline::assumeSizes(normalize::NormalizeOptions &options, int64_t size) {
  auto model = module->lookupSymbol<func::FuncOp>("model");
  bool assumes = false;
  for (unsigned index = 0; index < model.getNumArguments(); ++index) {
    auto type = dyn_cast<RankedTensorType>(model.getArgument(index).getType());
    auto names = onnx::dimsAttr.of(model, index);
    auto input = onnx::nameAttr.of(model, index);
    for (int64_t d = 0; type && d < type.getRank(); ++d) {
      if (!type.isDynamicDim(unsigned(d))) continue;
      const bool isNamed = d < int64_t(names.size()) && !names[size_t(d)].empty();
      const std::string key = isNamed ? names[size_t(d)] : input.value_or("").str() + "." + std::to_string(d);
      assumes |= options.dims.try_emplace(key, size).second;
    }
  }
  return assumes;
}

Result<import_::Inspection> Pipeline::inspect() {
  CLEAVE_RETURN_IF_ERROR(readModel());
  import_::Inspection seen = import_::inspectModule(*module, normalize::isSupported);
  if (!seen.unsupported.empty()) return seen;
  // FLOPs and repeated blocks are those of the normalized graph. Unbound dimensions count as 1, or as 64 where the
  // model cannot be of 1. A fault that is the same with both is the model's.
  normalize::NormalizeOptions options;
  Status normalized = Status::ok();
  for (int64_t size : {1, 64}) {
    if (size != 1) CLEAVE_RETURN_IF_ERROR(readModel());
    CLEAVE_RETURN_IF_ERROR(locateBatch());
    options = sizesOf(1);
    bool isAssumed = assumeSizes(options, size);
    Status first = normalized;
    normalized = run("normalize", [&](OpPassManager &passes) { addNormalizePasses(passes, options); });
    if (normalized) break;
    if (!isAssumed || first.message() == normalized.message()) return normalized;
  }
  if (!normalized) {
    seen.notes.push_back("FLOPs are not known: " + normalized.message());
    return seen;
  }
  double flops = 0;
  module->walk([&](onnx::CostOpInterface op) { flops += op.getFlops(); });
  seen.flops = flops;
  auto forward = partition::extractProblem(*module, {.name = request.model, .function = "model"});
  if (failed(forward)) return failure("the repeated blocks cannot be found");
  seen.blocks = repeatedBlocks(*forward);
  for (const auto &[name, size] : options.dims)
    seen.flopsAt += (seen.flopsAt.empty() ? "" : ", ") + name + "=" + std::to_string(size);
  return seen;
}

Result<planner::Problem> Pipeline::problem(int64_t microbatches) {
  partition::ProblemOptions options{
      .name = request.model,
      .batch = found.samples,
      .samples = found.samples / microbatches,
      .precision = recipe::toString(request.recipe.precision),
      .meetsAtUpdate = request.recipe.clipNorm.has_value() || !request.recipe.clipNorms.empty() ||
                       request.recipe.skipOutliers.has_value() || request.recipe.precision == recipe::Precision::Fp16,
      .writesAttention = !recipe::allowsLibraryAttention(request.recipe)};
  auto extracted = partition::extractProblem(*module, options);
  if (failed(extracted)) return failure("the planning problem cannot be extracted");
  return std::move(*extracted);
}

Result<std::string> Pipeline::referenceGraph() {
  plan::Graph graph;
  OwningOpRef<ModuleOp> written = module->clone(); // attention as one op is compared with it written out
  PassManager passes(&context);
  passes.addPass(attention::createDecomposeAttention());
  if (failed(configure(passes)) || failed(passes.run(*written)) || failed(training::exportReference(*written, graph)))
    return failure("the reference graph cannot be written");
  std::string bytes; // the same on every process: maps in the order of their keys
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    if (!graph.SerializeToCodedStream(&out)) return failure("the reference graph cannot be written");
  }
  return bytes;
}

namespace {

// The table of the decision's pipeline; none without one.
Result<std::optional<planner::PipelineSchedule>> scheduleOf(const planner::Decision &decision) {
  if (decision.stages < 2) return std::optional<planner::PipelineSchedule>();
  auto table = planner::makeSchedule(decision.schedule, static_cast<int>(decision.mesh.axisSize(dist::pipelineAxis)),
                                     decision.microbatches, planner::scheduleTimes(decision.stageDecisions));
  if (!table) return table.status();
  if (table->stages != decision.stages)
    return inputError("schedule '" + decision.schedule + "' has " + std::to_string(table->stages) +
                      " stages, the model was cut into " + std::to_string(decision.stages));
  CLEAVE_RETURN_IF_ERROR(planner::validate(*table));
  return std::optional(std::move(*table));
}

} // namespace

Status Pipeline::partition(const planner::Decision &decision, bool ofAnotherSize) {
  auto table = scheduleOf(decision);
  if (!table) return table.status();
  const bool isGpu = !planner::computeCapability(request.cluster.device.kind).empty();
  layout::Convolutions which = layout::Convolutions::Float;
  if (isGpu)
    which =
        request.recipe.precision == recipe::Precision::Tf32 ? layout::Convolutions::Rounded : layout::Convolutions::Low;
  return run("partition", [&](OpPassManager &passes) {
    addPartitionPasses(passes, {.decision = decision,
                                .ofAnotherSize = ofAnotherSize,
                                .table = std::move(*table),
                                .convolutions = which,
                                .weightsChannelsLast = isGpu});
  });
}

Status Pipeline::add(Pipeline &other, const std::string &suffix) {
  return failed(joinRoutines(*module, *other.module, suffix))
             ? other.failure("the routines of two shapes cannot be joined")
             : Status::ok();
}

Result<plan::Plan> Pipeline::generate(const planner::Decision &decision) {
  const codegen::CodegenOptions options{.gpu = planner::computeCapability(request.cluster.device.kind),
                                        .emulate = request.emulate,
                                        .offloadsState = planner::movesState(decision.offload),
                                        .offloadsActivations = planner::movesActivations(decision.offload),
                                        .foldEpilogues = request.recipe.epilogues == recipe::Epilogues::Library,
                                        .tf32 = request.recipe.precision == recipe::Precision::Tf32,
                                        .deterministic = request.recipe.deterministic,
                                        .cpu = request.cluster.device.cpu};
  auto plan = cleave::generate(*module, decision.mesh, options);
  OpPassManager passes(ModuleOp::getOperationName());
  addCodegenPasses(passes, options);
  dump("codegen", &passes);
  if (failed(plan)) return failure("code generation failed");
  return std::move(*plan);
}

} // namespace cleave
