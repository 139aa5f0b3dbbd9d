#include "runtime/engine/device/cuda/dnn_plan.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

class PlanMaker {
public:
  PlanMaker(const Cudnn &dnn, DnnHandle handle, bool deterministic, DnnCores cores, int64_t mostWorkspace,
            const char *what)
      : dnn(dnn), handle(handle), deterministic(deterministic), cores(cores), mostWorkspace(mostWorkspace), what(what) {
  }

  // The first engine, best first, that keeps to the precision and to the workspace. Where tensor cores are preferred,
  // the first of those on tensor cores, else the first.
  Result<std::unique_ptr<DnnPlan>> make(const std::vector<DnnDescriptor> &operations) {
    plan = std::make_unique<DnnPlan>(dnn, what);
    CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor graph, descriptors().make(dnnOperationGraph));
    CLEAVE_RETURN_IF_ERROR(descriptors().set(graph, dnnGraphOperations, dnnTypeDescriptor, operations));
    CLEAVE_RETURN_IF_ERROR(descriptors().set(graph, dnnGraphHandle, dnnTypeHandle, std::vector{handle}));
    CLEAVE_RETURN_IF_ERROR(descriptors().finalize(graph, "refuses the graph of"));
    why = runError(fmt::format("cuDNN knows no engine for {}", what));
    for (int mode : {dnnModeA, dnnModeFallback}) {
      CLEAVE_ASSIGN_OR_RETURN(std::vector<DnnDescriptor> configurations, configurationsOf(graph, mode));
      CLEAVE_RETURN_IF_ERROR(choose(configurations));
      if (plan->plan) return std::move(plan);
    }
    return why;
  }

