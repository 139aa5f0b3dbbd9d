#include "compiler/import/whole_model.h"
#include "compiler/import/tensor_store.h"
#include "runtime/base/atomic_file.h"
#include <fmt/format.h>
#include <set>

namespace cleave::import_ {
namespace {

using ::onnx::TensorProto;

class Embedder {
public:
  explicit Embedder(const ModelFile &model) : model(model), store(model) {}

  Status embed(TensorProto &tensor) {
    if (tensor.data_location() != TensorProto::EXTERNAL) return Status::ok();
    Result<StoredTensor> stored = store.locate(tensor);
    if (!stored) return stored.status();
    if (!stored->bytes)
      return inputError(
          fmt::format("{}/{}: there is no such file; it holds '{}'", model.folder, stored->path, tensor.name()));
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.set_raw_data(stored->bytes, static_cast<size_t>(stored->length));
    total += stored->length;
    return Status::ok();
  }
  Status embed(::onnx::GraphProto &graph) {
    for (TensorProto &tensor : *graph.mutable_initializer()) CLEAVE_RETURN_IF_ERROR(embed(tensor));
    for (::onnx::NodeProto &node : *graph.mutable_node()) CLEAVE_RETURN_IF_ERROR(embed(node));
    return Status::ok();
  }
  Status embed(::onnx::NodeProto &node) {
    for (::onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) CLEAVE_RETURN_IF_ERROR(embed(*attribute.mutable_t()));
      for (TensorProto &tensor : *attribute.mutable_tensors()) CLEAVE_RETURN_IF_ERROR(embed(tensor));
      if (attribute.has_g()) CLEAVE_RETURN_IF_ERROR(embed(*attribute.mutable_g()));
      for (::onnx::GraphProto &graph : *attribute.mutable_graphs()) CLEAVE_RETURN_IF_ERROR(embed(graph));
    }
    return Status::ok();
  }

  int64_t total = 0;

private:
  const ModelFile &model;
  TensorStore store;
};

} // namespace

Result<::onnx::ModelProto> readWhole(const ModelFile &model) {
  ::onnx::ModelProto whole;
  std::string_view bytes = model.file->bytes();
  if (!whole.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return inputError(model.path + ": is not an ONNX model (it cannot be parsed)");
  ::onnx::GraphProto &graph = *whole.mutable_graph();
  std::set<std::string> own, parameters;
  for (const TensorProto &initializer : graph.initializer()) own.insert(initializer.name());
  for (const TensorProto &initializer : model.proto.graph().initializer()) {
    if (initializer.data_location() != TensorProto::EXTERNAL || own.count(initializer.name())) continue;
    *graph.add_initializer() = initializer;
    parameters.insert(initializer.name());
  }
  auto &inputs = *graph.mutable_input();
  inputs.erase(std::remove_if(inputs.begin(), inputs.end(),
                              [&](const ::onnx::ValueInfoProto &input) { return parameters.count(input.name()) > 0; }),
               inputs.end());
  return whole;
}

Result<int64_t> embedData(const ModelFile &model, ::onnx::ModelProto &whole) {
  Embedder embedder(model);
  CLEAVE_RETURN_IF_ERROR(embedder.embed(*whole.mutable_graph()));
  for (::onnx::FunctionProto &function : *whole.mutable_functions())
    for (::onnx::NodeProto &node : *function.mutable_node()) CLEAVE_RETURN_IF_ERROR(embedder.embed(node));
  for (::onnx::TrainingInfoProto &info : *whole.mutable_training_info()) {
    if (info.has_initialization()) CLEAVE_RETURN_IF_ERROR(embedder.embed(*info.mutable_initialization()));
    if (info.has_algorithm()) CLEAVE_RETURN_IF_ERROR(embedder.embed(*info.mutable_algorithm()));
  }
  return embedder.total;
}

Status writeWhole(const ::onnx::ModelProto &whole, const std::string &output) {
  std::string bytes;
  if (!whole.SerializeToString(&bytes)) return inputError("the model cannot be serialized");
  return runtime::writeFileAtomically(bytes, output);
}

} // namespace cleave::import_
