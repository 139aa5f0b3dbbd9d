#include "compiler/export_snapshot.h"
#include "compiler/import/import.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "onnx/onnx_pb.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/plan_file.h"
#include "runtime/state/snapshot.h"
#include <fstream>

using namespace mlir;
namespace cleave {
namespace {

using runtime::Snapshot;
using runtime::SnapshotManifest;

bool endsWith(const std::string &text, const std::string &end) { return StringRef(text).ends_with(end); }

Result<std::vector<std::byte>> readWhole(const Snapshot &snapshot, const std::string &name,
                                         const SnapshotManifest::Tensor &tensor) {
  runtime::Shard whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  std::vector<std::byte> bytes(size_t(runtime::elementCount(tensor.shape) * runtime::byteSize(tensor.dtype)));
  CLEAVE_RETURN_IF_ERROR(snapshot.read(name, tensor.dtype, tensor.shape, whole, bytes));
  return bytes;
}

bool isWeight(const SnapshotManifest::Tensor &tensor) {
  return tensor.role == plan::Parameter::PARAMETER || tensor.role == plan::Parameter::RUNNING_STATISTIC;
}

// Where a weight's value is: in its fp32 copy, if the training kept it in 16 bits.
std::string sourceOf(const SnapshotManifest &manifest, const std::string &weight) {
  std::string master = runtime::masterName(weight);
  return manifest.tensors.count(master) ? master : weight;
}

const std::vector<int64_t> &fileShape(const SnapshotManifest::Tensor &tensor) {
  return tensor.originalShape.empty() ? tensor.shape : tensor.originalShape;
}

Status exportSafetensors(const Snapshot &snapshot, const std::string &output) {
  std::vector<std::vector<std::byte>> storage;
  std::vector<runtime::TensorView> views;
  for (const auto &[name, weight] : snapshot.manifest().tensors) {
    if (!isWeight(weight)) continue;
    std::string source = sourceOf(snapshot.manifest(), name);
    const SnapshotManifest::Tensor &tensor = snapshot.manifest().tensors.at(source);
    auto bytes = readWhole(snapshot, source, tensor);
    if (!bytes) return bytes.status();
    storage.push_back(std::move(*bytes));
    views.push_back({name, tensor.dtype, fileShape(tensor), storage.back()});
  }
  return runtime::writeSafetensors(output, views, {{"format", "pt"}, {"step", std::to_string(snapshot.manifest().step)}});
}

// Where each initializer's new value comes from.
struct Origin {
  std::string parameter;
  bool transposed = false;
};

Result<std::map<std::string, Origin>> originsOf(const std::string &model) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<onnx::OnnxDialect, func::FuncDialect>();
  std::string diagnostics;
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) { diagnostics += diagnostic.str() + "\n"; });
  auto module = import_::importModel(context, model, {});
  if (failed(module)) return inputError(diagnostics);
  std::map<std::string, Origin> origins;
  for (auto param : (*module)->getOps<onnx::ParamOp>()) {
    std::string name = param.getSymName().str();
    origins.try_emplace(name, Origin{name, false});
    if (auto aliases = param.getAliases())
      for (auto alias : aliases->getAsRange<StringAttr>()) origins[alias.str()] = {name, false};
    if (auto aliases = param->getAttrOfType<ArrayAttr>("onnx.transposed_aliases"))
      for (auto alias : aliases.getAsRange<StringAttr>()) origins[alias.str()] = {name, true};
  }
  return origins;
}

std::vector<std::byte> transposed(const std::vector<std::byte> &bytes, int64_t rows, int64_t columns) {
  size_t width = bytes.size() / size_t(std::max<int64_t>(rows * columns, 1));
  std::vector<std::byte> out(bytes.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(out.data() + size_t(c * rows + r) * width, bytes.data() + size_t(r * columns + c) * width, width);
  return out;
}

Status replaceInitializer(const Snapshot &snapshot, const Origin &origin, ::onnx::TensorProto &initializer,
                          int64_t &total) {
  std::string source = sourceOf(snapshot.manifest(), origin.parameter);
  const SnapshotManifest::Tensor &tensor = snapshot.manifest().tensors.at(source);
  auto bytes = readWhole(snapshot, source, tensor);
  if (!bytes) return bytes.status();
  const std::vector<int64_t> &shape = fileShape(tensor);
  if (initializer.data_type() != ::onnx::TensorProto::FLOAT || tensor.dtype != plan::F32)
    return inputError("initializer '" + initializer.name() + "' is not float32: export to .safetensors instead");
  if (runtime::elementCount(initializer.dims()) != runtime::elementCount(shape))
    return inputError("initializer '" + initializer.name() + "' of the model has another size than the snapshot's '" +
                      origin.parameter + "'");
  std::vector<std::byte> data =
      origin.transposed && shape.size() == 2 ? transposed(*bytes, shape[0], shape[1]) : std::move(*bytes);
  initializer.clear_float_data();
  initializer.clear_external_data();
  initializer.clear_data_location();
  initializer.set_raw_data(data.data(), data.size());
  total += int64_t(data.size());
  return Status::ok();
}

Status exportOnnx(const Snapshot &snapshot, const std::string &output, const std::string &model) {
  auto origins = originsOf(model);
  if (!origins) return origins.status();
  std::ifstream file(model, std::ios::binary);
  ::onnx::ModelProto proto;
  if (!file || !proto.ParseFromIstream(&file)) return inputError(model + ": cannot be read as an ONNX model");
  int64_t total = 0;
  for (::onnx::TensorProto &initializer : *proto.mutable_graph()->mutable_initializer()) {
    auto origin = origins->find(initializer.name());
    if (origin == origins->end() || !snapshot.manifest().tensors.count(origin->second.parameter)) continue;
    CLEAVE_RETURN_IF_ERROR(replaceInitializer(snapshot, origin->second, initializer, total));
    if (total > (int64_t(2) << 30) - (64 << 20))
      return inputError("the weights do not fit into one ONNX file (2 GiB): export to .safetensors instead");
  }
  if (total == 0) return inputError(model + " has none of the snapshot's parameters");
  // Copies that the importer untied ("bias#2") have no initializer of their own.
  for (const auto &[name, tensor] : snapshot.manifest().tensors)
    if (isWeight(tensor) && StringRef(name).contains('#'))
      return inputError("'" + name + "' was untied from an initializer that several nodes share, so the model's file has " +
                        "no place for it: export to .safetensors instead");
  std::string bytes;
  if (!proto.SerializeToString(&bytes)) return inputError("the model cannot be serialized");
  return runtime::writeFileAtomically(bytes, output);
}

} // namespace

Status exportSnapshot(const std::string &path, const std::string &output, const std::string &model) {
  auto snapshot = Snapshot::open(path);
  if (!snapshot) return snapshot.status();
  if (endsWith(output, ".safetensors")) return exportSafetensors(**snapshot, output);
  if (endsWith(output, ".onnx"))
    return exportOnnx(**snapshot, output, model.empty() ? (*snapshot)->manifest().modelPath : model);
  return Status(ErrorKind::Usage, "export writes .onnx or .safetensors, not '" + output + "'");
}

} // namespace cleave
