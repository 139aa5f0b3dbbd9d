#include "compiler/recipe/glob.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave::recipe {

std::string exactly(const std::string &name) { return "=" + name; }

std::vector<std::string> exactly(std::vector<std::string> names) {
  for (std::string &name : names) name = exactly(name);
  return names;
}

ParameterPatterns::ParameterPatterns(const std::vector<std::string> &patterns) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string &pattern = patterns[i];
    if (pattern.starts_with('='))
      exact.emplace(pattern.substr(1), i);
    else if (!names::isGlob(pattern))
      words.emplace(pattern, i);
    else
      globs.emplace_back(pattern, i);
  }
}

std::optional<size_t> ParameterPatterns::match(const ParameterNames &parameter) const {
  std::optional<size_t> first;
  auto take = [&](size_t place) { first = std::min(first.value_or(place), place); };
  auto tryName = [&](const std::string &name, bool isParameter) {
    if (auto found = exact.find(name); isParameter && found != exact.end()) take(found->second);
    if (auto found = words.find(name); found != words.end()) take(found->second);
    for (const auto &[glob, place] : globs)
      if (names::matchGlob(glob, name)) return take(place);
  };
  tryName(parameter.name, true);
  for (const std::string &alias : parameter.aliases) tryName(alias, true);
  for (const std::string &node : parameter.nodes) tryName(node, false);
  return first;
}

namespace {

// The names of parameters and their nodes.
struct KnownNames {
  explicit KnownNames(const std::vector<ParameterNames> &all) {
    for (const ParameterNames &one : all) {
      parameters.insert(one.name);
      parameters.insert(one.aliases.begin(), one.aliases.end());
      nodes.insert(one.nodes.begin(), one.nodes.end());
    }
  }
  bool has(const std::string &pattern) const {
    if (pattern == "*") return true;
    if (pattern.starts_with('=')) return parameters.count(pattern.substr(1)) > 0;
    if (parameters.count(pattern) || nodes.count(pattern)) return true;
    if (!names::isGlob(pattern)) return false;
    auto fits = [&](const std::string &name) { return names::matchGlob(pattern, name); };
    return std::any_of(parameters.begin(), parameters.end(), fits) || std::any_of(nodes.begin(), nodes.end(), fits);
  }
  std::set<std::string> parameters, nodes;
};

Status checkGlob(const std::string &where, const std::string &key, const std::string &glob, const KnownNames &known) {
  if (known.has(glob)) return Status::ok();
  bool isExact = glob.starts_with('=');
  std::vector<std::string> names;
  for (const std::string &name : known.parameters) names.push_back(isExact ? exactly(name) : name);
  return inputError(fmt::format("{}: no parameter{} matches '{}' of '{}'{}; `cleave inspect` lists them", where,
                                isExact ? "" : ", and no node that uses one,", glob, key,
                                names::suggestion(glob, names)));
}

// "b" of "b" and of its copy "b#2".
std::string mergedName(const std::string &name) { return name.substr(0, name.rfind('#')); }

void warnOf(const std::string &where, const std::string &key, const std::string &glob,
            const std::vector<ParameterNames> &parameters, std::vector<std::string> &warnings) {
  if (glob == "*" || !names::isGlob(glob) || glob.starts_with('=')) return;
  std::map<std::string, std::vector<std::string>> nodes; // by merged name
  for (const ParameterNames &parameter : parameters)
    if (names::matchGlob(glob, parameter.name) && parameter.aliases.empty())
      nodes[mergedName(parameter.name)].push_back(parameter.nodes.empty() ? parameter.name : parameter.nodes.front());
  for (const auto &[name, readers] : nodes)
    if (readers.size() > 1)
      warnings.push_back(
          fmt::format("{}: '{}' of '{}' matches {} parameters of several layers, which the exporter merged "
                      "into '{}': those of {}; nodes' names tell them apart",
                      where, glob, key, readers.size(), name, fmt::join(readers, ", ")));
}

// A group whose parameters all belong to groups before it changes nothing.
template <typename Group>
Status checkGroups(const char *key, const std::vector<Group> &groups, const std::vector<ParameterNames> &parameters) {
  std::vector<ParameterPatterns> patterns;
  for (const Group &group : groups) patterns.emplace_back(group.match);
  std::vector<size_t> own(groups.size());
  for (const ParameterNames &parameter : parameters)
    for (size_t i = 0; i < groups.size(); ++i)
      if (patterns[i].match(parameter)) {
        ++own[i];
        break;
      }
  for (size_t i = 0; i < groups.size(); ++i)
    if (own[i] == 0)
      return inputError(fmt::format("{}: all parameters of this group of '{}' ('{}') belong to groups before it, "
                                    "and the first that fits counts: move it up, or leave it out",
                                    groups[i].where, key, fmt::join(groups[i].match, "', '")));
  return Status::ok();
}

} // namespace

