// Reads a recipe's `eval` map. Faults are thrown, as by MapReader.
#pragma once
#include "compiler/recipe/yaml_reader.h"

namespace cleave::recipe {

void readEval(Source &source, MapReader reader, const std::vector<Loss> &losses, Eval &eval);

} // namespace cleave::recipe
