#include "compiler/import/checkpoint.h"
#include "compiler/import/tensor_store.h"
#include <filesystem>
#include <flatbuffers/flatbuffers.h>
#include <fmt/format.h>

namespace cleave::import_ {
namespace {

constexpr const char *identifier = "ODTC";
constexpr int32_t oldestVersion = 1, newestVersion = 2;
constexpr size_t sizeLimit = size_t(1) << 31; // of what a flatbuffer can address

// The tables, field by field: a field's number n is at the vtable's entry 4 + 2 n.
using FieldOffset = flatbuffers::voffset_t;
constexpr FieldOffset field(int number) { return static_cast<FieldOffset>(4 + 2 * number); }

class Table : protected flatbuffers::Table {
protected:
  using Verifier = flatbuffers::Verifier;
  bool text(Verifier &v, FieldOffset at) const {
    return VerifyOffset(v, at) && v.VerifyString(GetPointer<const flatbuffers::String *>(at));
  }
  template <typename Element> bool elements(Verifier &v, FieldOffset at) const {
    return VerifyOffset(v, at) && v.VerifyVector(GetPointer<const flatbuffers::Vector<Element> *>(at));
  }
  template <typename Other> bool tables(Verifier &v, FieldOffset at) const {
    auto *list = GetPointer<const flatbuffers::Vector<flatbuffers::Offset<Other>> *>(at);
    return VerifyOffset(v, at) && v.VerifyVector(list) && v.VerifyVectorOfTables(list);
  }
  template <typename Other> bool table(Verifier &v, FieldOffset at) const {
    return VerifyOffset(v, at) && v.VerifyTable(GetPointer<const Other *>(at));
  }
};

// {name, doc_string, dims, data_type, raw_data, string_data, external_data_offset}
class TensorTable : private Table {
public:
  bool Verify(Verifier &v) const {
    return VerifyTableStart(v) && text(v, field(0)) && elements<int64_t>(v, field(2)) &&
           VerifyField<int32_t>(v, field(3), 4) && elements<uint8_t>(v, field(4)) &&
           VerifyField<int64_t>(v, field(6), 8) && v.EndTable();
  }
  std::string name() const {
    auto *text = GetPointer<const flatbuffers::String *>(field(0));
    return text ? text->str() : "";
  }
  std::vector<int64_t> dims() const {
    auto *list = GetPointer<const flatbuffers::Vector<int64_t> *>(field(2));
    return list ? std::vector<int64_t>(list->begin(), list->end()) : std::vector<int64_t>();
  }
  int32_t dataType() const { return GetField<int32_t>(field(3), 0); }
  const flatbuffers::Vector<uint8_t> *bytes() const {
    return GetPointer<const flatbuffers::Vector<uint8_t> *>(field(4));
  }
  int64_t externalOffset() const { return GetField<int64_t>(field(6), -1); }
};
using Tensors = flatbuffers::Vector<flatbuffers::Offset<TensorTable>>;

// {requires_grad_params, frozen_params, is_nominal_state, has_external_data}
class ModuleTable : private Table {
public:
  bool Verify(Verifier &v) const {
    return VerifyTableStart(v) && tables<TensorTable>(v, field(0)) && tables<TensorTable>(v, field(1)) &&
           VerifyField<uint8_t>(v, field(2), 1) && VerifyField<uint8_t>(v, field(3), 1) && v.EndTable();
  }
  const Tensors *trained() const { return GetPointer<const Tensors *>(field(0)); }
  const Tensors *frozen() const { return GetPointer<const Tensors *>(field(1)); }
  bool isNominal() const { return GetField<uint8_t>(field(2), 0) != 0; }
};

// {group_name, step, initial_learning_rate, optimizer_states}
class GroupTable : private Table {
public:
  bool Verify(Verifier &v) const {
    return VerifyTableStart(v) && VerifyField<int64_t>(v, field(1), 8) && VerifyField<float>(v, field(2), 4) &&
           v.EndTable();
  }
  int64_t step() const { return GetField<int64_t>(field(1), 0); }
  float rate() const { return GetField<float>(field(2), 0); }
};
using Groups = flatbuffers::Vector<flatbuffers::Offset<GroupTable>>;

// {version, module_state, optimizer_groups, property_bag}
class CheckpointTable : private Table {
public:
  bool Verify(Verifier &v) const {
    return VerifyTableStart(v) && VerifyField<int32_t>(v, field(0), 4) && table<ModuleTable>(v, field(1)) &&
           tables<GroupTable>(v, field(2)) && v.EndTable();
  }
  int32_t version() const { return GetField<int32_t>(field(0), 0); }
  const ModuleTable *module() const { return GetPointer<const ModuleTable *>(field(1)); }
  const Groups *groups() const { return GetPointer<const Groups *>(field(2)); }
};

Result<std::vector<CheckpointTensor>> tensorsOf(const Tensors *list, const std::string &path, const char *begin) {
  std::vector<CheckpointTensor> tensors;
  const std::string file = std::filesystem::path(path).filename().string();
  if (!list) return tensors;
  for (const TensorTable *table : *list) {
    CheckpointTensor tensor{table->name(), table->dataType(), table->dims(), file, 0, 0};
    std::string what = fmt::format("{}: parameter '{}'", path, tensor.name);
    tensor.length = elementBytes(tensor.dataType);
    if (tensor.length == 0)
      return inputError(fmt::format("{} has the unsupported type {}", what, dataTypeName(tensor.dataType)));
    for (int64_t size : tensor.shape)
      if (size < 0 || __builtin_mul_overflow(tensor.length, size, &tensor.length))
        return inputError(fmt::format("{} has the impossible dimension {}", what, size));
    if (table->externalOffset() >= 0) {
      tensor.file += ".data";
      tensor.offset = table->externalOffset();
    } else {
      const flatbuffers::Vector<uint8_t> *bytes = table->bytes();
      int64_t stored = bytes ? bytes->size() : 0;
      if (stored != tensor.length)
        return inputError(
            fmt::format("{}: {} bytes are stored, its shape and type need {}", what, stored, tensor.length));
      if (bytes) tensor.offset = reinterpret_cast<const char *>(bytes->data()) - begin;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

} // namespace

Result<Checkpoint> readCheckpoint(const std::string &path) {
  Result<std::shared_ptr<runtime::MappedFile>> file = runtime::MappedFile::open(path);
  if (!file) return file.status();
  std::string_view bytes = (*file)->bytes();
  const char *begin = bytes.data();
  auto foreign = [&](const char *why) {
    return inputError(fmt::format("{}: is no checkpoint of onnxruntime-training: {}", path, why));
  };
  if (bytes.size() < 8 || bytes.size() >= sizeLimit) return foreign("its size cannot be one's");
  if (!flatbuffers::BufferHasIdentifier(begin, identifier)) return foreign("its identifier is not ODTC");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t *>(begin), bytes.size());
  if (!verifier.VerifyBuffer<CheckpointTable>(identifier)) return foreign("it is damaged or cut off");
  auto *root = flatbuffers::GetRoot<CheckpointTable>(begin);
  if (root->version() < oldestVersion || root->version() > newestVersion)
    return inputError(fmt::format("{}: has version {}; versions {} to {} are supported", path, root->version(),
                                  oldestVersion, newestVersion));
  const ModuleTable *module = root->module();
  if (!module) return inputError(path + ": holds no parameters");
  if (module->isNominal())
    return inputError(path + ": is nominal: it has the names of parameters without their values; give the complete "
                             "checkpoint");
  Checkpoint checkpoint;
  auto trained = tensorsOf(module->trained(), path, begin);
  if (!trained) return trained.status();
  auto frozen = tensorsOf(module->frozen(), path, begin);
  if (!frozen) return frozen.status();
  checkpoint.trained = std::move(*trained);
  checkpoint.frozen = std::move(*frozen);
  if (const Groups *groups = root->groups())
    for (const GroupTable *group : *groups) {
      checkpoint.learningRate = group->rate();
      checkpoint.steps = group->step();
    }
  return checkpoint;
}

} // namespace cleave::import_
