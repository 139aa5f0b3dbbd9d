// Names that Cleave writes into ONNX files, and reads from them.
#pragma once
#include <string_view>

namespace cleave::onnx {

inline constexpr std::string_view moduleStatementKey = "cleave.module"; // metadata: the module's parameters and buffers
inline constexpr std::string_view embeddedKey = "cleave.embedded";      // external data that lies in the file itself
inline constexpr std::string_view stepInput = "cleave.step";            // the input that holds the step's number

} // namespace cleave::onnx
