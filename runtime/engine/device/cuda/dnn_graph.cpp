#include "runtime/engine/device/cuda/dnn_graph.h"
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

Result<DnnDescriptor> DnnGraph::descriptor(int type) {
  Result<DnnDescriptor> made = descriptors.make(type);
  if (made) {
    description += fmt::format("{}: {}\n", numbers.size(), type);
    numbers.emplace(*made, numbers.size());
  }
  return made;
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
  if (tensor.place == DnnTensor::Value)
    bound.push_back(
        {id, std::visit([](auto &number) -> void * { return &number; }, values.emplace_back(tensor.value))});
  if (tensor.place == DnnTensor::Scratch) { // of 4-byte elements, dense
    bound.push_back({id, nullptr, scratchBytes});
    int64_t bytes = 4;
    for (int64_t size : tensor.sizes) bytes *= size;
    scratchBytes += (bytes + 255) / 256 * 256;
  }
  return made;
}

Status DnnGraph::compile(const std::vector<DnnDescriptor> &operations, DnnCores cores, int64_t mostWorkspace) {
  CLEAVE_ASSIGN_OR_RETURN(const DnnPlan *found, device.gpu().dnnPlans->find(description, operations, cores,
                                                                            mostWorkspace - scratchBytes, what));
  plan = found;
  device.needWorkspace(static_cast<size_t>(plan->workspaceBytes + scratchBytes));
  return Status::ok();
}

Status DnnGraph::bind() {
  CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor made, descriptor(dnnVariantPack));
  const int64_t workspaceBytes = plan->workspaceBytes;
  auto base = workspaceBytes + scratchBytes ? reinterpret_cast<char *>(device.workspaceMemory().address()) : nullptr;
  std::vector<int64_t> ids;
  std::vector<void *> pointers;
  for (const Bound &one : bound) {
    ids.push_back(one.id);
    pointers.push_back(one.scratch < 0 ? one.pointer : base + workspaceBytes + one.scratch);
  }
  CLEAVE_RETURN_IF_ERROR(set(made, dnnPackUniqueIds, dnnTypeInt64, ids));
  CLEAVE_RETURN_IF_ERROR(set(made, dnnPackPointers, dnnTypeVoidPointer, pointers));
  void *scratch = workspaceBytes ? base : nullptr;
  CLEAVE_RETURN_IF_ERROR(set(made, dnnPackWorkspace, dnnTypeVoidPointer, std::vector{scratch}));
  CLEAVE_RETURN_IF_ERROR(finalize(made, "refuses the addresses of"));
  pack = made;
  return Status::ok();
}

Status DnnGraph::run() {
  if (!pack) CLEAVE_RETURN_IF_ERROR(bind()); // the workspace has its address now
  int error = dnn.setStream(handle, stream);
  if (!error) error = dnn.execute(handle, plan->plan, pack);
  return descriptors.check(error, "does not start");
}

} // namespace cleave::runtime::cuda
