#include "runtime/device/cuda/dnn_graph.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime::cuda {

int dnnType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return dnnFloat;
  case plan::F64:
    return dnnDouble;
  case plan::F16:
    return dnnHalf;
  case plan::BF16:
    return dnnBfloat16;
  default:
    return -1;
  }
}

DnnGraph::~DnnGraph() {
  for (auto descriptor = made.rbegin(); descriptor != made.rend(); ++descriptor) dnn.destroyDescriptor(*descriptor);
}

Status DnnGraph::check(int error, const char *doing) const {
  return error ? dnnStatus(dnn, error, fmt::format("cuDNN {} {}", doing, what).c_str()) : Status::ok();
}

Result<DnnDescriptor> DnnGraph::descriptor(int type) {
  DnnDescriptor descriptor = nullptr;
  CLEAVE_RETURN_IF_ERROR(check(dnn.createDescriptor(type, &descriptor), "makes no descriptor for"));
  made.push_back(descriptor);
  return descriptor;
}

Result<DnnDescriptor> DnnGraph::tensor(const DnnTensor &tensor) {
  Result<DnnDescriptor> made = descriptor(dnnTensor);
  if (!made) return made;
  int64_t id = ++ids, alignment = 16;
  if (tensor.place == DnnTensor::Device)
    alignment = static_cast<int64_t>(std::min<Address>(tensor.address & -tensor.address, 16));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorDataType, dnnTypeDataType, std::vector{tensor.type}));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorDimensions, dnnTypeInt64, tensor.sizes));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorStrides, dnnTypeInt64, tensor.strides));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorUniqueId, dnnTypeInt64, std::vector{id}));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorAlignment, dnnTypeInt64, std::vector{alignment}));
  constexpr char yes = 1; // a C++ bool
  if (tensor.place == DnnTensor::Virtual)
    CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorIsVirtual, dnnTypeBoolean, std::vector{yes}));
  if (tensor.place == DnnTensor::Value)
    CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorIsByValue, dnnTypeBoolean, std::vector{yes}));
  CLEAVE_RETURN_IF_ERROR(finalize(*made, "refuses a tensor of"));
  if (tensor.place == DnnTensor::Device) bound.push_back({id, reinterpret_cast<void *>(tensor.address)});
  if (tensor.place == DnnTensor::Value) bound.push_back({id, &values.emplace_back(tensor.value)});
  if (tensor.place == DnnTensor::Scratch) { // of 4-byte elements, dense
    bound.push_back({id, nullptr, scratchBytes});
    int64_t bytes = 4;
    for (int64_t size : tensor.sizes) bytes *= size;
    scratchBytes += (bytes + 255) / 256 * 256;
  }
  return made;
}

Result<std::vector<int>> DnnGraph::notesOf(DnnDescriptor configuration) {
  Result<DnnDescriptor> engine = descriptor(dnnEngine);
  if (!engine) return engine.status();
  int64_t count = 0;
  DnnDescriptor found = *engine;
  int error = dnn.get(configuration, dnnConfigurationEngine, dnnTypeDescriptor, 1, &count, &found);
  std::vector<int> notes(dnnNoteCount);
  if (!error) error = dnn.get(found, dnnEngineNotes, dnnTypeNumericalNote, dnnNoteCount, &count, notes.data());
  CLEAVE_RETURN_IF_ERROR(check(error, "does not say how an engine computes"));
  notes.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, dnnNoteCount)));
  return notes;
}

Result<bool> DnnGraph::take(DnnDescriptor configuration, int64_t mostWorkspace, Status &why) {
  Result<DnnDescriptor> candidate = descriptor(dnnExecutionPlan);
  if (!candidate) return candidate.status();
  CLEAVE_RETURN_IF_ERROR(set(*candidate, dnnPlanHandle, dnnTypeHandle, std::vector{handle}));
  CLEAVE_RETURN_IF_ERROR(set(*candidate, dnnPlanConfiguration, dnnTypeDescriptor, std::vector{configuration}));
  if (Status status = finalize(*candidate, "makes no plan for"); !status) {
    why = status;
    return false;
  }
  int64_t count = 0, bytes = 0;
  CLEAVE_RETURN_IF_ERROR(check(dnn.get(*candidate, dnnPlanWorkspace, dnnTypeInt64, 1, &count, &bytes),
                               "does not say what workspace it wants for"));
  bytes = (bytes + 255) / 256 * 256;
  if (bytes + scratchBytes > mostWorkspace) {
    why = runError(fmt::format("cuDNN's engines for {} want more than {} MiB of workspace", what, mostWorkspace >> 20));
    return false;
  }
  plan = *candidate;
  workspaceBytes = bytes;
  return true;
}