std::vector<std::string> warnOfMergedNames(const Recipe &recipe, const std::vector<ParameterNames> &parameters) {
  std::vector<std::string> warnings;
  for (const std::string &glob : recipe.trainable)
    warnOf(recipe.at("trainable"), "trainable", glob, parameters, warnings);
  for (const std::string &glob : recipe.optimizer.noDecay)
    warnOf(recipe.at("optimizer.no_decay"), "no_decay", glob, parameters, warnings);
  for (const OptimizerGroup &group : recipe.optimizer.groups)
    for (const std::string &glob : group.match) warnOf(group.where, "groups", glob, parameters, warnings);
  for (const InitRule &rule : recipe.init.rules)
    warnOf(recipe.at("init.rules"), "init.rules", rule.match, parameters, warnings);
  return warnings;
}

Status checkGlobs(const Recipe &recipe, const std::vector<ParameterNames> &parameters,
                  std::vector<ParameterNames> others) {
  const KnownNames known(parameters);
  others.insert(others.end(), parameters.begin(), parameters.end());
  const KnownNames tensors(others);
  for (const std::string &glob : recipe.frozen)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("frozen"), "frozen", glob, tensors));
  for (const auto &[name, role] : recipe.roles)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("roles." + name), "roles", exactly(name), tensors));
  for (const std::string &glob : recipe.trainable)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("trainable"), "trainable", glob, known));
  for (const FrozenRows &frozen : recipe.frozenRows)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("frozen_rows"), "frozen_rows", frozen.match, known));
  if (recipe.fp8.keep)
    for (const std::string &glob : *recipe.fp8.keep)
      CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("fp8.keep"), "fp8.keep", glob, known));
  for (const InitRule &rule : recipe.init.rules)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("init.rules"), "init.rules", rule.match, known));
  if (recipe.lora)
    for (const std::string &glob : recipe.lora->match)
      CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("lora.match"), "lora.match", glob, known));
  return Status::ok();
}

Status checkUpdateGlobs(const Recipe &recipe, const std::vector<ParameterNames> &parameters) {
  const KnownNames known(parameters);
  for (const std::string &glob : recipe.optimizer.noDecay)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("optimizer.no_decay"), "no_decay", glob, known));
  for (const OptimizerGroup &group : recipe.optimizer.groups)
    for (const std::string &glob : group.match) CLEAVE_RETURN_IF_ERROR(checkGlob(group.where, "groups", glob, known));
  for (const ClipGroup &group : recipe.clipNorms)
    for (const std::string &glob : group.match)
      CLEAVE_RETURN_IF_ERROR(checkGlob(group.where, "clip_norms", glob, known));
  for (const NormGroup &group : recipe.gradNorms)
    for (const std::string &glob : group.match)
      CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("grad_norms"), "grad_norms", glob, known));
  CLEAVE_RETURN_IF_ERROR(checkGroups("clip_norms", recipe.clipNorms, parameters));
  return checkGroups("optimizer.groups", recipe.optimizer.groups, parameters);
}

Status checkOutput(const Recipe &recipe, const std::vector<std::string> &outputs) {
  for (const Loss &loss : recipe.losses) {
    if (loss.outputs.empty() && outputs.size() != 1)
      return inputError(fmt::format("{}: the model has {} outputs; name the one the loss reads: `output: {}`",
                                    loss.where, outputs.size(), outputs.empty() ? "NAME" : outputs.front()));
    std::vector<std::string> named = loss.outputs;
    if (loss.labels.output) named.push_back(*loss.labels.output);
    for (const std::string &name : named)
      if (std::find(outputs.begin(), outputs.end(), name) == outputs.end())
        return inputError(
            fmt::format("{}: the model has no output '{}'; it has: {}", loss.where, name, fmt::join(outputs, ", ")));
  }
  return Status::ok();
}

} // namespace cleave::recipe
