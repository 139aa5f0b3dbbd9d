// Schemas of operators that the ONNX library does not know, of onnxruntime: its own domain's, and one that it puts into
// the standard's.
#pragma once
#include "onnx/defs/schema.h"
#include <map>
#include <string>

namespace cleave::normalize {

// By "domain::operator".
const std::map<std::string, ::onnx::OpSchema> &furtherSchemas();

} // namespace cleave::normalize
