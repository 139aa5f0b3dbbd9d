#include "compiler/import/model_file.h"
#include "compiler/import/artifacts.h"
#include "compiler/import/embedded_data.h"
#include "compiler/import/training_info.h"
#include "runtime/base/folder.h"
#include <climits>
#include <filesystem>
#include <fmt/format.h>

namespace fs = std::filesystem;

namespace cleave::import_ {
namespace {

Status checkVersions(const std::string &path, const ModelFile &model) {
  const ::onnx::ModelProto &proto = model.proto;
  if (!proto.has_ir_version()) return inputError(path + ": is not an ONNX model (it has no ir_version)");
  if (proto.ir_version() < oldestIr || proto.ir_version() > newestIr)
    return inputError(fmt::format("{}: has ONNX IR version {}; versions {} to {} are supported; convert the model with "
                                  "onnx.version_converter or export it again",
                                  path, proto.ir_version(), oldestIr, newestIr));
  if (!proto.has_graph()) return inputError(path + ": holds no graph");
  auto standard = model.opsets.find("");
  if (standard == model.opsets.end()) {
    for (const ::onnx::NodeProto &node : proto.graph().node())
      if (canonicalDomain(node.domain()).empty())
        return inputError(fmt::format("{}: imports no opset for the default domain, which node '{}' ({}) needs", path,
                                      node.name(), node.op_type()));
  } else if (standard->second < oldestOpset || standard->second > newestOpset) {
    return inputError(fmt::format("{}: uses opset {}; opsets {} to {} are supported; convert the model with "
                                  "onnx.version_converter or export it again",
                                  path, standard->second, oldestOpset, newestOpset));
  }
  if (proto.graph().sparse_initializer_size() > 0)
    return inputError(fmt::format("{}: initializer '{}' is sparse, which is not supported; store it as a dense tensor",
                                  path, proto.graph().sparse_initializer(0).values().name()));
  return Status::ok();
}

} // namespace

std::string canonicalDomain(const std::string &domain) { return domain == "ai.onnx" ? "" : domain; }

Opsets readOpsets(const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto> &imports) {
  Opsets opsets;
  for (const ::onnx::OperatorSetIdProto &import : imports) opsets[canonicalDomain(import.domain())] = import.version();
  return opsets;
}

Result<ModelFile> openModel(const std::string &path) {
  const Result<fs::file_type> type = runtime::fileTypeOf(path);
  if (!type) return type.status();
  if (*type == fs::file_type::directory) {
    Result<std::vector<fs::path>> entries = runtime::entriesOf(path);
    if (!entries) return entries.status();
    if (isArtifactsFolder(*entries)) return openArtifacts(path);
    return inputError(path + ": is a folder without onnxruntime-training's artifacts; give the .onnx file inside it");
  }
  if (*type == fs::file_type::not_found) return inputError(path + ": there is no such file");
  Result<std::shared_ptr<runtime::MappedFile>> file = runtime::MappedFile::open(path);
  if (!file) return file.status();

  ModelFile model;
  model.path = fs::absolute(path).lexically_normal().string();
  model.folder = fs::path(model.path).parent_path().string();
  model.file = std::move(*file);
  Result<std::string> stripped = stripEmbeddedData(model.file->bytes());
  if (!stripped) return inputError(path + ": " + stripped.status().message());
  if (stripped->size() > INT_MAX)
    return inputError(path + ": holds more than 2 GiB besides its weights, more than Protocol Buffers can parse");
  if (!model.proto.ParseFromString(*stripped)) return inputError(path + ": is not an ONNX model (it cannot be parsed)");
  model.opsets = readOpsets(model.proto.opset_import());
  CLEAVE_RETURN_IF_ERROR(checkVersions(path, model));
  if (model.proto.training_info_size() > 0) model.training = readTrainingInfo(model);
  return model;
}

} // namespace cleave::import_
