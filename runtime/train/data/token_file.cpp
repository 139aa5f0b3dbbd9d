#include "runtime/train/data/token_file.h"
#include "runtime/base/mapped_file.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

constexpr std::string_view indexMagic("MMIDIDX\0\0", 9);
constexpr size_t indexHeader = 9 + 8 + 1 + 8 + 8; // magic, version, type, sequences, documents

template <typename Number> Number numberAt(std::string_view bytes, size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

plan::DType typeOf(const std::string &word) {
  return word == "uint32" ? plan::U32 : word == "int32" ? plan::I32 : word == "int64" ? plan::I64 : plan::U16;
}

Status checkType(const std::string &path, const std::string &wanted, plan::DType type) {
  if (wanted.empty() || typeOf(wanted) == type) return Status::ok();
  return inputError(fmt::format("{}: its tokens are {}, as the file itself says, and data.dtype is {}: leave it out",
                                path, name(type), wanted));
}

// As many elements as the bytes have.
Array rowOf(plan::DType type, std::string_view bytes, std::shared_ptr<const void> storage) {
  Array row;
  row.dtype = type;
  row.shape = {static_cast<int64_t>(bytes.size()) / byteSize(type)};
  row.bytes = {reinterpret_cast<const std::byte *>(bytes.data()), static_cast<size_t>(row.shape[0] * byteSize(type))};
  row.storage = std::move(storage);
  return row;
}

// Wider numbers than they are read as show: all but every second, or every fourth, are 0.
Status checkWidth(const Array &array, const std::string &path) {
  constexpr int64_t looked = 4096, fewest = 64;
  const int64_t count = std::min(looked, array.shape[0]), unit = byteSize(array.dtype);
  if (count < fewest) return Status::ok();
  for (int64_t step : {8 / unit, 4 / unit}) {
    bool isWider = step > 1, hasTokens = false;
    for (int64_t i = 0; i < count && isWider; ++i) {
      const std::byte *at = array.bytes.data() + i * unit;
      const bool isZero = std::all_of(at, at + unit, [](std::byte byte) { return byte == std::byte(0); });
      hasTokens |= i % step == 0 && !isZero;
      isWider = i % step == 0 || isZero;
    }
    if (isWider && hasTokens)
      return inputError(fmt::format("{}: read as {}, only every {} token is not 0: are they int{} (dtype: int{})?",
                                    path, name(array.dtype), step == 2 ? "second" : "fourth", step * unit * 8,
                                    step * unit * 8));
  }
  return Status::ok();
}

// llm.c's dev/data/data_common.py writes these.
struct LlmcFormat {
  int32_t magic, version;
  plan::DType type;
};
constexpr LlmcFormat llmcFormats[] = {{20240520, 1, plan::U16}, {20240801, 7, plan::U32}};
constexpr size_t llmcHeader = 256 * sizeof(int32_t);

const LlmcFormat *llmcFormatOf(std::string_view bytes) {
  if (bytes.size() < llmcHeader) return nullptr;
  const auto *format = std::ranges::find(llmcFormats, numberAt<int32_t>(bytes, 0), &LlmcFormat::magic);
  return format == std::end(llmcFormats) ? nullptr : format;
}

Result<Array> readLlmc(const LlmcFormat &format, const std::shared_ptr<MappedFile> &file, const std::string &path) {
  const std::string_view bytes = file->bytes(), rest = bytes.substr(llmcHeader);
  if (const auto version = numberAt<int32_t>(bytes, 4); version != format.version)
    return inputError(
        fmt::format("{}: is a token file of llm.c in version {}, and {} is read", path, version, format.version));
  const int64_t tokens = numberAt<int32_t>(bytes, 8), unit = byteSize(format.type);
  if (tokens < 0 || tokens * unit != std::ssize(rest))
    return inputError(fmt::format("{}: its header (llm.c) says {} tokens of {} bytes, and {} bytes follow", path,
                                  tokens, unit, rest.size()));
  return rowOf(format.type, rest, file);
}

// Megatron's numbers of types; those of floats hold no tokens.
plan::DType indexedType(uint8_t code) {
  constexpr std::array<plan::DType, 9> types = {
      plan::DTYPE_INVALID, plan::U8, plan::I8, plan::I16, plan::I32, plan::I64, plan::DTYPE_INVALID,
      plan::DTYPE_INVALID, plan::U16};
  return code < types.size() ? types[code] : plan::DTYPE_INVALID;
}

// Where each document begins among the tokens, and the end: sequences lie one behind the other.
Result<std::vector<int64_t>> documentsOf(std::string_view index, const std::string &path, uint64_t sequences,
                                         uint64_t documents, int64_t unit) {
  const size_t lengthsAt = indexHeader, pointersAt = lengthsAt + 4 * sequences,
               documentsAt = pointersAt + 8 * sequences;
  std::vector<int64_t> ends(sequences + 1); // of the sequences before
  for (size_t i = 0; i < sequences; ++i) {
    const auto length = numberAt<int32_t>(index, lengthsAt + 4 * i);
    const auto pointer = numberAt<int64_t>(index, pointersAt + 8 * i);
    if (length < 0 || pointer != ends[i] * unit)
      return inputError(fmt::format("{}: sequence {} does not begin where the one before it ends", path, i));
    ends[i + 1] = ends[i] + length;
  }
  std::vector<int64_t> begins;
  int64_t before = 0;
  for (size_t i = 0; i < documents; ++i) {
    const auto sequence = numberAt<int64_t>(index, documentsAt + 8 * i);
    if (sequence < before || static_cast<uint64_t>(sequence) > sequences || (i == 0 && sequence != 0) ||
        (i + 1 == documents && static_cast<uint64_t>(sequence) != sequences))
      return inputError(fmt::format("{}: document {} begins at sequence {} of {}", path, i, sequence, sequences));
    begins.push_back(ends[static_cast<size_t>(before = sequence)]);
  }
  return begins;
}

Result<TokenFile> readIndexed(const std::string &path, const std::string &indexPath, const std::string &dtype,
                              bool withDocuments) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> index, MappedFile::open(indexPath));
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  const std::string_view bytes = index->bytes();
  if (bytes.size() < indexHeader || !bytes.starts_with(indexMagic) || numberAt<uint64_t>(bytes, 9) != 1)
    return inputError(fmt::format("{}: is not the index of Megatron-LM's MMapIndexedDataset, version 1, of {}; a file "
                                  "of tokens alone must have none beside it",
                                  indexPath, path));
  const auto code = numberAt<uint8_t>(bytes, 17);
  const plan::DType type = indexedType(code);
  if (type == plan::DTYPE_INVALID)
    return inputError(fmt::format("{}: its numbers are of type {}, which tokens are not", indexPath, code));
  CLEAVE_RETURN_IF_ERROR(checkType(path, dtype, type));
  const auto sequences = numberAt<uint64_t>(bytes, 18), documents = numberAt<uint64_t>(bytes, 26);
  const size_t room = bytes.size() - indexHeader; // a byte a sequence may follow: its mode
  if (sequences > room / 12 || documents > room / 8 || 12 * sequences + 8 * documents > room || documents < 1)
    return inputError(fmt::format("{}: is cut off: it has {} sequences and {} documents in {} bytes", indexPath,
                                  sequences, documents, bytes.size()));
  const int64_t unit = byteSize(type);
  uint64_t end = 0; // of the last sequence
  if (sequences > 0)
    end = numberAt<uint64_t>(bytes, indexHeader + 12 * sequences - 8) +
          static_cast<uint64_t>(unit) * numberAt<uint32_t>(bytes, indexHeader + 4 * sequences - 4);
  if (end != file->bytes().size())
    return inputError(fmt::format("{}: has {} bytes, and {} says {}", path, file->bytes().size(), indexPath, end));
  TokenFile result{path, rowOf(type, file->bytes(), file)};
  if (!withDocuments) return result;
  CLEAVE_ASSIGN_OR_RETURN(result.documents, documentsOf(bytes, indexPath, sequences, documents, unit));
  return result;
}

} // namespace

