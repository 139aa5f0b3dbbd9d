// The adapters of a training with the recipe's `lora`, as PEFT saves them: what PeftModel.from_pretrained loads.
//
//     adapter/adapter_config.json          rank, alpha, and the modules that have adapters
//            /adapter_model.safetensors    base_model.model.h.0.q_proj.lora_A.weight [rank, in], ...lora_B.weight [out,
//            rank]
//                                          and what the recipe's `trainable` trains beside them
#pragma once
#include "compiler/export/export.h"
#include "compiler/export/trained_model.h"

namespace cleave {

Result<Exported> writeAdapterOf(const TrainedModel &model, const ExportRequest &request);

} // namespace cleave
