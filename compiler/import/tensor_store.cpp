#include "compiler/import/tensor_store.h"
#include "compiler/import/embedded_data.h"
#include "runtime/base/folder.h"
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

namespace fs = std::filesystem;
using ::onnx::TensorProto;

namespace cleave::import_ {
namespace {

constexpr int64_t decodedFloatLimit = 64 * 1024; // bytes of float data not stored contiguously that is still accepted

// The data fields of TensorProto that are not contiguous in the file, as little-endian elements.
template <typename Element, typename Values> void append(std::string &out, const Values &values) {
  out.reserve(out.size() + values.size() * sizeof(Element));
  for (auto value : values) {
    auto element = static_cast<Element>(value);
    out.append(reinterpret_cast<const char *>(&element), sizeof element);
  }
}

bool decodeFields(const TensorProto &tensor, std::string &out) {
  switch (tensor.data_type()) {
  case TensorProto::FLOAT:
    append<float>(out, tensor.float_data());
    return true;
  case TensorProto::DOUBLE:
    append<double>(out, tensor.double_data());
    return true;
  case TensorProto::INT64:
    append<int64_t>(out, tensor.int64_data());
    return true;
  case TensorProto::UINT64:
    append<uint64_t>(out, tensor.uint64_data());
    return true;
  case TensorProto::UINT32:
    append<uint32_t>(out, tensor.uint64_data());
    return true;
  case TensorProto::INT32:
    append<int32_t>(out, tensor.int32_data());
    return true;
  case TensorProto::INT16:
    append<int16_t>(out, tensor.int32_data());
    return true;
  case TensorProto::INT8:
    append<int8_t>(out, tensor.int32_data());
    return true;
  case TensorProto::UINT16:
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
    append<uint16_t>(out, tensor.int32_data());
    return true;
  case TensorProto::UINT8:
  case TensorProto::FLOAT8E4M3FN:
  case TensorProto::FLOAT8E4M3FNUZ:
  case TensorProto::FLOAT8E5M2:
  case TensorProto::FLOAT8E5M2FNUZ:
  case TensorProto::FLOAT8E8M0:
  case TensorProto::FLOAT4E2M1: // packed
  case TensorProto::UINT4:
  case TensorProto::INT4:
  case TensorProto::UINT2:
  case TensorProto::INT2:
    append<uint8_t>(out, tensor.int32_data());
    return true;
  case TensorProto::BOOL:
    for (int32_t value : tensor.int32_data()) out.push_back(value != 0);
    return true;
  default:
    return false;
  }
}

Status parseNumber(const std::string &text, const std::string &what, int64_t &number) {
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0)
    return inputError(fmt::format("{}: external data has the bad number '{}'", what, text));
  return Status::ok();
}

// The path of `location` if it stays inside the folder.
Result<std::string> insideFolder(const std::string &folder, const std::string &location, const std::string &what) {
  auto refuse = [&](const char *why) {
    return inputError(fmt::format("{}: its data file '{}' {}; external data must lie inside the model's folder", what,
                                  location, why));
  };
  fs::path relative(location);
  if (location.empty()) return refuse("has no name");
  if (location.find('\0') != std::string::npos) return refuse("has a zero byte in its name");
  if (relative.is_absolute()) return refuse("is an absolute path");
  for (const fs::path &part : relative)
    if (part == "..") return refuse("leaves the folder with '..'");
  std::error_code failure;
  fs::path base = fs::canonical(folder, failure);
  if (failure) return refuse("has no readable folder");
  fs::path real = fs::weakly_canonical(base / relative, failure);
  if (failure) return refuse("cannot be resolved");
  fs::path rest = real.lexically_relative(base);
  if (rest.empty() || *rest.begin() == "..") return refuse("is a link that leaves the folder");
  return real.string();
}

} // namespace

