#include "runtime/train/state/weights.h"
#include "runtime/base/philox.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/row_scales.h"
#include "runtime/train/data/array.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numbers>

namespace cleave::runtime {
namespace {

// The step of the random key that initial weights use; training steps stay below it.
constexpr uint64_t initialStep = 0xffffffff;
constexpr const char *outside = "a part that is asked for lies outside of its tensor";

// The shard of a parameter whose matrix [n, m] the source has as [m, n]. The parameter's own shape may be a view of it.
Status copyTransposed(const std::byte *source, plan::DType type, const plan::Parameter &parameter,
                      std::span<const int64_t> shape, const Shard &shard, std::byte *out) {
  if (parameter.original_shape_size() != 2) return inputError("is no matrix, and its source is transposed");
  if (!isFloat(type) || !isFloat(parameter.dtype()))
    return inputError(fmt::format("{} is not transposed to {}", name(type), name(parameter.dtype())));
  const int64_t rows = parameter.original_shape(0), columns = parameter.original_shape(1);
  const int64_t from = byteSize(type), to = byteSize(parameter.dtype());
  forEachRun(shard.size, {shape, shard.begin}, {shard.size}, [&](int64_t at, int64_t done, int64_t run) {
    for (int64_t i = 0; i < run; ++i) {
      const int64_t element = (at + i) % columns * rows + (at + i) / columns;
      storeFloat(parameter.dtype(), loadFloat(type, source + element * from), out + (done + i) * to);
    }
  });
  return Status::ok();
}

} // namespace

WeightReader::WeightReader(const plan::Plan &plan, const std::string &modelPath, WeightCheck check)
    : plan(plan), modelPath(modelPath.empty() ? plan.model_path() : modelPath), check(std::move(check)) {
  std::map<std::string, const plan::Parameter *> named;
  for (const plan::Parameter &parameter : plan.parameters()) named[parameter.name()] = &parameter;
  for (const auto &[name, codes] : named) {
    if (codes->source_case() != plan::Parameter::kFile || codes->role() != plan::Parameter::OPTIMIZER_STATE) continue;
    auto scales = named.find(rowScalesName(name));
    if (scales == named.end() || scales->second->shape_size() != codes->shape_size()) continue;
    quantized.emplace(name, Rows{*codes, *scales->second, false});
    quantized.emplace(scales->first, Rows{*codes, *scales->second, true});
  }
}

Result<const MappedFile *> WeightReader::file(const plan::Source &source) {
  std::lock_guard guard(lock);
  const std::pair key(source.in_checkpoint(), source.path());
  auto found = files.find(key);
  if (found != files.end()) return found->second.get();
  CLEAVE_ASSIGN_OR_RETURN(std::string place, weightPath(plan, modelPath, source));
  const std::string &path = place;
  Result<std::shared_ptr<MappedFile>> bytes = MappedFile::open(path);
  if (!bytes)
    return inputError(bytes.status().message() + (source.in_checkpoint()
                                                      ? "; the plan begins with the weights there"
                                                      : "; the plan reads its weights from there (--model gives "
                                                        "another place)"));
  CLEAVE_RETURN_IF_ERROR(checkWeightFile(plan, source, path, **bytes, check));
  return (files[key] = std::move(*bytes)).get();
}

Result<const std::byte *> WeightReader::bytesOf(const plan::Source &source, int64_t elements) {
  CLEAVE_ASSIGN_OR_RETURN(const MappedFile *opened, file(source));
  const std::string_view bytes = opened->bytes();
  const int64_t needed = elements * byteSize(source.dtype());
  if (source.length() != needed)
    return inputError(fmt::format("{} bytes are stored, its shape needs {}", source.length(), needed));
  auto size = static_cast<int64_t>(bytes.size());
  if (source.offset() < 0 || needed > size || source.offset() > size - needed)
    return inputError(fmt::format("the weight file '{}' is too short: bytes {} to {} are needed, it has {}",
                                  source.path().empty() ? modelPath : source.path(), source.offset(),
                                  source.offset() + needed, size));
  return reinterpret_cast<const std::byte *>(bytes.data()) + source.offset();
}

Status WeightReader::readFile(const plan::Parameter &parameter, std::span<const int64_t> shape, const Shard &shard,
                              std::span<std::byte> out) {
  const plan::Source &source = parameter.file();
  if (source.runs().empty()) {
    CLEAVE_ASSIGN_OR_RETURN(const std::byte *bytes, bytesOf(source, elementCount(shape)));
    if (!source.transposed()) return copyBox(bytes, source.dtype(), shape, shard, out.data(), parameter.dtype());
    return copyTransposed(bytes, source.dtype(), parameter, shape, shard, out.data());
  }
  Status copied = Status::ok();
  int64_t begin = 0; // of the run, in elements of the parameter
  for (const plan::Source &run : source.runs()) {
    const int64_t width = byteSize(run.dtype()), count = width ? run.length() / width : 0;
    CLEAVE_ASSIGN_OR_RETURN(const std::byte *bytes, bytesOf(run, count));
    forEachRun(shard.size, {shape, shard.begin}, {shard.size}, [&](int64_t at, int64_t done, int64_t length) {
      const int64_t from = std::max(at, begin), to = std::min(at + length, begin + count);
      if (from >= to || !copied) return;
      const int64_t size[] = {to - from};
      copied = copyBox(bytes + (from - begin) * width, run.dtype(), size, {{0}, {to - from}},
                       out.data() + (done + from - at) * byteSize(parameter.dtype()), parameter.dtype());
    });
    begin += count;
  }
  return copied;
}

Status WeightReader::quantize(const Rows &rows, const Shard &shard, std::span<std::byte> out) {
  plan::Parameter numbers = rows.codes;
  numbers.set_dtype(plan::F32);
  const std::vector<int64_t> shape(numbers.shape().begin(), numbers.shape().end());
  size_t within = shape.size(); // the first dimension in a row
  while (within > 0 && rows.scales.shape(static_cast<int>(within) - 1) == 1) --within;
  Shard row{std::vector<int64_t>(shape.size(), 0), shape}, own = shard; // `own`: the shard's part of each row
  for (size_t d = 0; d < within; ++d) row.size[d] = own.size[d] = 1, own.begin[d] = 0;
  int64_t count = 1;
  for (size_t d = 0; d < within; ++d) count *= shard.size[d];
  std::vector<float> values(static_cast<size_t>(elementCount(row.size)));
  const int64_t unit = byteSize(rows.codes.dtype());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = within; d-- > 0; rest /= shard.size[d]) row.begin[d] = shard.begin[d] + rest % shard.size[d];
    CLEAVE_RETURN_IF_ERROR(readFile(numbers, shape, row, std::as_writable_bytes(std::span(values))));
    float largest = 0;
    for (float value : values) largest = std::max(largest, std::abs(value));
    const float scale = rowScale(largest);
    if (rows.asksScales) {
      storeFloat(plan::F32, scale, out.data() + i * byteSize(plan::F32));
      continue;
    }
    std::byte *codes = out.data() + i * elementCount(own.size) * unit;
    forEachRun(own.size, {row.size, own.begin}, {own.size}, [&](int64_t at, int64_t done, int64_t run) {
      for (int64_t k = 0; k < run; ++k)
        storeFloat(rows.codes.dtype(), values[size_t(at + k)] / scale, codes + (done + k) * unit);
    });
  }
  return Status::ok();
}

