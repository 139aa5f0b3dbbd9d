#include "compiler/export/write_adapter.h"
#include "runtime/base/atomic_file.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/safetensors.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;

namespace cleave {
namespace {

using import_::StateEntry;
using runtime::TensorHeader;

class AdapterWriter {
public:
  AdapterWriter(const TrainedModel &model, const ExportRequest &request) : model(model), request(request) {}

  Result<Exported> run() {
    std::error_code failure;
    fs::create_directories(request.output, failure);
    if (failure) return inputError(fmt::format("{}: cannot be made: {}", request.output, failure.message()));
    for (const TrainedAdapter &adapter : model.adapters()) CLEAVE_RETURN_IF_ERROR(addAdapter(adapter));
    CLEAVE_RETURN_IF_ERROR(addTrained());
    if (!isStripped)
      return inputError(fmt::format("no name begins with --strip-prefix '{}'; the first is '{}'", request.stripPrefix,
                                    model.adapters().front().module));
    const std::string weights = (fs::path(request.output) / "adapter_model.safetensors").string(),
                      config = (fs::path(request.output) / "adapter_config.json").string();
    auto writer = runtime::SafetensorsWriter::create(weights, headers, {{"format", "pt"}});
    if (!writer) return writer.status();
    for (const std::vector<std::byte> &bytes : data) CLEAVE_RETURN_IF_ERROR((*writer)->write(bytes));
    CLEAVE_RETURN_IF_ERROR((*writer)->close());
    CLEAVE_RETURN_IF_ERROR(runtime::writeFileAtomically(configuration().dump(2) + "\n", config));
    return Exported{{config, weights}, int64_t(headers.size()), model.manifest().step};
  }

private:
  std::string stripped(const std::string &name) {
    if (!name.starts_with(request.stripPrefix)) return name;
    isStripped = true;
    return name.substr(request.stripPrefix.size());
  }

  // `values`: [rows, columns], written transposed.
  void add(const std::string &name, const std::vector<double> &values, int64_t rows, int64_t columns) {
    const plan::DType type = request.dtype == plan::DTYPE_INVALID ? plan::F32 : request.dtype;
    const auto width = static_cast<size_t>(runtime::byteSize(type));
    headers.push_back({"base_model.model." + name, type, {columns, rows}});
    std::vector<std::byte> &bytes = data.emplace_back(values.size() * width);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        runtime::storeFloat(type, values[size_t(r * columns + c)], bytes.data() + size_t(c * rows + r) * width);
  }

  Status addAdapter(const TrainedAdapter &adapter) {
    auto a = model.readAdapter(adapter.a), b = model.readAdapter(adapter.b);
    if (!a) return a.status();
    if (!b) return b.status();
    const std::string module = stripped(adapter.module);
    modules.push_back(module);
    add(module + ".lora_A.weight", *a, adapter.in, adapter.rank);
    add(module + ".lora_B.weight", *b, adapter.rank, adapter.out);
    // Is the weight [in, out] in PyTorch too, as transformers' Conv1D has it?
    for (const StateEntry &entry : model.tables().parameters.state.entries)
      if (entry.source == StateEntry::Source::Parameter && entry.parameter == adapter.parameter && !entry.isCopy)
        isInputMajor |= adapter.isInputMajor != entry.isTransposed;
    return Status::ok();
  }

  // Other weights that the recipe names: PEFT's modules_to_save.
  Status addTrained() {
    if (!model.usedRecipe().trainableGiven) return Status::ok();
    for (const StateEntry &entry : model.tables().parameters.state.entries) {
      if (entry.source != StateEntry::Source::Parameter || !model.parameter(entry.parameter).trainable) continue;
      if (std::ranges::any_of(model.adapters(), [&](const auto &one) { return one.parameter == entry.parameter; }))
        continue;
      const std::vector<int64_t> &shape = model.parameter(entry.parameter).tensor.shape;
      if (!entry.ranges.empty())
        return inputError(fmt::format("'{}' trains beside the adapters, and PEFT has no layer of its kind", entry.key));
      const plan::DType type = model.dtype(entry.parameter);
      std::vector<std::byte> bytes(static_cast<size_t>(runtime::elementCount(shape) * runtime::byteSize(type)));
      CLEAVE_RETURN_IF_ERROR(model.read(entry.parameter, {std::vector<int64_t>(shape.size(), 0), shape}, bytes));
      const std::vector<double> values = numbersOf(type, bytes);
      const std::string key = stripped(entry.key);
      add(key, values, entry.isTransposed ? shape[0] : int64_t(values.size()), entry.isTransposed ? shape[1] : 1);
      headers.back().shape = entry.shape;
      if (const std::string module = import_::moduleOfKey(key); saved.empty() || saved.back() != module)
        saved.push_back(module);
    }
    return Status::ok();
  }

  nlohmann::ordered_json configuration() const {
    const recipe::Lora &lora = *model.usedRecipe().lora;
    nlohmann::ordered_json config = {
        {"peft_type", "LORA"},    {"task_type", nullptr},           {"base_model_name_or_path", nullptr},
        {"r", lora.rank},         {"lora_alpha", lora.alpha},       {"lora_dropout", lora.dropout},
        {"bias", "none"},         {"fan_in_fan_out", isInputMajor}, {"init_lora_weights", true},
        {"inference_mode", true}, {"target_modules", modules},      {"modules_to_save", nullptr}};
    if (lora.alpha == std::floor(lora.alpha)) config["lora_alpha"] = static_cast<int64_t>(lora.alpha);
    if (!saved.empty()) config["modules_to_save"] = saved;
    return config;
  }

  const TrainedModel &model;
  const ExportRequest &request;
  std::vector<TensorHeader> headers;
  std::vector<std::vector<std::byte>> data;
  std::vector<std::string> modules, saved;
  bool isInputMajor = false, isStripped = request.stripPrefix.empty();
};

} // namespace

Result<Exported> writeAdapterOf(const TrainedModel &model, const ExportRequest &request) {
  return AdapterWriter(model, request).run();
}

} // namespace cleave
