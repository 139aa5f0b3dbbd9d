// A model's parameters with the values of a snapshot: those of the model's file where it has none, as for constants.
#pragma once
#include "compiler/export/export.h"
#include "compiler/import/model_tables.h"
#include "compiler/recipe/recipe.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/row_scales.h"
#include "runtime/train/state/snapshot.h"

namespace cleave {

// A low-rank adapter of the snapshot: compiler/training/adapters.h.
struct TrainedAdapter {
  size_t parameter = 0; // the weight beside it
  std::string module;   // PyTorch's
  std::string a, b;     // tensors of the snapshot, [in, rank] and [rank, out]
  int64_t in = 0, rank = 0, out = 0;
  bool isInputMajor = false; // the weight is [in, out] in the model's file
  bool isQuantized = false;
};

// The elements of a dense tensor of floats.
std::vector<double> numbersOf(plan::DType type, std::span<const std::byte> bytes);

class TrainedModel {
public:
  // The request's snapshot, model, merge and ema. `notes`: why newer snapshots of a folder are not taken. Errors: no
  // whole snapshot, one without averages, a model whose parameters are not the snapshot's, adapters to merge into
  // quantized weights.
  static Result<std::unique_ptr<TrainedModel>> open(const ExportRequest &request, std::vector<std::string> &notes);

  const import_::ModelTables &tables() const { return *source; }
  const import_::Parameter &parameter(size_t at) const { return source->parameters.parameters[at]; }
  const runtime::SnapshotManifest &manifest() const { return snapshot->manifest(); }
  const recipe::Recipe &usedRecipe() const { return trainedBy; }
  const std::vector<TrainedAdapter> &adapters() const { return found; }
  Result<int64_t> skippedSteps() const { return runtime::skippedBefore(*snapshot); }
  // Kinds of tensors that the optimizer keeps beside parameters: exp_avg, exp_avg_sq.
  std::vector<std::string> stateKinds() const;
  // From here on reads what the optimizer keeps beside each parameter.
  void readState(const std::string &of) { kind = of; }
  bool isState() const { return !kind.empty() && kind != runtime::averageKind; }
  // Whether there is something of the kind beside it.
  bool hasState(size_t at) const;
  // One of an adapter's matrices, whole, as it trained. Dense, in doubles.
  Result<std::vector<double>> readAdapter(const std::string &name) const;
  // Updates of the running statistics in the snapshot's steps.
  int64_t statisticUpdates() const;

  bool isTrained(size_t at) const { return places.contains(parameter(at).symbol()); }
  // The fp32 copy's, if the training kept the weight in 16 bits; f32 of state in 8 bits.
  plan::DType dtype(size_t at) const;
  // Whether parts of a parameter can be read; others only whole.
  bool hasBoxes(size_t at) const;
  // A box of the parameter's own shape, dense, into `out`. Error: there is no data, as when the model's file has none.
  Status read(size_t at, const runtime::Shard &box, std::span<std::byte> out) const;
  // The first values, of the model's file; null where it has none.
  const std::byte *initial(size_t at) const;

private:
  // A tensor of the snapshot, or one piece of a stacked one.
  struct Place {
    std::string tensor;
    int64_t piece = -1;
    std::vector<int64_t> shape; // as stored, the pieces' dimension included
  };
  // An adapter with its two matrices.
  struct MergedAdapter {
    const TrainedAdapter *adapter = nullptr;
    std::vector<double> a, b;
  };
  Status place();
  Status readMerged();
  Status findAdapters(const std::string &path, const import_::ImportOptions &options);
  Status readStored(const std::string &symbol, plan::DType dtype, const runtime::Shard &box,
                    std::span<std::byte> out) const;
  void addAdapter(const MergedAdapter &merged, const runtime::Shard &box, std::span<std::byte> out) const;
  // The snapshot's tensor that is read for it: of the kind, its fp32 copy, or itself.
  std::string storedName(const Place &place) const;
  plan::DType storedType(const std::string &symbol) const;
  // The scales of its rows, where it is state in 8 bits; else null.
  const runtime::SnapshotManifest::Tensor *scalesOf(const std::string &symbol) const;
  Status readScaled(const Place &place, const runtime::SnapshotManifest::Tensor &scales, const runtime::Shard &box,
                    std::span<std::byte> out) const;
  runtime::Shard storedWhole(const std::string &symbol) const;

  std::unique_ptr<runtime::Snapshot> snapshot;
  std::unique_ptr<import_::ModelTables> source;
  recipe::Recipe trainedBy;
  std::string kind; // of what is read in place of the weights: "ema", "exp_avg"; "": the weights
  std::vector<TrainedAdapter> found;
  std::map<size_t, MergedAdapter> merged; // by parameter
  std::map<std::string, Place> places;    // by symbol
};

} // namespace cleave
