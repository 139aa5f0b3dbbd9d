#include "runtime/train/state/changes.h"
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {
namespace {

// "optimizer.lr.peak" -> "0.01". Lists are one value.
void flatten(const YAML::Node &node, const std::string &path, std::map<std::string, std::string> &values) {
  if (node.IsMap()) {
    for (const auto &entry : node)
      flatten(entry.second, (path.empty() ? "" : path + ".") + entry.first.as<std::string>(), values);
    return;
  }
  YAML::Emitter text;
  text << YAML::Flow << node;
  values[path] = text.c_str();
}

std::map<std::string, std::string> valuesOf(const std::string &recipe) {
  std::map<std::string, std::string> values;
  try {
    flatten(YAML::Load(recipe), "", values);
  } catch (const YAML::Exception &) {
    values.clear();
  }
  return values;
}

} // namespace

std::vector<std::string> Changes::all() const {
  std::vector<std::string> both = refused;
  both.insert(both.end(), told.begin(), told.end());
  return both;
}

Changes changesSince(const SnapshotManifest &manifest, const plan::Plan &plan) {
  Changes changes;
  if (manifest.modelDigest != plan.model_digest()) changes.refused.emplace_back("the model: its graph is another");
  std::map<std::string, std::string> before = valuesOf(manifest.recipe), now = valuesOf(plan.recipe_yaml());
  std::map<std::string, std::string> all = before;
  all.insert(now.begin(), now.end());
  for (const auto &[key, value] : all) {
    auto was = before.find(key), is = now.find(key);
    if (was != before.end() && is != now.end() && was->second == is->second) continue;
    const std::string text = was == before.end() ? fmt::format("{}: is now {}", key, is->second)
                             : is == now.end()   ? fmt::format("{}: {} is gone", key, was->second)
                                                 : fmt::format("{}: {} is now {}", key, was->second, is->second);
    const bool isRefused = key == "seed" || key == "loss" || key.starts_with("loss.");
    (isRefused ? changes.refused : changes.told).push_back(text);
  }
  return changes;
}

} // namespace cleave::runtime