int64_t elementBits(int32_t dataType) {
  switch (dataType) {
  case TensorProto::FLOAT4E2M1:
  case TensorProto::UINT4:
  case TensorProto::INT4:
    return 4;
  case TensorProto::UINT2:
  case TensorProto::INT2:
    return 2;
  default:
    return 8 * elementBytes(dataType);
  }
}

int64_t elementBytes(int32_t dataType) {
  switch (dataType) {
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::UINT64:
    return 8;
  case TensorProto::FLOAT:
  case TensorProto::INT32:
  case TensorProto::UINT32:
    return 4;
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::INT16:
  case TensorProto::UINT16:
    return 2;
  case TensorProto::INT8:
  case TensorProto::UINT8:
  case TensorProto::BOOL:
  case TensorProto::FLOAT8E4M3FN:
  case TensorProto::FLOAT8E4M3FNUZ:
  case TensorProto::FLOAT8E5M2:
  case TensorProto::FLOAT8E5M2FNUZ:
  case TensorProto::FLOAT8E8M0:
    return 1;
  default:
    return 0;
  }
}

std::string dataTypeName(int32_t dataType) {
  switch (dataType) {
  case TensorProto::FLOAT:
    return "float32";
  case TensorProto::DOUBLE:
    return "float64";
  case TensorProto::FLOAT16:
    return "float16";
  case TensorProto::BFLOAT16:
    return "bfloat16";
  case TensorProto::INT64:
    return "int64";
  case TensorProto::UINT64:
    return "uint64";
  case TensorProto::INT32:
    return "int32";
  case TensorProto::UINT32:
    return "uint32";
  case TensorProto::INT16:
    return "int16";
  case TensorProto::UINT16:
    return "uint16";
  case TensorProto::INT8:
    return "int8";
  case TensorProto::UINT8:
    return "uint8";
  case TensorProto::BOOL:
    return "bool";
  case TensorProto::STRING:
    return "string";
  case TensorProto::FLOAT8E4M3FN:
    return "float8e4m3fn";
  case TensorProto::FLOAT8E4M3FNUZ:
    return "float8e4m3fnuz";
  case TensorProto::FLOAT8E5M2:
    return "float8e5m2";
  case TensorProto::FLOAT8E5M2FNUZ:
    return "float8e5m2fnuz";
  case TensorProto::FLOAT8E8M0:
    return "float8e8m0";
  case TensorProto::FLOAT4E2M1:
    return "float4e2m1";
  case TensorProto::UINT4:
    return "uint4";
  case TensorProto::INT4:
    return "int4";
  case TensorProto::UINT2:
    return "uint2";
  case TensorProto::INT2:
    return "int2";
  default:
    return fmt::format("data type {}", dataType);
  }
}

int64_t StoredTensor::elements() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool StoredTensor::isFloat() const {
  return dataType == TensorProto::FLOAT || dataType == TensorProto::DOUBLE || dataType == TensorProto::FLOAT16 ||
         dataType == TensorProto::BFLOAT16;
}

Result<StoredTensor> TensorStore::locate(const TensorProto &tensor) {
  std::string what = fmt::format("{}: tensor '{}'", model.path, tensor.name());
  StoredTensor stored;
  stored.name = tensor.name();
  stored.dataType = tensor.data_type();
  stored.shape.assign(tensor.dims().begin(), tensor.dims().end());
  int64_t unit = elementBits(stored.dataType);
  if (unit == 0) return inputError(fmt::format("{} has the unsupported type {}", what, dataTypeName(stored.dataType)));
  stored.length = unit;
  for (int64_t size : stored.shape)
    if (size < 0 || __builtin_mul_overflow(stored.length, size, &stored.length))
      return inputError(fmt::format("{} has the impossible dimension {}", what, size));
  stored.length = (stored.length + 7) / 8;
  if (stored.length == 0) { // no bytes, wherever they would be
    stored.inFile = true;
    stored.path = model.ownFile;
    stored.bytes = "";
    return stored;
  }
  if (tensor.has_segment()) return inputError(what + " is stored in segments, which is not supported");

  if (std::optional<EmbeddedRange> range = embeddedRange(tensor)) {
    int64_t size = static_cast<int64_t>(model.file->bytes().size());
    if (range->length > size || range->offset > size - range->length)
      return inputError(what + ": its data lies outside of the file");
    if (range->length != stored.length)
      return inputError(
          fmt::format("{}: {} bytes are stored, its shape and type need {}", what, range->length, stored.length));
    stored.inFile = true;
    stored.path = model.ownFile;
    stored.offset = range->offset;
    stored.bytes = model.file->bytes().data() + range->offset;
    return stored;
  }
  if (tensor.data_location() == TensorProto::EXTERNAL) return locateExternal(tensor, std::move(stored));
  return decode(tensor, std::move(stored));
}