void WeightReader::draw(const plan::Parameter &parameter, std::span<const int64_t> shape, const Shard &shard,
                        std::span<std::byte> out) const {
  constexpr int64_t most = 4096; // elements of a piece
  std::vector<std::array<int64_t, 3>> pieces;
  forEachRun(shard.size, {shape, shard.begin}, {shard.size}, [&](int64_t at, int64_t done, int64_t run) {
    for (int64_t i = 0; i < run; i += most) pieces.push_back({at + i, done + i, std::min(most, run - i)});
  });
  const int64_t unit = byteSize(parameter.dtype());
  parallelFor(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto [at, done, count] :
         std::span(pieces).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)))
      for (int64_t i = 0; i < count; ++i)
        storeFloat(parameter.dtype(),
                   randomInitial(parameter.random(), plan.training().seed(), static_cast<uint64_t>(at + i)),
                   out.data() + (done + i) * unit);
  });
}

Status WeightReader::initialize(const plan::Parameter &parameter, const Shard &shard, std::span<std::byte> out) {
  std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
  auto fail = [&](const std::string &why) {
    return inputError(fmt::format("parameter '{}': {}", parameter.name(), why));
  };
  if (!isInside(shard, shape)) return fail(outside);
  int64_t unit = byteSize(parameter.dtype()), count = elementCount(shard.size);
  if (unit == 0 || count < 0 || static_cast<int64_t>(out.size()) != count * unit)
    return fail("its memory has the wrong size");
  if (!parameter.pieces().empty()) {
    if (parameter.pieces_size() != shape[0]) return fail("has another number of pieces than of entries");
    Shard part{{shard.begin.begin() + 1, shard.begin.end()}, {shard.size.begin() + 1, shard.size.end()}};
    size_t bytes = out.size() / static_cast<size_t>(std::max<int64_t>(shard.size[0], 1));
    for (int64_t i = 0; i < shard.size[0]; ++i)
      CLEAVE_RETURN_IF_ERROR(initialize(parameter.pieces(static_cast<int>(shard.begin[0] + i)), part,
                                        out.subspan(static_cast<size_t>(i) * bytes, bytes)));
    return Status::ok();
  }
  if (auto rows = quantized.find(parameter.name()); rows != quantized.end()) {
    Status stored = quantize(rows->second, shard, out);
    return stored ? stored : fail(stored.message());
  }
  switch (parameter.source_case()) {
  case plan::Parameter::kFile: {
    Status copied = readFile(parameter, shape, shard, out);
    return copied ? copied : fail(copied.message());
  }
  case plan::Parameter::kFill:
    if (count == 0) return Status::ok();
    storeNumber(parameter.dtype(), parameter.fill(), out.data());
    for (size_t done = static_cast<size_t>(unit); done < out.size(); done *= 2) // as many again
      std::memcpy(out.data() + done, out.data(), std::min(done, out.size() - done));
    return Status::ok();
  case plan::Parameter::kRandom:
    if (!isFloat(parameter.dtype())) return fail("only floats are initialized at random");
    if (parameter.random().kind() != "normal" && parameter.random().kind() != "uniform")
      return fail(fmt::format("the initial distribution '{}' is not known", parameter.random().kind()));
    draw(parameter, shape, shard, out);
    return Status::ok();
  default:
    return fail("the plan says neither where its weights are nor how to draw them; give the recipe an `init`");
  }
}

