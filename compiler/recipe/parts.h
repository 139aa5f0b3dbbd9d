// Parts of a recipe that have files of their own; parse.cpp puts them together.
#pragma once
#include "compiler/recipe/yaml_reader.h"

namespace cleave::recipe {

// `loss`: one, or a list of losses that are added up.
void readLosses(MapReader &recipe, Source &source, std::vector<Loss> &losses);
void readOptimizer(MapReader reader, Source &source, Optimizer &optimizer);
void readClipNorms(MapReader &recipe, Source &source, Recipe &to);

} // namespace cleave::recipe
