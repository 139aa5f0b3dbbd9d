// Small ONNX models for the tests, made with the protobuf classes and written to a folder of their own.
//
//     ModelBuilder model;
//     model.input("x", {-1, 4});  model.weight("w", {4, 2}, {...});  model.node("MatMul", {"x", "w"}, {"y"});
//     model.output("y"); Imported seen = model.import();      seen.text holds the module, seen.error the diagnostics
#pragma once
#include "compiler/import/import.h"
#include "compiler/import/inspect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace cleave::import_ {

struct Imported {
  Imported() = default;
  Imported(Imported &&) = default;
  Imported &operator=(Imported &&other) { // the module goes before its context
    module = std::move(other.module);
    context = std::move(other.context);
    text = std::move(other.text);
    error = std::move(other.error);
    return *this;
  }
  mlir::ModuleOp op() const { return const_cast<mlir::OwningOpRef<mlir::ModuleOp> &>(module).get(); }

  std::unique_ptr<mlir::MLIRContext> context = std::make_unique<mlir::MLIRContext>();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string text, error;
};

inline Imported importFile(const std::string &path, const ImportOptions &options = {}) {
  Imported seen;
  mlir::ScopedDiagnosticHandler handler(seen.context.get(), [&](mlir::Diagnostic &diagnostic) {
    seen.error += diagnostic.str() + "\n";
    return mlir::success();
  });
  auto module = importModel(*seen.context, path, options);
  if (mlir::failed(module)) return seen;
  seen.module = std::move(*module);
  llvm::raw_string_ostream(seen.text) << *seen.module;
  return seen;
}

class ModelBuilder {
public:
  ModelBuilder() {
    static int count = 0;
    folder = std::filesystem::temp_directory_path() /
             ("cleave-import-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(folder);
    proto.set_ir_version(10);
    proto.set_producer_name("test");
    opset("", 20);
    proto.mutable_graph()->set_name("g");
  }
  ~ModelBuilder() { std::filesystem::remove_all(folder); }

  ::onnx::OperatorSetIdProto *opset(const std::string &domain, int64_t version) {
    ::onnx::OperatorSetIdProto *import = proto.add_opset_import();
    import->set_domain(domain);
    import->set_version(version);
    return import;
  }
  // A size below 0 is the dimension "batch".
  ::onnx::ValueInfoProto *input(const std::string &name, std::vector<int64_t> shape,
                                int type = ::onnx::TensorProto::FLOAT) {
    return describe(proto.mutable_graph()->add_input(), name, shape, type);
  }
  void output(const std::string &name, std::vector<int64_t> shape = {-1, 4}, int type = ::onnx::TensorProto::FLOAT) {
    describe(proto.mutable_graph()->add_output(), name, shape, type);
  }
  ::onnx::TensorProto *weight(const std::string &name, std::vector<int64_t> shape, const std::vector<float> &values) {
    ::onnx::TensorProto *tensor = tensorOf(name, shape, ::onnx::TensorProto::FLOAT);
    tensor->set_raw_data(values.data(), values.size() * sizeof(float));
    return tensor;
  }
  // Different numbers everywhere.
  ::onnx::TensorProto *weight(const std::string &name, std::vector<int64_t> shape) {
    return weight(name, shape, numbers(shape));
  }
  ::onnx::TensorProto *filled(const std::string &name, std::vector<int64_t> shape, float value) {
    return weight(name, shape, std::vector<float>(numbers(shape).size(), value));
  }
  ::onnx::TensorProto *integers(const std::string &name, std::vector<int64_t> shape,
                                const std::vector<int64_t> &values) {
    ::onnx::TensorProto *tensor = tensorOf(name, shape, ::onnx::TensorProto::INT64);
    for (int64_t value : values) tensor->add_int64_data(value);
    return tensor;
  }
  ::onnx::TensorProto *external(const std::string &name, std::vector<int64_t> shape, const std::string &location,
                                int64_t offset) {
    ::onnx::TensorProto *tensor = tensorOf(name, shape, ::onnx::TensorProto::FLOAT);
    tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
    entry(tensor, "location", location);
    entry(tensor, "offset", std::to_string(offset));
    return tensor;
  }
  static void entry(::onnx::TensorProto *tensor, const std::string &key, const std::string &value) {
    ::onnx::StringStringEntryProto *pair = tensor->add_external_data();
    pair->set_key(key);
    pair->set_value(value);
  }
  // The notes of PyTorch's exporter: a line of its signature; from which values it has computed a tensor.
  void sign(const std::string &line) { signature += "\n" + line; }
  void computed(const std::string &value, const std::string &from) {
    ::onnx::ValueInfoProto *info = proto.mutable_graph()->add_value_info();
    info->set_name(value);
    ::onnx::StringStringEntryProto *entry = info->add_metadata_props();
    entry->set_key("pkg.onnxscript.optimizer.folded_from");
    entry->set_value(from);
  }
  ::onnx::NodeProto *node(const std::string &op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                          const std::string &domain = "") {
    return fill(proto.mutable_graph()->add_node(), op, inputs, outputs, domain);
  }
  static ::onnx::NodeProto *fill(::onnx::NodeProto *node, const std::string &op, const std::vector<std::string> &inputs,
                                 const std::vector<std::string> &outputs, const std::string &domain = "") {
    node->set_op_type(op);
    node->set_domain(domain);
    node->set_name("node_" + outputs.front());
    for (const std::string &name : inputs) node->add_input(name);
    for (const std::string &name : outputs) node->add_output(name);
    return node;
  }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return (folder / name).string();
  }
  std::string bytes() const {
    ::onnx::ModelProto all = proto;
    if (!signature.empty()) {
      ::onnx::StringStringEntryProto *entry = all.mutable_graph()->add_metadata_props();
      entry->set_key("pkg.torch.export.ExportedProgram.graph_signature");
      entry->set_value(signature);
    }
    return all.SerializeAsString();
  }
  Imported import(const ImportOptions &options = {}) const { return importFile(write("model.onnx", bytes()), options); }

  static std::vector<float> numbers(const std::vector<int64_t> &shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<size_t>(count));
    static float next = 0;
    for (float &value : values) value = ++next;
    return values;
  }

  ::onnx::ModelProto proto;
  std::string signature;
  std::filesystem::path folder;

private:
  ::onnx::TensorProto *tensorOf(const std::string &name, const std::vector<int64_t> &shape, int type) {
    ::onnx::TensorProto *tensor = proto.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (int64_t size : shape) tensor->add_dims(size);
    return tensor;
  }
  static ::onnx::ValueInfoProto *describe(::onnx::ValueInfoProto *value, const std::string &name,
                                          const std::vector<int64_t> &shape, int type) {
    value->set_name(name);
    value->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    for (int64_t size : shape) {
      auto *dim = value->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
      if (size < 0)
        dim->set_dim_param("batch");
      else
        dim->set_dim_value(size);
    }
    return value;
  }
};

} // namespace cleave::import_
