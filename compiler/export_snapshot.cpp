#include "compiler/export_snapshot.h"
#include "compiler/import/import.h"
#include "compiler/import/whole_model.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "onnx/onnx_pb.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/plan_file.h"
#include "runtime/state/snapshot.h"

using namespace mlir;
namespace cleave {
namespace {

using runtime::Snapshot;
using runtime::SnapshotManifest;

bool endsWith(const std::string &text, const std::string &end) { return StringRef(text).ends_with(end); }

bool isWeight(const SnapshotManifest::Tensor &tensor) {
  return tensor.role == plan::Parameter::PARAMETER || tensor.role == plan::Parameter::RUNNING_STATISTIC;
}

// A weight of the model, by its own name: a tensor of the snapshot, or one piece of a stacked one.
struct Weight {
  std::string tensor;
  int64_t piece = -1;
};

std::map<std::string, Weight> weightsOf(const SnapshotManifest &manifest) {
  std::map<std::string, Weight> weights;
  for (const auto &[name, tensor] : manifest.tensors) {
    if (!isWeight(tensor)) continue;
    if (tensor.pieces.empty()) weights[name] = {name, -1};
    for (size_t i = 0; i < tensor.pieces.size(); ++i) weights[tensor.pieces[i].name] = {name, int64_t(i)};
  }
  return weights;
}

struct WeightData {
  plan::DType dtype;
  std::vector<int64_t> shape; // in the ONNX file
  std::vector<std::byte> bytes;
};

// The value is in the fp32 copy, if the training kept the weight in 16 bits.
Result<WeightData> readWeight(const Snapshot &snapshot, const Weight &weight) {
  const SnapshotManifest &manifest = snapshot.manifest();
  std::string master = runtime::masterName(weight.tensor);
  const std::string &source = manifest.tensors.count(master) ? master : weight.tensor;
  const SnapshotManifest::Tensor &tensor = manifest.tensors.at(source), &named = manifest.tensors.at(weight.tensor);
  runtime::Shard box{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  WeightData data{tensor.dtype, named.originalShape.empty() ? named.shape : named.originalShape, {}};
  if (weight.piece >= 0) {
    box.begin[0] = weight.piece, box.size[0] = 1;
    data.shape = named.pieces[size_t(weight.piece)].originalShape;
  }
  data.bytes.resize(size_t(runtime::elementCount(box.size) * runtime::byteSize(tensor.dtype)));
  CLEAVE_RETURN_IF_ERROR(snapshot.read(source, tensor.dtype, tensor.shape, box, data.bytes));
  return data;
}

Status exportSafetensors(const Snapshot &snapshot, const std::string &output) {
  std::map<std::string, WeightData> data;
  for (const auto &[name, weight] : weightsOf(snapshot.manifest())) {
    auto read = readWeight(snapshot, weight);
    if (!read) return read.status();
    data[name] = std::move(*read);
  }
  std::vector<runtime::TensorView> views;
  for (const auto &[name, weight] : data) views.push_back({name, weight.dtype, weight.shape, weight.bytes});
  return runtime::writeSafetensors(output, views,
                                   {{"format", "pt"}, {"step", std::to_string(snapshot.manifest().step)}});
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

Status replaceInitializer(const Snapshot &snapshot, const Weight &weight, const Origin &origin,
                          ::onnx::TensorProto &initializer) {
  auto read = readWeight(snapshot, weight);
  if (!read) return read.status();
  auto &[dtype, shape, bytes] = *read;
  if (initializer.data_type() != ::onnx::TensorProto::FLOAT || dtype != plan::F32)
    return inputError("initializer '" + initializer.name() + "' is not float32: export to .safetensors instead");
  if (runtime::elementCount(initializer.dims()) != runtime::elementCount(shape))
    return inputError("initializer '" + initializer.name() + "' of the model has another size than the snapshot's '" +
                      origin.parameter + "'");
  std::vector<std::byte> data =
      origin.transposed && shape.size() == 2 ? transposed(bytes, shape[0], shape[1]) : std::move(bytes);
  initializer.clear_float_data();
  initializer.clear_external_data();
  initializer.clear_data_location();
  initializer.set_raw_data(data.data(), data.size());
  return Status::ok();
}

Status checkFits(int64_t bytes) {
  if (bytes <= (int64_t(2) << 30) - (64 << 20)) return Status::ok();
  return inputError("the weights do not fit into one ONNX file (2 GiB): export to .safetensors instead");
}

Status exportOnnx(const Snapshot &snapshot, const std::string &output, const std::string &model) {
  auto origins = originsOf(model);
  if (!origins) return origins.status();
  auto opened = import_::openModel(model);
  if (!opened) return opened.status();
  auto read = import_::readWhole(*opened);
  if (!read) return read.status();
  ::onnx::ModelProto &proto = *read;
  std::map<std::string, Weight> weights = weightsOf(snapshot.manifest());
  struct Replaced {
    ::onnx::TensorProto *initializer;
    const Origin *origin;
    const Weight *weight;
  };
  std::vector<Replaced> replaced;
  int64_t total = 0;
  for (::onnx::TensorProto &initializer : *proto.mutable_graph()->mutable_initializer()) {
    auto origin = origins->find(initializer.name());
    if (origin == origins->end()) continue;
    auto weight = weights.find(origin->second.parameter);
    if (weight == weights.end()) continue;
    replaced.push_back({&initializer, &origin->second, &weight->second});
    total += int64_t(sizeof(float)) * runtime::elementCount(initializer.dims());
  }
  CLEAVE_RETURN_IF_ERROR(checkFits(total)); // before anything is read
  if (replaced.empty()) return inputError(model + " has none of the snapshot's parameters");
  // Copies that the importer untied ("bias#2") have no initializer of their own.
  for (const auto &[name, weight] : weights)
    if (StringRef(name).contains('#'))
      return inputError("'" + name +
                        "' was untied from an initializer that several nodes share, so the model's file has " +
                        "no place for it: export to .safetensors instead");
  for (const Replaced &one : replaced)
    CLEAVE_RETURN_IF_ERROR(replaceInitializer(snapshot, *one.weight, *one.origin, *one.initializer));
  // The file may go elsewhere: constants that are not trained come along.
  auto embedded = import_::embedData(*opened, proto);
  if (!embedded) return embedded.status();
  CLEAVE_RETURN_IF_ERROR(checkFits(total + *embedded));
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
