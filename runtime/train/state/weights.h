// Persistent tensors of a device before the first step: its slices of the model's weights, read from where they are,
// filled with a constant, or drawn from the counter-based generator (so that every split starts from the same numbers).
//
//     WeightReader weights(plan);                               // finds the model's files when first needed
//     CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, shard, bytes));   // bytes: the dense shard, parameter.dtype
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/weight_files.h"
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace cleave::runtime {

class WeightReader {
public:
  // `modelPath`: the .onnx file (or the folder of artifacts), if it moved since the plan was made; "": as the plan
  // says.
  explicit WeightReader(const plan::Plan &plan, const std::string &modelPath = "", WeightCheck check = {});

  // Writes the shard of `parameter` that `shard` describes into `out`. Only the bytes of the shard are read. Safe from
  // several threads. Errors name the parameter and the file: missing, changed since the plan was compiled, too short, a
  // pair of types that does not convert.
  Status initialize(const plan::Parameter &parameter, const Shard &shard, std::span<std::byte> out);

private:
  Result<const MappedFile *> file(const plan::Source &source);
  // The bytes of a source, which are so many elements.
  Result<const std::byte *> bytesOf(const plan::Source &source, int64_t elements);
  Status readFile(const plan::Parameter &parameter, std::span<const int64_t> shape, const Shard &shard,
                  std::span<std::byte> out);
  // The part of codes, or of the scales of their rows, whose numbers a file has (runtime/plan/row_scales.h).
  struct Rows {
    const plan::Parameter &codes, &scales;
    bool asksScales;
  };
  Status quantize(const Rows &rows, const Shard &shard, std::span<std::byte> out);
  void draw(const plan::Parameter &parameter, std::span<const int64_t> shape, const Shard &shard,
            std::span<std::byte> out) const;

  const plan::Plan &plan;
  std::string modelPath;
  WeightCheck check;
  std::map<std::string, Rows> quantized;                                     // by both names
  std::map<std::pair<bool, std::string>, std::shared_ptr<MappedFile>> files; // by Source.in_checkpoint, path
  std::mutex lock;
};

// Copies the box [begin, begin + size) of a dense row-major tensor of `shape` at `source` to dense `target`; converts
// between float types. Error: integer and float types are not converted into one another.
Status copyBox(const std::byte *source, plan::DType sourceType, std::span<const int64_t> shape, const Shard &box,
               std::byte *target, plan::DType targetType);

// The value of global element `index` (row-major) of a tensor drawn from `init` with the job's seed.
double randomInitial(const plan::RandomInit &init, uint64_t seed, uint64_t index);

} // namespace cleave::runtime
