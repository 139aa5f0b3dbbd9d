// The kind of a file that someone gave in place of a model or a plan, by how it begins.
#pragma once
#include <string>
#include <string_view>

namespace cleave::runtime {

// A few words for an error, with the way out where there is one; "" for a kind that is not known.
//
//   fileKind("PK\3\4....archive/data.pkl") == "a PyTorch checkpoint: export the model with torch.onnx.export"
std::string fileKind(std::string_view bytes);

} // namespace cleave::runtime