// The first engine, best first, that keeps to the precision and to the workspace. Where tensor cores are preferred, the
// first of those on tensor cores, else the first.
Status DnnGraph::compile(const std::vector<DnnDescriptor> &operations, DnnCores cores, int64_t mostWorkspace) {
  Result<DnnDescriptor> graph = descriptor(dnnOperationGraph);
  if (!graph) return graph.status();
  CLEAVE_RETURN_IF_ERROR(set(*graph, dnnGraphOperations, dnnTypeDescriptor, operations));
  CLEAVE_RETURN_IF_ERROR(set(*graph, dnnGraphHandle, dnnTypeHandle, std::vector{handle}));
  CLEAVE_RETURN_IF_ERROR(finalize(*graph, "refuses the graph of"));
  Status last = runError(fmt::format("cuDNN knows no engine for {}", what));
  for (int mode : {dnnModeA, dnnModeFallback}) {
    Result<DnnDescriptor> heuristic = descriptor(dnnEngineHeuristic);
    if (!heuristic) return heuristic.status();
    CLEAVE_RETURN_IF_ERROR(set(*heuristic, dnnHeuristicGraph, dnnTypeDescriptor, std::vector{*graph}));
    CLEAVE_RETURN_IF_ERROR(set(*heuristic, dnnHeuristicMode, dnnTypeHeuristicMode, std::vector{mode}));
    if (Status status = finalize(*heuristic, "has no heuristic for"); !status) {
      last = status;
      continue;
    }
    constexpr int64_t most = 32;
    std::vector<DnnDescriptor> configurations;
    for (int64_t i = 0; i < most; ++i) {
      Result<DnnDescriptor> configuration = descriptor(dnnEngineConfiguration);
      if (!configuration) return configuration.status();
      configurations.push_back(*configuration);
    }
    int64_t found = 0;
    if (dnn.get(*heuristic, dnnHeuristicResults, dnnTypeDescriptor, most, &found, configurations.data())) continue;
    configurations.resize(static_cast<size_t>(std::min(found, most)));
    std::vector<DnnDescriptor> others; // without tensor cores, where these are preferred
    for (DnnDescriptor configuration : configurations) {
      Result<std::vector<int>> notes = cores == DnnCores::Any ? std::vector<int>() : notesOf(configuration);
      if (!notes) return notes.status();
      auto isNoted = [&](int note) { return std::find(notes->begin(), notes->end(), note) != notes->end(); };
      if (cores == DnnCores::Refused && (isNoted(dnnNoteTensorCore) || isNoted(dnnNoteNarrowInputs))) continue;
      if (cores == DnnCores::Preferred && !isNoted(dnnNoteTensorCore)) {
        others.push_back(configuration);
        continue;
      }
      Result<bool> taken = take(configuration, mostWorkspace, last);
      if (!taken) return taken.status();
      if (*taken) break;
    }
    const Status why = others.size() < configurations.size() ? last : runError("it knows none");
    for (size_t i = 0; i < others.size() && !plan; ++i) {
      Result<bool> taken = take(others[i], mostWorkspace, last);
      if (!taken) return taken.status();
      if (*taken) warned = fmt::format("no engine with tensor cores is taken: {}", why.message());
    }
    if (!plan) continue;
    device.needWorkspace(static_cast<size_t>(workspaceBytes + scratchBytes));
    return Status::ok();
  }
  return last;
}

Status DnnGraph::bind() {
  Result<DnnDescriptor> made = descriptor(dnnVariantPack);
  if (!made) return made.status();
  auto base = workspaceBytes + scratchBytes ? reinterpret_cast<char *>(device.workspaceMemory().address()) : nullptr;
  std::vector<int64_t> ids;
  std::vector<void *> pointers;
  for (const Bound &one : bound) {
    ids.push_back(one.id);
    pointers.push_back(one.scratch < 0 ? one.pointer : base + workspaceBytes + one.scratch);
  }
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackUniqueIds, dnnTypeInt64, ids));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackPointers, dnnTypeVoidPointer, pointers));
  void *scratch = workspaceBytes ? base : nullptr;
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackWorkspace, dnnTypeVoidPointer, std::vector{scratch}));
  CLEAVE_RETURN_IF_ERROR(finalize(*made, "refuses the addresses of"));
  pack = *made;
  return Status::ok();
}

Status DnnGraph::run() {
  if (!pack) CLEAVE_RETURN_IF_ERROR(bind()); // the workspace has its address now
  int error = dnn.setStream(handle, stream);
  if (!error) error = dnn.execute(handle, plan, pack);
  return check(error, "does not start");
}

} // namespace cleave::runtime::cuda
