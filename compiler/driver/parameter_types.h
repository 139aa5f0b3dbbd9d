// What a model's own element types mean for its training: `precision` lowers the products of float32 tensors and keeps
// fp32 masters of their parameters; tensors of other types stay as the file has them, as in torch.autocast.
//
//   18 parameters are bfloat16 in the file, such as 'wte.weight': gradients, optimizer state ... are bfloat16, too ...
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace cleave {

// A warning for each type other than float32 that trained parameters have.
std::vector<std::string> warningsOfParameterTypes(mlir::ModuleOp module);

} // namespace cleave