Status copyBox(const std::byte *source, plan::DType sourceType, std::span<const int64_t> shape, const Shard &box,
               std::byte *target, plan::DType targetType) {
  if (!isInside(box, shape)) return inputError(outside);
  int64_t from = byteSize(sourceType), to = byteSize(targetType);
  if (from == 0 || to == 0) return inputError("an unknown element type");
  if (sourceType == targetType) {
    copyBox(box.size, {shape, box.begin}, source, {box.size}, target, to);
    return Status::ok();
  }
  if (!isFloat(sourceType) || !isFloat(targetType))
    return inputError(fmt::format("{} is not converted to {}", name(sourceType), name(targetType)));
  forEachRun(box.size, {shape, box.begin}, {box.size}, [&](int64_t at, int64_t done, int64_t run) {
    for (int64_t i = 0; i < run; ++i)
      storeFloat(targetType, loadFloat(sourceType, source + (at + i) * from), target + (done + i) * to);
  });
  return Status::ok();
}

double randomInitial(const plan::RandomInit &init, uint64_t seed, uint64_t index) {
  auto words = philoxWords(seed, initialStep, init.stream(), index);
  double first = (words[0] + 1.0) * 0x1p-32, second = words[1] * 0x1p-32; // (0, 1], [0, 1)
  if (init.kind() == "uniform") return init.low() + (init.high() - init.low()) * second;
  // Box and Muller
  return init.mean() + init.std() * std::sqrt(-2.0 * std::log(first)) * std::cos(2.0 * std::numbers::pi * second);
}

} // namespace cleave::runtime
