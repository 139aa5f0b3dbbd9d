// How a recipe names parameters: globs, and exact names.
//
//     ParameterPatterns patterns({"*.bias", exactly("w[*]")});     // {"*.bias", "=w[*]"}
//     patterns.match({.name = "w[*]", .nodes = {}, .aliases = {}}) == 1
#pragma once
#include "compiler/recipe/recipe.h"
#include <unordered_map>

namespace cleave::recipe {

// The pattern "=NAME" of the parameter with just this name, whatever characters it has and whatever nodes are called.
std::string exactly(const std::string &name);
std::vector<std::string> exactly(std::vector<std::string> names);

// A parameter as patterns see it: a glob that fits its name, an alias's, or that of any node that uses it, names it.
struct ParameterNames {
  std::string name;
  std::vector<std::string> nodes, aliases; // aliases: tied to it
};

// A list of patterns, made once: names without '*' and '?' are looked up, so that a list with every parameter of a
// model takes no longer than the model is.
class ParameterPatterns {
public:
  explicit ParameterPatterns(const std::vector<std::string> &patterns);
  // The first pattern that names it, by its place in the list.
  std::optional<size_t> match(const ParameterNames &parameter) const;

private:
  std::unordered_map<std::string, size_t> exact, words; // words: of parameters and of nodes
  std::vector<std::pair<std::string, size_t>> globs;
};

// Every pattern of `trainable`, `frozen_rows`, `fp8.keep`, `init.rules` and `lora.match` must name at least one
// parameter ("*" may name none). Error: "gpt.yaml:9: no parameter matches trainable's '*.bais'; the nearest name is
// ...". `frozen` and `roles` may name what is no parameter of the graph, too: `others`.
Status checkGlobs(const Recipe &recipe, const std::vector<ParameterNames> &parameters,
                  std::vector<ParameterNames> others = {});

// The same of `no_decay`, `groups`, `clip_norms` and `grad_norms`, which may name adapters: `parameters` has those of
// `lora`, too. A group must have a parameter that no group before it has.
Status checkUpdateGlobs(const Recipe &recipe, const std::vector<ParameterNames> &parameters);

// Globs that fit several parameters only since an exporter merged these and one name is left, "b", "b#2": they are of
// several layers. One warning a glob.
std::vector<std::string> warnOfMergedNames(const Recipe &recipe, const std::vector<ParameterNames> &parameters);

} // namespace cleave::recipe