Result<TokenFile> openTokenFile(const std::string &given, const std::string &dtype, bool withDocuments) {
  std::error_code failure;
  const bool isPrefix = !fs::exists(given, failure) && fs::exists(given + ".idx", failure);
  const std::string path = isPrefix ? given + ".bin" : given;
  if (const std::string index = fs::path(path).replace_extension(".idx").string();
      path.ends_with(".bin") && fs::exists(index, failure))
    return readIndexed(path, index, dtype, withDocuments);
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  TokenFile result{path, {}};
  if (const LlmcFormat *format = llmcFormatOf(file->bytes())) {
    CLEAVE_RETURN_IF_ERROR(checkType(path, dtype, format->type));
    CLEAVE_ASSIGN_OR_RETURN(result.tokens, readLlmc(*format, file, path));
  } else if (path.ends_with(".npy")) {
    CLEAVE_ASSIGN_OR_RETURN(result.tokens, parseNpy(file->bytes(), file, path));
    if (result.tokens.shape.size() != 1 || isFloat(result.tokens.dtype))
      return inputError(fmt::format("{}: tokens are one row of integers, this is {}", path, describe(result.tokens)));
    CLEAVE_RETURN_IF_ERROR(checkType(path, dtype, result.tokens.dtype));
  } else {
    result.tokens = rowOf(typeOf(dtype), file->bytes(), file);
    CLEAVE_RETURN_IF_ERROR(checkWidth(result.tokens, path));
  }
  return result;
}

} // namespace cleave::runtime