private:
  DnnDescriptors &descriptors() { return plan->descriptors; }
  // As the heuristic ranks them; none, and `why` says for what reason.
  Result<std::vector<DnnDescriptor>> configurationsOf(DnnDescriptor graph, int mode) {
    CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor heuristic, descriptors().make(dnnEngineHeuristic));
    CLEAVE_RETURN_IF_ERROR(descriptors().set(heuristic, dnnHeuristicGraph, dnnTypeDescriptor, std::vector{graph}));
    CLEAVE_RETURN_IF_ERROR(descriptors().set(heuristic, dnnHeuristicMode, dnnTypeHeuristicMode, std::vector{mode}));
    std::vector<DnnDescriptor> configurations;
    if (Status status = descriptors().finalize(heuristic, "has no heuristic for"); !status) {
      why = status;
      return configurations;
    }
    constexpr int64_t most = 32;
    for (int64_t i = 0; i < most; ++i) {
      CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor configuration, descriptors().make(dnnEngineConfiguration));
      configurations.push_back(configuration);
    }
    int64_t found = 0;
    if (dnn.get(heuristic, dnnHeuristicResults, dnnTypeDescriptor, most, &found, configurations.data())) found = 0;
    configurations.resize(static_cast<size_t>(std::min(found, most)));
    return configurations;
  }

  Status choose(const std::vector<DnnDescriptor> &configurations) {
    std::vector<DnnDescriptor> others; // without tensor cores, where these are preferred
    for (DnnDescriptor configuration : configurations) {
      CLEAVE_ASSIGN_OR_RETURN(std::vector<int> notes,
                              cores == DnnCores::Any && !deterministic ? std::vector<int>() : notesOf(configuration));
      auto isNoted = [&](int note) { return std::find(notes.begin(), notes.end(), note) != notes.end(); };
      if (deterministic && isNoted(dnnNoteNondeterministic)) {
        why = runError(fmt::format("cuDNN's engines for {} give other bits in every run", what));
        continue;
      }
      if (cores == DnnCores::Refused && (isNoted(dnnNoteTensorCore) || isNoted(dnnNoteNarrowInputs))) continue;
      if (cores == DnnCores::Preferred && !isNoted(dnnNoteTensorCore)) {
        others.push_back(configuration);
        continue;
      }
      CLEAVE_RETURN_IF_ERROR(take(configuration));
      if (plan->plan) return Status::ok();
    }
    const Status refused = others.size() < configurations.size() ? why : runError("it knows none");
    for (DnnDescriptor configuration : others) {
      CLEAVE_RETURN_IF_ERROR(take(configuration));
      if (!plan->plan) continue;
      plan->warning = fmt::format("no engine with tensor cores is taken: {}", refused.message());
      break;
    }
    return Status::ok();
  }

  // Numbers of dnnNote...
  Result<std::vector<int>> notesOf(DnnDescriptor configuration) {
    CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor engine, descriptors().make(dnnEngine));
    int64_t count = 0;
    DnnDescriptor found = engine;
    int error = dnn.get(configuration, dnnConfigurationEngine, dnnTypeDescriptor, 1, &count, &found);
    std::vector<int> notes(dnnNoteCount);
    if (!error) error = dnn.get(found, dnnEngineNotes, dnnTypeNumericalNote, dnnNoteCount, &count, notes.data());
    CLEAVE_RETURN_IF_ERROR(descriptors().check(error, "does not say how an engine computes"));
    notes.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, dnnNoteCount)));
    return notes;
  }

  // Makes the engine the plan, or passes it over, and `why` says for what reason.
  Status take(DnnDescriptor configuration) {
    CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor candidate, descriptors().make(dnnExecutionPlan));
    CLEAVE_RETURN_IF_ERROR(descriptors().set(candidate, dnnPlanHandle, dnnTypeHandle, std::vector{handle}));
    CLEAVE_RETURN_IF_ERROR(
        descriptors().set(candidate, dnnPlanConfiguration, dnnTypeDescriptor, std::vector{configuration}));
    if (Status status = descriptors().finalize(candidate, "makes no plan for"); !status) {
      why = status;
      return Status::ok();
    }
    int64_t count = 0, bytes = 0;
    CLEAVE_RETURN_IF_ERROR(descriptors().check(dnn.get(candidate, dnnPlanWorkspace, dnnTypeInt64, 1, &count, &bytes),
                                               "does not say what workspace it wants for"));
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > mostWorkspace) {
      why =
          runError(fmt::format("cuDNN's engines for {} want more than {} MiB of workspace", what, mostWorkspace >> 20));
      return Status::ok();
    }
    plan->plan = candidate;
    plan->workspaceBytes = bytes;
    return Status::ok();
  }

  const Cudnn &dnn;
  DnnHandle handle;
  bool deterministic;
  DnnCores cores;
  int64_t mostWorkspace;
  const char *what;
  std::unique_ptr<DnnPlan> plan;
  Status why = Status::ok(); // there is none so far
};

} // namespace

DnnDescriptors::~DnnDescriptors() {
  for (auto descriptor = made.rbegin(); descriptor != made.rend(); ++descriptor) dnn.destroyDescriptor(*descriptor);
}

Result<DnnDescriptor> DnnDescriptors::make(int type) {
  DnnDescriptor descriptor = nullptr;
  CLEAVE_RETURN_IF_ERROR(check(dnn.createDescriptor(type, &descriptor), "makes no descriptor for"));
  made.push_back(descriptor);
  return descriptor;
}

Status DnnDescriptors::check(int error, const char *doing) const {
  return error ? dnnStatus(dnn, error, fmt::format("cuDNN {} {}", doing, what).c_str()) : Status::ok();
}

Result<const DnnPlan *> DnnPlans::find(const std::string &description, const std::vector<DnnDescriptor> &operations,
                                       DnnCores cores, int64_t mostWorkspace, const char *what) {
  std::string key = fmt::format("{} {} {}", static_cast<int>(cores), mostWorkspace, description);
  if (auto known = plans.find(key); known != plans.end()) return known->second.get();
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<DnnPlan> made,
                          PlanMaker(dnn, handle, deterministic, cores, mostWorkspace, what).make(operations));
  return plans.emplace(std::move(key), std::move(made)).first->second.get();
}

} // namespace cleave::runtime::cuda
