// Where optimizer state begins under the recipe's `init: {optimizer: FOLDER}`, which continues a training of PyTorch:
//
//     FOLDER/optimizer.json            {"steps": 1000, "state": ["exp_avg", "exp_avg_sq"]}
//     FOLDER/exp_avg.safetensors       a state_dict that has the state in place of each parameter
//
// `cleave export --optimizer` and cleave.save_optimizer write such a folder.
#pragma once
#include "compiler/import/weights/initial_weights.h"

namespace cleave::import_ {

struct OptimizerState {
  std::string folder;                                                    // absolute
  int64_t steps = 0;                                                     // done before
  std::map<std::string, std::map<size_t, std::vector<StoredRun>>> kinds; // by kind, such as exp_avg, and parameter
};

// Errors: no such folder, one of another form, tensors of other shapes than the parameters.
Result<OptimizerState> matchOptimizerState(const FlatGraph &flat, const recipe::Init &init,
                                           const ParameterTable &table);

// Makes the paths of both relative to one folder, which becomes that of `weights`. Error: they have no folder together.
Status joinFolders(InitialWeights &weights, OptimizerState &state);

} // namespace cleave::import_
