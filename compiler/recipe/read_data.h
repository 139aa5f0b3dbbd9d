// Reads a recipe's `data` map. Faults are thrown, as by MapReader.
#pragma once
#include "compiler/recipe/yaml_reader.h"

namespace cleave::recipe {

void readData(Source &source, MapReader reader, const std::string &recipeFile, Data &data);
// Which symbolic dimensions are as long as a sequence is, once `dims` is read.
void findLengthDims(MapReader &reader, Recipe &recipe);

// Relative paths start at the recipe's folder; if nothing is there, at the current folder if something is there. A
// URL stays.
std::string absolutePath(const std::string &path, const std::string &recipeFile);

} // namespace cleave::recipe
