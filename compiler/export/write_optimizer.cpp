#include "compiler/export/write_optimizer.h"
#include "compiler/export/write_safetensors.h"
#include "runtime/base/atomic_file.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;

namespace cleave {

Result<Exported> writeOptimizerOf(TrainedModel &model, const ExportRequest &request,
                                  std::vector<std::string> &notes) {
  const std::vector<std::string> kinds = model.stateKinds();
  if (std::ranges::find(kinds, "col_var") != kinds.end())
    return inputError(fmt::format("{}: the state of Adafactor cannot be exported: it has sums of rows and columns, which "
                                  "no other optimizer has; without --optimizer the weights are exported",
                                  request.snapshot));
  for (const auto &[name, tensor] : model.manifest().tensors)
    if (tensor.since > 0)
      return inputError(fmt::format("{}: '{}' began after {} steps: an exported optimizer has one number of steps for all",
                                    request.snapshot, name, tensor.since));
  CLEAVE_ASSIGN_OR_RETURN(const int64_t skipped, model.skippedSteps());
  std::error_code failure;
  fs::create_directories(request.output, failure);
  if (failure) return inputError(fmt::format("{}: cannot be made: {}", request.output, failure.message()));
  const std::string path = (fs::path(request.output) / "optimizer.json").string();
  fs::remove(path, failure); // of an earlier export: what is written beside it is not its state
  Exported written{.step = model.manifest().step};
  for (const std::string &kind : kinds) {
    ExportRequest one = request;
    one.output = (fs::path(request.output) / (kind + ".safetensors")).string();
    model.readState(kind);
    CLEAVE_ASSIGN_OR_RETURN(Exported part, writeSafetensorsOf(model, one, notes));
    for (const std::string &other : {one.output, one.output + ".index.json"})
      if (std::ranges::find(part.files, other) == part.files.end()) fs::remove(other, failure);
    written.files.insert(written.files.end(), part.files.begin(), part.files.end());
    written.tensors += part.tensors;
  }
  const nlohmann::ordered_json list = {{"steps", model.manifest().step - skipped}, {"state", kinds}};
  CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(list.dump(2) + "\n", path));
  written.files.push_back(path);
  return written;
}

} // namespace cleave
