// The parameters of a model that says what its tensors are (module_statement.h): nothing is guessed.
#pragma once
#include "compiler/import/weights/module_statement.h"
#include "compiler/import/weights/parameters.h"

namespace cleave::import_ {

ParameterTable statedParameters(const ModuleStatement &statement, const Initializers &initializers,
                                const GraphIndex &index, const ImportOptions &options);

} // namespace cleave::import_
