#include "compiler/export/export.h"
#include "compiler/export/write_onnx.h"
#include "compiler/export/write_safetensors.h"

namespace cleave {

Result<std::vector<std::string>> exportSnapshot(const ExportRequest &request, std::vector<std::string> &notes) {
  const bool isOnnx = request.output.ends_with(".onnx");
  if (!isOnnx && !request.output.ends_with(".safetensors"))
    return Status(ErrorKind::Usage, "export writes .onnx or .safetensors, not '" + request.output + "'");
  if (isOnnx && (!request.base.empty() || !request.stripPrefix.empty() || request.dtype != plan::DTYPE_INVALID))
    return Status(ErrorKind::Usage, "--base, --strip-prefix and --dtype are for .safetensors: an .onnx file keeps its "
                                    "own names and types");
  auto model = TrainedModel::open(request.snapshot, request.model);
  if (!model) return model.status();
  if (!isOnnx) return writeSafetensorsOf(**model, request, notes);
  CLEAVE_RETURN_IF_ERROR(writeOnnxOf(**model, request.output));
  return std::vector<std::string>{request.output};
}

} // namespace cleave
