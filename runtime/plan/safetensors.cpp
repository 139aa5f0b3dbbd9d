#include "runtime/plan/safetensors.h"
#include "runtime/base/packed.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace cleave::runtime {
namespace {

using Json = nlohmann::ordered_json;

struct TypeName {
  plan::DType dtype;
  const char *name;
};
constexpr TypeName typeNames[] = {
    {plan::F32, "F32"}, {plan::F64, "F64"}, {plan::F16, "F16"},   {plan::BF16, "BF16"},      {plan::I8, "I8"},
    {plan::I16, "I16"}, {plan::I32, "I32"}, {plan::I64, "I64"},   {plan::U8, "U8"},          {plan::U16, "U16"},
    {plan::U32, "U32"}, {plan::U64, "U64"}, {plan::BOOL, "BOOL"}, {plan::F8E4M3, "F8_E4M3"}, {plan::F8E5M2, "F8_E5M2"}};

std::string typeName(plan::DType dtype) {
  for (const TypeName &entry : typeNames)
    if (entry.dtype == dtype) return entry.name;
  return "";
}

plan::DType typeOf(const std::string &name) {
  for (const TypeName &entry : typeNames)
    if (name == entry.name) return entry.dtype;
  return plan::DTYPE_INVALID;
}

// The reference library's.
constexpr uint64_t longestHeader = 100'000'000;

Status ofRun(const Status &status) { return status ? Status::ok() : runError(status.message()); }

// The header as it is meant: a key that an object has twice is an error, which JSON itself leaves open.
Result<nlohmann::json> parseHeader(std::string_view text) {
  std::map<int, std::set<std::string>> keys; // of the objects that are open, by depth
  std::string twice;
  auto note = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json &parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) keys[depth + 1].clear();
    if (event == nlohmann::json::parse_event_t::key && !keys[depth].insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  // Not the ordered kind, whose time grows with the square of the keys.
  auto header = text.starts_with('{') ? nlohmann::json::parse(text, note, false) : nlohmann::json();
  if (!header.is_object()) return inputError("its header is damaged");
  if (!twice.empty()) return inputError(fmt::format("its header has '{}' twice", twice));
  return header;
}

// As JSON has them: get<uint64_t>() would take -1, 1.5 and true, too.
using Whole = const nlohmann::json::number_unsigned_t &;

} // namespace

Result<std::unique_ptr<SafetensorsWriter>>
SafetensorsWriter::create(const std::string &path, std::span<const TensorHeader> tensors,
                          const std::map<std::string, std::string> &metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (const TensorHeader &tensor : tensors) {
    const int64_t count = elementCount(tensor.shape);
    if (typeName(tensor.dtype).empty() || count < 0)
      return inputError(fmt::format("{}: tensor '{}' has a type or shape that cannot be written", path, tensor.name));
    const uint64_t begin = std::exchange(end, end + static_cast<uint64_t>(count * byteSize(tensor.dtype)));
    Json entry = {{"dtype", typeName(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    if (!header.emplace(tensor.name, std::move(entry)).second)
      return inputError(fmt::format("{}: two tensors are called '{}'", path, tensor.name));
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  if (length > longestHeader)
    return inputError(fmt::format("{}: {} tensors are too many for one file", path, tensors.size()));
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return ofRun(file.status());
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, std::move(*file)));
  writer->left = end;
  CLEAVE_RETURN_IF_ERROR(ofRun(writer->file.write(packed(length) + text)));
  return writer;
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > left) return inputError(path + ": is given more bytes than its tensors have");
  left -= bytes.size();
  return ofRun(file.write({reinterpret_cast<const char *>(bytes.data()), bytes.size()}));
}

Status SafetensorsWriter::close() {
  if (left != 0) return inputError(fmt::format("{}: {} bytes of its tensors are missing", path, left));
  return ofRun(file.commit());
}

Status writeSafetensors(const std::string &path, std::span<const TensorView> tensors,
                        const std::map<std::string, std::string> &metadata) {
  std::vector<TensorHeader> headers;
  for (const TensorView &tensor : tensors) {
    const int64_t count = elementCount(tensor.shape);
    if (count < 0 || static_cast<uint64_t>(count * byteSize(tensor.dtype)) != tensor.bytes.size())
      return inputError(fmt::format("{}: tensor '{}' has bytes that do not fit its shape", path, tensor.name));
    headers.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  CLEAVE_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(path, headers, metadata));
  for (const TensorView &tensor : tensors) CLEAVE_RETURN_IF_ERROR(writer->write(tensor.bytes));
  return writer->close();
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> mapped, MappedFile::open(path));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->file = std::move(mapped);
  CLEAVE_RETURN_IF_ERROR(file->parse(path));
  return file;
}

Status SafetensorsFile::parse(const std::string &path) {
  std::string_view bytes = file->bytes();
  uint64_t length = 0;
  if (bytes.size() < 8) return inputError(path + ": is not a safetensors file");
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8 || length > longestHeader)
    return inputError(path + ": is not a safetensors file, or is cut off");
  Result<nlohmann::json> header = parseHeader(bytes.substr(8, length));
  if (!header) return inputError(path + ": " + header.status().message());
  headerBytes = 8 + length;
  const char *data = bytes.data() + headerBytes;
  const uint64_t room = bytes.size() - headerBytes;
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, const TensorView *>> places; // in the file
  try {
    for (const auto &[name, entry] : header->items()) {
      if (name == "__metadata__") {
        if (!entry.is_null()) meta = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      TensorView view{name, typeOf(entry.at("dtype").get<std::string>()), {}, {}};
      for (const auto &size : entry.at("shape").get_ref<const nlohmann::json::array_t &>())
        view.shape.push_back(static_cast<int64_t>(size.get_ref<Whole>()));
      const auto &offsets = entry.at("data_offsets");
      const uint64_t begin = offsets.at(0).get_ref<Whole>(), end = offsets.at(1).get_ref<Whole>();
      int64_t count = elementCount(view.shape);
      if (view.dtype == plan::DTYPE_INVALID)
        return inputError(fmt::format("{}: tensor '{}' has the unknown type {}", path, name, entry.at("dtype").dump()));
      if (offsets.size() != 2 || end > room || begin > end)
        return inputError(fmt::format("{}: is cut off: tensor '{}' ends beyond the file", path, name));
      if (count < 0 || count > static_cast<int64_t>(room) ||
          static_cast<uint64_t>(count * byteSize(view.dtype)) != end - begin)
        return inputError(fmt::format("{}: tensor '{}' has bytes that do not fit its shape", path, name));
      view.bytes = std::as_bytes(std::span(data + begin, static_cast<size_t>(end - begin)));
      places.emplace_back(std::pair(begin, end), &(views[name] = std::move(view)));
    }
  } catch (const nlohmann::json::exception &) {
    return inputError(path + ": its header is damaged");
  }
  std::ranges::sort(places, {}, &std::pair<std::pair<uint64_t, uint64_t>, const TensorView *>::first);
  uint64_t end = 0;
  for (const auto &[place, view] : places) {
    if (place.first != end)
      return inputError(fmt::format("{}: tensor '{}' begins at byte {} of the data, and the one before it ends at {}",
                                    path, view->name, place.first, end));
    end = place.second;
  }
  if (end != room) return inputError(fmt::format("{}: {} bytes follow the last tensor", path, room - end));
  return Status::ok();
}

const TensorView *SafetensorsFile::find(const std::string &name) const {
  auto found = views.find(name);
  return found == views.end() ? nullptr : &found->second;
}

} // namespace cleave::runtime
