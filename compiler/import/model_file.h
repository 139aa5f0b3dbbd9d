// Opens an .onnx file, or a folder of onnxruntime-training's artifacts: checked, parsed, with the tensor payloads left
// in the file.
//
//     Result<ModelFile> model = openModel("models/gpt.onnx");
//     model->proto.graph().node_size(), model->opsets.at("") == 20
#pragma once
#include "compiler/recipe/model_training.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/mapped_file.h"
#include <map>

namespace cleave::import_ {

inline constexpr int64_t oldestIr = 3, newestIr = 14, oldestOpset = 1, newestOpset = 28;

// Versions by domain; the default domain is "" (also for models that write "ai.onnx").
using Opsets = std::map<std::string, int64_t>;

struct ModelFile {
  std::string path;    // absolute
  std::string folder;  // of the file: external data lies inside it
  std::string ownFile; // how data inside the file itself is named: ""; in a folder of artifacts the file's name
  std::shared_ptr<runtime::MappedFile> file;
  ::onnx::ModelProto proto;
  Opsets opsets;
  std::optional<recipe::ModelTraining> training; // what the model itself says of it
};

// Errors, each beginning with the path: missing, empty, truncated or foreign file; a folder without artifacts, or with
// unsound ones (artifacts.h); no graph; IR version or default opset outside of the supported range.
Result<ModelFile> openModel(const std::string &path);

// "ai.onnx" and "" are the same domain; this is the one spelling used from here on: "".
std::string canonicalDomain(const std::string &domain);
Opsets readOpsets(const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto> &imports);

} // namespace cleave::import_
