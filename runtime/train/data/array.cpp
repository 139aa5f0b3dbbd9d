#include "runtime/train/data/array.h"

#include "runtime/base/folder.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/zip.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

struct NumpyType {
  const char *descr;
  plan::DType dtype;
};
constexpr NumpyType numpyTypes[] = {{"<f4", plan::F32}, {"<f8", plan::F64}, {"<f2", plan::F16}, {"<i8", plan::I64},
                                    {"<i4", plan::I32}, {"<i2", plan::I16}, {"|i1", plan::I8},  {"<u8", plan::U64},
                                    {"<u4", plan::U32}, {"<u2", plan::U16}, {"|u1", plan::U8},  {"|b1", plan::BOOL}};

// The text after 'key': in a Python dictionary literal.
std::string_view valueOf(std::string_view header, std::string_view key) {
  size_t at = header.find(std::string("'").append(key).append("'"));
  if (at == std::string_view::npos) return {};
  at = header.find(':', at);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + 1);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

bool parseShape(std::string_view text, std::vector<int64_t> &shape) {
  if (text.empty() || text[0] != '(') return false;
  size_t end = text.find(')');
  if (end == std::string_view::npos) return false;
  std::string inner(text.substr(1, end - 1));
  const char *at = inner.c_str();
  while (*at) {
    char *after = nullptr;
    errno = 0;
    long long size = std::strtoll(at, &after, 10);
    if (after == at) return std::strspn(at, " ,") == std::strlen(at);
    if (errno != 0 || size < 0) return false;
    shape.push_back(size);
    at = after + std::strspn(after, " ,L");
  }
  return true;
}

template <typename To, typename From> void convert(const std::byte *from, int64_t count, std::byte *out) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    To result = static_cast<To>(value);
    std::memcpy(out + i * sizeof result, &result, sizeof result);
  }
}

} // namespace

Result<Array> parseNpy(std::string_view bytes, std::shared_ptr<const void> storage, const std::string &what) {
  constexpr std::string_view magic("\x93NUMPY", 6);
  if (bytes.size() < 12 || bytes.substr(0, 6) != magic) return inputError(what + ": is not a numpy array (.npy)");
  bool wide = bytes[6] >= 2; // version 2 and 3: a header length of 4 bytes
  size_t length = 0;
  std::memcpy(&length, bytes.data() + 8, wide ? 4 : 2);
  size_t begin = wide ? 12 : 10;
  if (length > bytes.size() - begin) return inputError(what + ": the array's header is cut off");
  std::string_view header = bytes.substr(begin, length);

  Array array;
  std::string_view descr = valueOf(header, "descr");
  for (const NumpyType &type : numpyTypes)
    if (descr.substr(0, 5) == fmt::format("'{}'", type.descr)) array.dtype = type.dtype;
  if (array.dtype == plan::DTYPE_INVALID)
    return inputError(fmt::format("{}: has the unsupported numpy type {}", what, descr.substr(0, descr.find(','))));
  if (valueOf(header, "fortran_order").substr(0, 5) != "False")
    return inputError(what + ": is in Fortran order; save np.ascontiguousarray(array)");
  if (!parseShape(valueOf(header, "shape"), array.shape)) return inputError(what + ": its shape cannot be read");
  int64_t count = elementCount(array.shape);
  size_t available = bytes.size() - begin - length;
  if (count < 0 || uint64_t(count) > available / static_cast<size_t>(byteSize(array.dtype)))
    return inputError(fmt::format("{}: is cut off: {} needs more than its {} bytes", what, describe(array), available));
  array.bytes = {reinterpret_cast<const std::byte *>(bytes.data() + begin + length),
                 static_cast<size_t>(count * byteSize(array.dtype))};
  array.storage = std::move(storage);
  return array;
}

Result<std::map<std::string, Array>> readArrays(const std::string &path) {
  std::map<std::string, Array> arrays;
  auto add = [&](std::string name, std::string_view bytes, std::shared_ptr<const void> storage) {
    if (name.size() > 4 && name.ends_with(".npy")) name.resize(name.size() - 4);
    CLEAVE_ASSIGN_OR_RETURN(arrays[name], parseNpy(bytes, std::move(storage), path + ": '" + name + "'"));
    return Status::ok();
  };
  CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(path));
  if (type == fs::file_type::directory) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
    for (const fs::path &entry : entries) {
      if (entry.extension() != ".npy") continue;
      CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(entry.string()));
      CLEAVE_RETURN_IF_ERROR(add(entry.filename().string(), file->bytes(), file));
    }
    if (arrays.empty()) return inputError(path + ": the folder holds no .npy file");
    return arrays;
  }
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<ZipEntry> entries, readZip(file->bytes(), path));
  for (ZipEntry &entry : entries) {
    if (!entry.name.ends_with(".npy")) continue;
    if (entry.inflated) {
      auto owned = std::make_shared<std::string>(std::move(*entry.inflated));
      CLEAVE_RETURN_IF_ERROR(add(entry.name, *owned, owned));
    } else {
      CLEAVE_RETURN_IF_ERROR(add(entry.name, entry.stored, file));
    }
  }
  return arrays;
}

std::string describe(const Array &array) {
  return fmt::format("{} [{}]", name(array.dtype), fmt::join(array.shape, ", "));
}

Status convertElements(const Array &array, int64_t begin, int64_t count, plan::DType to, std::byte *out) {
  const std::byte *from = array.bytes.data() + begin * byteSize(array.dtype);
  if (array.dtype == to) {
    if (count == 0) return Status::ok(); // nobody has a place for them
    std::memcpy(out, from, static_cast<size_t>(count * byteSize(to)));
    return Status::ok();
  }
  if (isFloat(array.dtype) && !isFloat(to))
    return inputError(
        fmt::format("an array of {} cannot serve as {}: round and convert it first", name(array.dtype), name(to)));
  if (isFloat(array.dtype)) {
    for (int64_t i = 0; i < count; ++i)
      storeFloat(to, loadFloat(array.dtype, from + i * byteSize(array.dtype)), out + i * byteSize(to));
    return Status::ok();
  }
  if (to == plan::F16 || to == plan::BF16) {
    for (int64_t i = 0; i < count; ++i)
      storeFloat(to, loadNumber(array.dtype, from + i * byteSize(array.dtype)), out + i * byteSize(to));
    return Status::ok();
  }
  auto convertTo = [&](auto zero) {
    return visitElementType(array.dtype, [&](auto of) { convert<decltype(zero), decltype(of)>(from, count, out); });
  };
  const bool done = to == plan::F32   ? convertTo(float{})
                    : to == plan::F64 ? convertTo(double{})
                    : to == plan::I64 ? convertTo(int64_t{})
                                      : to == plan::I32 && convertTo(int32_t{});
  if (!done) return inputError(fmt::format("an array of {} cannot serve as {}", name(array.dtype), name(to)));
  return Status::ok();
}

} // namespace cleave::runtime
