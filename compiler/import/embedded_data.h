// Takes the tensor payloads out of a serialized ModelProto before it is parsed, so that weights embedded in the .onnx
// file are never copied: what is parsed is the model without them, plus a note for each where its bytes are in the
// file.
//
//     initializer {name: "w", dims: [64, 20], raw_data: 5120 bytes at 1234}
//     becomes
//     initializer {name: "w", dims: [64, 20], external_data {key: "cleave.embedded", value: "1234 5120"}}
//
// raw_data, and float_data and double_data when packed in one piece (which is how every writer writes them), are such
// payloads: little-endian, row-major, contiguous. Payloads of node attributes stay when they are small.
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx {
class TensorProto;
}

namespace cleave::import_ {

// `file` is the whole serialized ModelProto. Error (without the path): "truncated at byte 1234", "not a protobuf ...".
Result<std::string> stripEmbeddedData(std::string_view file);

struct EmbeddedRange {
  int64_t offset, length; // bytes, from the start of the .onnx file
};
// The note that stripEmbeddedData left in a tensor; none for other tensors.
std::optional<EmbeddedRange> embeddedRange(const ::onnx::TensorProto &tensor);

} // namespace cleave::import_
