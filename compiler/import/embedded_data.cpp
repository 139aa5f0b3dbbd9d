#include "compiler/import/embedded_data.h"
#include "dialects/onnx/file_keys.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/file_kind.h"
#include <charconv>
#include <cstring>

namespace cleave::import_ {
namespace {

using onnx::embeddedKey;

// Field numbers of onnx.proto.
enum ModelField : uint32_t { modelGraph = 7, modelTraining = 20 };
enum TrainingField : uint32_t { trainingInitialization = 1, trainingAlgorithm = 2 };
enum GraphField : uint32_t { graphNode = 1, graphInitializer = 5 };
enum NodeField : uint32_t { nodeAttribute = 5 };
enum AttributeField : uint32_t { attributeTensor = 5 };
enum TensorField : uint32_t { tensorFloatData = 4, tensorRawData = 9, tensorDoubleData = 10, tensorExternalData = 13 };
enum WireType : uint32_t { varint = 0, fixed64 = 1, lengthDelimited = 2, fixed32 = 5 };

struct Field {
  uint32_t number = 0;
  uint32_t wireType = 0;
  size_t begin = 0; // of the tag
  size_t payload = 0, end = 0;
};

// Walks the fields of the message file[begin, end).
class FieldReader {
public:
  FieldReader(std::string_view file, size_t begin, size_t end) : file(file), position(begin), end(end) {}

  // False at the end or on an error.
  bool next(Field &field) {
    if (failed || position >= end) return false;
    field.begin = position;
    uint64_t tag = 0;
    if (!readVarint(tag)) return fail();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wireType = static_cast<uint32_t>(tag & 7);
    if (field.number == 0) return fail();
    uint64_t length = 0;
    switch (field.wireType) {
    case varint:
      field.payload = position;
      if (!readVarint(length)) return fail();
      field.end = position;
      return true;
    case fixed64:
      length = 8;
      break;
    case fixed32:
      length = 4;
      break;
    case lengthDelimited:
      if (!readVarint(length)) return fail();
      break;
    default:
      return fail();
    }
    if (length > end - position) return fail();
    field.payload = position;
    position = field.end = position + length;
    return true;
  }

  std::optional<size_t> failedAt() const { return failed ? std::optional(position) : std::nullopt; }

private:
  bool fail() {
    failed = true;
    return false;
  }
  bool readVarint(uint64_t &value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && position < end; shift += 7) {
      auto byte = static_cast<unsigned char>(file[position++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return true;
    }
    return false;
  }

  std::string_view file;
  size_t position, end;
  bool failed = false;
};

void appendVarint(std::string &out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void appendBytes(std::string &out, uint32_t number, std::string_view payload) {
  appendVarint(out, number << 3 | lengthDelimited);
  appendVarint(out, payload.size());
  out.append(payload);
}

class Stripper {
public:
  explicit Stripper(std::string_view file) : file(file) {}

  bool model(size_t begin, size_t end, std::string &out) {
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      if (field.number == modelTraining) return nested(field, into, &Stripper::training);
      return field.number == modelGraph ? nested(field, into, &Stripper::graph) : keep(field, into);
    });
  }
  std::optional<size_t> failedAt;

private:
  using Message = bool (Stripper::*)(size_t, size_t, std::string &);

  bool training(size_t begin, size_t end, std::string &out) {
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      bool isGraph = field.number == trainingInitialization || field.number == trainingAlgorithm;
      return isGraph ? nested(field, into, &Stripper::graph) : keep(field, into);
    });
  }
  bool graph(size_t begin, size_t end, std::string &out) {
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      if (field.number == graphInitializer) return nested(field, into, &Stripper::initializer);
      return field.number == graphNode ? nested(field, into, &Stripper::node) : keep(field, into);
    });
  }
  bool node(size_t begin, size_t end, std::string &out) {
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      return field.number == nodeAttribute ? nested(field, into, &Stripper::attribute) : keep(field, into);
    });
  }
  bool attribute(size_t begin, size_t end, std::string &out) {
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      return field.number == attributeTensor ? nested(field, into, &Stripper::initializer) : keep(field, into);
    });
  }
  bool initializer(size_t begin, size_t end, std::string &out) {
    // A payload in several pieces is legal and means their concatenation: those stay for the parser.
    int payloads = 0;
    Field field;
    FieldReader count(file, begin, end);
    while (count.next(field)) payloads += isPayload(field);
    if (failure(count)) return false;
    return rewrite(begin, end, out, [&](const Field &field, std::string &into) {
      if (payloads != 1 || !isPayload(field)) return keep(field, into);
      std::string entry;
      appendBytes(entry, 1, embeddedKey);
      appendBytes(entry, 2, std::to_string(field.payload) + " " + std::to_string(field.end - field.payload));
      appendBytes(into, tensorExternalData, entry);
      return true;
    });
  }
  static bool isPayload(const Field &field) {
    return (field.number == tensorRawData || field.number == tensorFloatData || field.number == tensorDoubleData) &&
           field.wireType == lengthDelimited && field.end > field.payload;
  }

  template <typename Rewrite> bool rewrite(size_t begin, size_t end, std::string &out, Rewrite &&each) {
    FieldReader reader(file, begin, end);
    Field field;
    while (reader.next(field))
      if (!each(field, out)) return false;
    return !failure(reader);
  }
  bool keep(const Field &field, std::string &out) {
    out.append(file.substr(field.begin, field.end - field.begin));
    return true;
  }
  bool nested(const Field &field, std::string &out, Message message) {
    if (field.wireType != lengthDelimited) return keep(field, out);
    std::string inner;
    if (!(this->*message)(field.payload, field.end, inner)) return false;
    appendBytes(out, field.number, inner);
    return true;
  }
  bool failure(const FieldReader &reader) {
    if (!reader.failedAt()) return false;
    failedAt = reader.failedAt();
    return true;
  }

  std::string_view file;
};

} // namespace

Result<std::string> stripEmbeddedData(std::string_view file) {
  if (file.empty()) return inputError("the file is empty");
  Stripper stripper(file);
  std::string out;
  if (!stripper.model(0, file.size(), out)) {
    if (const std::string kind = runtime::fileKind(file); !kind.empty())
      return inputError("is not an ONNX model but " + kind);
    return inputError("is truncated or not an ONNX model (bad protobuf data at byte " +
                      std::to_string(stripper.failedAt.value_or(0)) + " of " + std::to_string(file.size()) + ")");
  }
  return out;
}

std::optional<EmbeddedRange> embeddedRange(const ::onnx::TensorProto &tensor) {
  for (const ::onnx::StringStringEntryProto &entry : tensor.external_data()) {
    if (entry.key() != embeddedKey) continue;
    EmbeddedRange range = {};
    const char *end = entry.value().data() + entry.value().size();
    auto offset = std::from_chars(entry.value().data(), end, range.offset);
    if (offset.ec != std::errc() || offset.ptr == end) return std::nullopt;
    auto length = std::from_chars(offset.ptr + 1, end, range.length);
    if (length.ec != std::errc() || range.offset < 0 || range.length < 0) return std::nullopt;
    return range;
  }
  return std::nullopt;
}

} // namespace cleave::import_
