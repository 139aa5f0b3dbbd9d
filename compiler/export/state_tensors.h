// The tensors of a PyTorch state_dict, one behind the other, without having them all in memory.
#pragma once
#include "compiler/export/export.h"
#include "compiler/export/trained_model.h"
#include "runtime/plan/safetensors_set.h"
#include <functional>

namespace cleave {

using Sink = std::function<Status(std::span<const std::byte>)>;

class StateTensors {
public:
  // `notes` says what is left out. Errors: a base that cannot be read or has other shapes; a prefix that no name has.
  static Result<StateTensors> of(const TrainedModel &model, const ExportRequest &request,
                                 std::vector<std::string> &notes);

  const std::vector<runtime::TensorHeader> &headers() const { return tensors; }
  // The bytes of one tensor, in pieces.
  Status write(size_t at, const Sink &sink) const;

private:
  StateTensors(const TrainedModel &model, import_::StateDict dict) : model(&model), dict(std::move(dict)) {}
  Status openBase(const std::string &path);
  Status addEntries(const ExportRequest &request, std::vector<std::string> &notes);
  Status checkNamed() const;
  void addBase(const ExportRequest &request);
  std::string nameInBase(const import_::StateEntry &entry) const;
  bool isInBase(const import_::StateEntry &entry, const runtime::TensorView &view) const;
  const import_::StateEntry *tiedTo(const runtime::TensorView &view) const;
  Status checkBase(const runtime::TensorHeader &tensor, bool isPart) const;
  const runtime::TensorView *ofBase(const std::string &key) const {
    const runtime::SafetensorsSet::Tensor *found = baseSet ? baseSet->find(key) : nullptr;
    return found ? found->view : nullptr;
  }
  Status writeParameter(const import_::StateEntry &entry, const Sink &sink) const;
  Status writeRowsOfTable(const import_::StateEntry &entry, const runtime::TensorView &table, const Sink &sink) const;

  const TrainedModel *model;
  import_::StateDict dict;
  std::vector<runtime::TensorHeader> tensors;
  std::vector<const import_::StateEntry *> entries; // by tensor; null: only the base has it
  std::set<std::string> names;                      // of the model's entries, stripped
  std::optional<runtime::SafetensorsSet> baseSet;
};

} // namespace cleave
