// Opens an .onnx file: checked, parsed, with the tensor payloads left in the file.
//
//     Result<ModelFile> model = openModel("models/gpt.onnx");
//     model->proto.graph().node_size(), model->opsets.at("") == 20
#pragma once
#include "onnx/onnx_pb.h"
#include "runtime/plan/mapped_file.h"
#include <map>

namespace cleave::import_ {

inline constexpr int64_t oldestIr = 3, newestIr = 13, oldestOpset = 9, newestOpset = 27;

// Versions by domain; the default domain is "" (also for models that write "ai.onnx").
using Opsets = std::map<std::string, int64_t>;

struct ModelFile {
  std::string path;   // absolute
  std::string folder; // of the file: external data lies inside it
  std::shared_ptr<runtime::MappedFile> file;
  ::onnx::ModelProto proto;
  Opsets opsets;
};

// Errors, each beginning with the path: missing, empty, truncated or foreign file; a folder (onnxruntime-training's
// artifacts are named as not supported); no graph; IR version or default opset outside of the supported range.
Result<ModelFile> openModel(const std::string &path);

// "ai.onnx" and "" are the same domain; this is the one spelling used from here on: "".
std::string canonicalDomain(const std::string &domain);
Opsets readOpsets(const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto> &imports);

} // namespace cleave::import_
