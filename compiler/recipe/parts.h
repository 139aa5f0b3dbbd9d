// Parts of a recipe that have files of their own; parse.cpp puts them together.
#pragma once
#include "compiler/recipe/yaml_reader.h"

namespace cleave::recipe {

// `loss`: one, or a list of losses that are added up.
void readLosses(MapReader &recipe, Source &source, std::vector<Loss> &losses);
void readOptimizer(MapReader reader, Source &source, Optimizer &optimizer);
void readClipNorms(MapReader &recipe, Source &source, Recipe &to);

void readData(Source &source, MapReader reader, const std::string &recipeFile, Data &data);
// Which symbolic dimensions are as long as a sequence is, once `dims` is read.
void findLengthDims(MapReader &reader, Recipe &recipe);
void readEval(Source &source, MapReader reader, const std::vector<Loss> &losses, Eval &eval);

// Relative paths start at the recipe's folder; if nothing is there, at the current folder if something is there. A URL
// stays.
std::string absolutePath(const std::string &path, const std::string &recipeFile);

} // namespace cleave::recipe
