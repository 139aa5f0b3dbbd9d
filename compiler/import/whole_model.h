// A model as one message that stands by itself: what `cleave export` puts trained weights into.
#pragma once
#include "compiler/import/model_file.h"

namespace cleave::import_ {

// The graph that is imported, as its file has it. Of a folder of artifacts the eval model, whose parameters are
// initializers that lie in the checkpoint.
Result<::onnx::ModelProto> readWhole(const ModelFile &model);

// Puts the data of every tensor that lies in another file, initializer or constant of a node, into the message; how
// many bytes. Error: names a file that is missing, or a range outside of it.
Result<int64_t> embedData(const ModelFile &model, ::onnx::ModelProto &whole);

// Bytes of tensors that one file holds beside its nodes: a message has at most 2 GiB.
inline constexpr int64_t mostEmbeddedBytes = (int64_t(2) << 30) - (64 << 20);
// An existing output stays as it was where this fails.
Status writeWhole(const ::onnx::ModelProto &whole, const std::string &output);

} // namespace cleave::import_
