#include "compiler/import/model_tables.h"
#include "compiler/import/training_info.h"

namespace cleave::import_ {

Result<std::unique_ptr<ModelTables>> readTables(const std::string &path, const ImportOptions &options) {
  Result<ModelFile> model = openModel(path);
  if (!model) return model.status();
  auto tables = std::make_unique<ModelTables>(std::move(*model));
  if (options.loss && tables->model.proto.training_info_size() > 0 && tables->model.training->loss == *options.loss)
    appendLoss(tables->model);
  Result<FlatGraph> flat = flattenFunctions(tables->model);
  if (!flat) return flat.status();
  tables->flat = std::move(*flat);
  Result<ParameterTable> parameters = classifyParameters(tables->model, tables->flat, tables->store, options);
  if (!parameters) return parameters.status();
  tables->parameters = std::move(*parameters);
  if (options.init.checkpoint.empty()) return tables;
  Result<InitialWeights> initial = matchCheckpoint(tables->flat, options.init, tables->parameters);
  if (!initial) return initial.status();
  tables->initial = std::move(*initial);
  return tables;
}

} // namespace cleave::import_
