#include "compiler/export/write_safetensors.h"
#include "compiler/export/state_tensors.h"
#include "runtime/base/atomic_file.h"
#include "runtime/plan/dtype.h"
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;

namespace cleave {
namespace {

int64_t bytesOf(const runtime::TensorHeader &tensor) {
  return runtime::elementCount(tensor.shape) * runtime::byteSize(tensor.dtype);
}

// The first tensor of every file: a file is closed before the tensor that would not fit.
std::vector<size_t> cutIntoShards(const std::vector<runtime::TensorHeader> &tensors, int64_t limit) {
  std::vector<size_t> starts = {0};
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (bytes > 0 && bytes + bytesOf(tensors[i]) > limit) starts.push_back(i), bytes = 0;
    bytes += bytesOf(tensors[i]);
  }
  return starts;
}

} // namespace

Result<Exported> writeSafetensorsOf(const TrainedModel &model, const ExportRequest &request,
                                    std::vector<std::string> &notes) {
  auto state = StateTensors::of(model, request, notes);
  if (!state) return state.status();
  const std::vector<runtime::TensorHeader> &tensors = state->headers();
  const std::vector<size_t> starts = cutIntoShards(tensors, request.shardBytes);
  const std::string stem = request.output.substr(0, request.output.size() - std::string_view(".safetensors").size());
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"step", std::to_string(model.manifest().step)}};
  nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  int64_t total = 0;
  Exported written{.tensors = int64_t(tensors.size()), .step = model.manifest().step};
  std::vector<std::unique_ptr<runtime::SafetensorsWriter>> writers; // they leave what is there until all are whole
  for (size_t shard = 0; shard < starts.size(); ++shard) {
    const size_t begin = starts[shard], end = shard + 1 < starts.size() ? starts[shard + 1] : tensors.size();
    const std::string path = starts.size() == 1
                                 ? request.output
                                 : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, starts.size());
    auto writer = runtime::SafetensorsWriter::create(path, std::span(tensors).subspan(begin, end - begin), metadata);
    if (!writer) return writer.status();
    for (size_t i = begin; i < end; ++i) {
      CLEAVE_RETURN_IF_ERROR(
          state->write(i, [&](std::span<const std::byte> bytes) { return (*writer)->write(bytes); }));
      index["weight_map"][tensors[i].name] = fs::path(path).filename().string();
      total += bytesOf(tensors[i]);
    }
    writers.push_back(std::move(*writer));
    written.files.push_back(path);
  }
  for (auto &writer : writers) CLEAVE_RETURN_IF_ERROR(writer->close());
  if (starts.size() == 1) return written;
  index["metadata"]["total_size"] = total;
  const std::string path = request.output + ".index.json";
  CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(index.dump(2) + "\n", path));
  written.files.push_back(path);
  return written;
}

} // namespace cleave
