#include "compiler/recipe/recipe.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace cleave::recipe {

bool matchGlob(const std::string &pattern, const std::string &name) {
  size_t p = 0, n = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matchAny(const std::vector<std::string> &patterns, const std::string &name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string &pattern) { return matchGlob(pattern, name); });
}

bool matchParameter(const std::vector<std::string> &patterns, const ParameterNames &parameter) {
  return matchAny(patterns, parameter.name) ||
         std::any_of(parameter.nodes.begin(), parameter.nodes.end(),
                     [&](const std::string &node) { return matchAny(patterns, node); });
}

namespace {

size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

Status checkGlob(const std::string &where, const std::string &key, const std::string &glob,
                 const std::vector<ParameterNames> &parameters) {
  if (glob == "*") return Status::ok();
  for (const ParameterNames &parameter : parameters)
    if (matchParameter({glob}, parameter)) return Status::ok();
  std::vector<std::string> names;
  for (const ParameterNames &parameter : parameters) names.push_back(parameter.name);
  std::string nearest = nearestWord(glob, names);
  return inputError(
      fmt::format("{}: no parameter, and no node that uses one, matches '{}' of '{}'{}; `cleave inspect` lists them",
                  where, glob, key, nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

} // namespace

std::string nearestWord(const std::string &word, const std::vector<std::string> &candidates) {
  std::string best;
  size_t bestDistance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string &candidate : candidates)
    if (size_t distance = editDistance(word, candidate); distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  return best;
}

Status checkGlobs(const Recipe &recipe, const std::vector<ParameterNames> &parameters) {
  for (const std::string &glob : recipe.trainable)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("trainable"), "trainable", glob, parameters));
  for (const std::string &glob : recipe.optimizer.noDecay)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("optimizer.no_decay"), "no_decay", glob, parameters));
  for (const InitRule &rule : recipe.init.rules)
    CLEAVE_RETURN_IF_ERROR(checkGlob(recipe.at("init.rules"), "init.rules", rule.match, parameters));
  return Status::ok();
}

Status checkOutput(const Recipe &recipe, const std::vector<std::string> &outputs) {
  if (!recipe.loss.output) {
    if (outputs.size() == 1) return Status::ok();
    return inputError(fmt::format("{}: the model has {} outputs; name the one the loss reads: `output: {}`",
                                  recipe.at("loss"), outputs.size(), outputs.empty() ? "NAME" : outputs.front()));
  }
  if (std::find(outputs.begin(), outputs.end(), *recipe.loss.output) != outputs.end()) return Status::ok();
  std::string list;
  for (const std::string &output : outputs) list += (list.empty() ? "" : ", ") + output;
  return inputError(
      fmt::format("{}: the model has no output '{}'; it has: {}", recipe.at("loss.output"), *recipe.loss.output, list));
}

} // namespace cleave::recipe