Result<StoredTensor> TensorStore::locateExternal(const TensorProto &tensor, StoredTensor stored) {
  std::string what = fmt::format("{}: tensor '{}'", model.path, tensor.name());
  int64_t length = stored.length;
  for (const ::onnx::StringStringEntryProto &entry : tensor.external_data()) {
    if (entry.key() == "location") stored.path = entry.value();
    if (entry.key() == "offset") CLEAVE_RETURN_IF_ERROR(parseNumber(entry.value(), what, stored.offset));
    if (entry.key() == "length") CLEAVE_RETURN_IF_ERROR(parseNumber(entry.value(), what, length));
  }
  if (length != stored.length)
    return inputError(fmt::format("{}: {} bytes are stored, its shape and type need {}", what, length, stored.length));
  if (files.find(stored.path) == files.end()) CLEAVE_RETURN_IF_ERROR(openExternal(stored.path, what));
  stored.inFile = true;
  const std::shared_ptr<runtime::MappedFile> &file = files.at(stored.path);
  if (!file) return stored;
  int64_t size = static_cast<int64_t>(file->bytes().size());
  if (length > size || stored.offset > size - length)
    return inputError(fmt::format("{}: its data (bytes {} to {}) lies beyond the end of '{}' ({} bytes)", what,
                                  stored.offset, stored.offset + length, stored.path, size));
  stored.bytes = file->bytes().data() + stored.offset;
  return stored;
}

Status TensorStore::openExternal(const std::string &location, const std::string &what) {
  Result<std::string> path = insideFolder(model.folder, location, what);
  if (!path) return path.status();
  const Result<fs::file_type> type = runtime::fileTypeOf(*path);
  if (!type) return inputError(what + ": its data file " + type.status().message());
  if (*type == fs::file_type::not_found) {
    missing.push_back(location);
    files[location] = nullptr;
    return Status::ok();
  }
  Result<std::shared_ptr<runtime::MappedFile>> file = runtime::MappedFile::open(*path);
  if (!file) return inputError(what + ": its data file " + file.status().message());
  files[location] = std::move(*file);
  return Status::ok();
}

Result<StoredTensor> TensorStore::decode(const TensorProto &tensor, StoredTensor stored) {
  std::string what = fmt::format("{}: tensor '{}'", model.path, tensor.name());
  stored.decoded = std::make_shared<std::string>();
  if (tensor.has_raw_data())
    *stored.decoded = tensor.raw_data();
  else if (!decodeFields(tensor, *stored.decoded))
    return inputError(fmt::format("{} has the unsupported type {}", what, dataTypeName(stored.dataType)));
  if (static_cast<int64_t>(stored.decoded->size()) != stored.length)
    return inputError(fmt::format("{}: {} bytes are stored, its shape and type need {}", what, stored.decoded->size(),
                                  stored.length));
  if (stored.isFloat() && stored.length > decodedFloatLimit)
    return inputError(what +
                      " is stored in unpacked fields; save the model again with onnx.save, which writes raw data");
  stored.bytes = stored.decoded->data();
  if (stored.length == 0) { // no bytes: they are as well in the file
    stored.inFile = true;
    stored.path = model.ownFile;
  }
  return stored;
}

} // namespace cleave::import_
