// The optimizer's state of a snapshot as a folder, which PyTorch's optimizers (cleave.load_into) and the recipe's
// `init: {optimizer: FOLDER}` take: optimizer.json and a state_dict for each kind (import/weights/optimizer_state.h).
#pragma once
#include "compiler/export/export.h"
#include "compiler/export/trained_model.h"

namespace cleave {

Result<Exported> writeOptimizerOf(TrainedModel &model, const ExportRequest &request,
                                  std::vector<std::string> &notes);

} // namespace cleave
