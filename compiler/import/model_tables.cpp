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
  if (!options.init.checkpoint.empty()) {
    CLEAVE_ASSIGN_OR_RETURN(tables->initial, matchCheckpoint(tables->flat, options.init, tables->parameters));
  }
  if (options.init.optimizer.empty()) return tables;
  CLEAVE_ASSIGN_OR_RETURN(tables->optimizer, matchOptimizerState(tables->flat, options.init, tables->parameters));
  CLEAVE_RETURN_IF_ERROR(joinFolders(tables->initial, *tables->optimizer));
  return tables;
}

} // namespace cleave::import_
