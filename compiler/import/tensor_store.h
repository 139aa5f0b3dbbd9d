// Where a tensor's bytes are, and a look at them without copying: initializers inside the .onnx file, in external
// files, or spelled out in the protobuf message.
//
//     TensorStore store(model);
//     Result<StoredTensor> w = store.locate(initializer);
//     w->path == "weights.bin", w->offset == 4096, w->length == 5120, w->bytes (null when the file is missing)
#pragma once
#include "compiler/import/model_file.h"
#include <optional>
#include <vector>

namespace cleave::import_ {

struct StoredTensor {
  std::string name;
  int32_t dataType = 0; // ::onnx::TensorProto::DataType
  std::vector<int64_t> shape;
  bool inFile = false; // path, offset, length name a contiguous little-endian row-major range
  std::string path;    // relative to the model's folder; ModelFile::ownFile is the .onnx file itself
  int64_t offset = 0, length = 0;
  const char *bytes = nullptr;          // the data, `length` bytes; null when its file is missing
  std::shared_ptr<std::string> decoded; // owns bytes that are not in a file

  int64_t elements() const;
  bool isFloat() const; // f16, bf16, f32, f64
};

// Bits of one element; 0 for types that are not supported (strings, complex). Elements of 2 and 4 bits are packed, the
// first into a byte's lowest bits.
int64_t elementBits(int32_t dataType);
// Bytes of one element; 0 for types that are not supported, and those that are packed.
int64_t elementBytes(int32_t dataType);
std::string dataTypeName(int32_t dataType); // "float32", "int64", "bool", or "data type 17"

class TensorStore {
public:
  explicit TensorStore(const ModelFile &model) : model(model) {}

  // Errors (name the model file and the tensor): an external path that is absolute, has "..", or is a link that leaves
  // the model's folder; a range outside of its file; a length that contradicts the shape; unsupported data types.
  Result<StoredTensor> locate(const ::onnx::TensorProto &tensor);

  const std::vector<std::string> &missingFiles() const { return missing; }

private:
  Result<StoredTensor> locateExternal(const ::onnx::TensorProto &tensor, StoredTensor stored);
  Result<StoredTensor> decode(const ::onnx::TensorProto &tensor, StoredTensor stored);
  Status openExternal(const std::string &location, const std::string &what);

  const ModelFile &model;
  std::map<std::string, std::shared_ptr<runtime::MappedFile>> files; // null: missing
  std::vector<std::string> missing;
};

} // namespace cleave::import_
