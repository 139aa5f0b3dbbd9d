// safetensors files of a state_dict: one, or shards with an index, as Hugging Face has them.
#pragma once
#include "compiler/export/export.h"
#include "compiler/export/trained_model.h"

namespace cleave {

Result<Exported> writeSafetensorsOf(const TrainedModel &model, const ExportRequest &request,
                                    std::vector<std::string> &notes);

} // namespace cleave
