#include "compiler/import/weights/optimizer_state.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;

namespace cleave::import_ {
namespace {

struct Listed {
  int64_t steps = 0;
  std::vector<std::string> kinds;
};

Result<Listed> readList(const fs::path &path) {
  std::ifstream file(path);
  if (!file)
    return inputError(fmt::format("{}: cannot be opened: 'init.optimizer' is a folder that `cleave export --optimizer` "
                                  "or cleave.save_optimizer wrote",
                                  path.string()));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  Listed listed;
  try {
    listed.steps = json.at("steps").get<int64_t>();
    listed.kinds = json.at("state").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception &) {
    return inputError(path.string() + ": has no 'steps' and 'state', as optimizer.json has");
  }
  if (listed.steps < 0) return inputError(path.string() + ": 'steps' is negative");
  for (const std::string &kind : listed.kinds)
    if (kind.empty() || kind.find('/') != std::string::npos)
      return inputError(fmt::format("{}: '{}' is no kind of state", path.string(), kind));
  return listed;
}

} // namespace

Result<OptimizerState> matchOptimizerState(const FlatGraph &flat, const recipe::Init &init,
                                           const ParameterTable &table) {
  const fs::path folder = init.optimizer;
  CLEAVE_ASSIGN_OR_RETURN(Listed listed, readList(folder / "optimizer.json"));
  OptimizerState state{init.optimizer, listed.steps, {}};
  for (const std::string &kind : listed.kinds) {
    recipe::Init of;
    const fs::path index = folder / (kind + ".safetensors.index.json");
    std::error_code failure;
    of.checkpoint = fs::exists(index, failure) ? index.string() : (folder / (kind + ".safetensors")).string();
    of.missing = recipe::MissingWeights::Keep; // frozen parameters have none, and the optimizer misses the others
    of.names = init.names;
    ParameterTable scratch = table;
    CLEAVE_ASSIGN_OR_RETURN(InitialWeights found, matchCheckpoint(flat, of, scratch));
    state.kinds[kind] = std::move(found.places);
  }
  return state;
}

Status joinFolders(InitialWeights &weights, OptimizerState &state) {
  const fs::path own = state.folder, of = weights.folder.empty() ? own : fs::path(weights.folder);
  fs::path common;
  for (auto [a, b] = std::pair(own.begin(), of.begin()); a != own.end() && b != of.end() && *a == *b; ++a, ++b)
    common /= *a;
  if (!common.has_relative_path())
    return inputError(fmt::format("{} and {} have no folder together: put the optimizer's state beside the weights",
                                  own.string(), of.string()));
  auto move = [&](const fs::path &from, std::map<size_t, std::vector<StoredRun>> &places) {
    for (auto &[at, runs] : places)
      for (StoredRun &run : runs) run.path = (from / run.path).lexically_relative(common).string();
  };
  move(of, weights.places);
  for (auto &[kind, places] : state.kinds) move(own, places);
  weights.folder = common.string();
  return Status::ok();
}

} // namespace cleave::import_
