#include "compiler/export/export.h"
#include "compiler/export/write_adapter.h"
#include "compiler/export/write_onnx.h"
#include "compiler/export/write_optimizer.h"
#include "compiler/export/write_safetensors.h"

namespace cleave {

Result<Exported> exportSnapshot(const ExportRequest &request, std::vector<std::string> &notes) {
  const bool isOnnx = request.output.ends_with(".onnx");
  const bool isFolder = !isOnnx && !request.output.ends_with(".safetensors");
  if (isOnnx && (!request.base.empty() || !request.stripPrefix.empty() || request.dtype != plan::DTYPE_INVALID))
    return Status(ErrorKind::Usage, "--base, --strip-prefix and --dtype are for .safetensors: an .onnx file keeps its "
                                    "own names and types");
  auto model = TrainedModel::open(request, notes);
  if (!model) return model.status();
  if (request.optimizer && (!isFolder || request.ema || request.merge || !request.base.empty()))
    return Status(ErrorKind::Usage, "--optimizer writes a folder, without --ema, --merge and --base");
  if (request.optimizer) return writeOptimizerOf(**model, request, notes);
  const bool hasAdapters = !(*model)->adapters().empty();
  if (isFolder && !hasAdapters)
    return Status(ErrorKind::Usage, "export writes .onnx or .safetensors, not '" + request.output + "'");
  if (isFolder && (request.merge || request.fileNames || !request.base.empty()))
    return Status(ErrorKind::Usage, "--merge, --names and --base are for .safetensors and .onnx: '" + request.output +
                                        "' is a folder of adapters, as PEFT has them");
  if (hasAdapters && !isFolder && !request.merge)
    return Status(ErrorKind::Usage, "the snapshot has adapters: -o FOLDER writes them as PEFT does, and --merge adds "
                                    "them to the weights of '" +
                                        request.output + "'");
  if (!hasAdapters && request.merge)
    return Status(ErrorKind::Usage, "--merge is for snapshots with adapters, and this one has none");
  if (isFolder) return writeAdapterOf(**model, request);
  return isOnnx ? writeOnnxOf(**model, request.output) : writeSafetensorsOf(**model, request, notes);
}

} // namespace cleave
