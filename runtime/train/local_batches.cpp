#include "runtime/train/local_batches.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace cleave::runtime {
namespace {

Result<SampleRange> samplesReadBy(const plan::Plan &plan, const Executor &executor, const std::string &routine) {
  std::optional<SampleRange> all;
  std::string first;
  for (const plan::InputBinding *input : inputsOf(plan, routine)) {
    if (input->without_samples()) continue;
    const auto dim = static_cast<size_t>(input->sample_dim());
    std::vector<SampleRange> parts;
    for (int64_t device : executor.devices()) {
      CLEAVE_ASSIGN_OR_RETURN(const Shard shard,
                              shardOf(input->global_shape(), input->dims(), executor.mesh(), device));
      parts.push_back({shard.begin[dim], shard.size[dim]});
    }
    std::ranges::sort(parts, {}, &SampleRange::begin);
    SampleRange range = parts.front();
    for (const SampleRange &part : parts) {
      if (part.begin > range.begin + range.count)
        return inputError(
            fmt::format("local batches: this process' devices read samples of '{}' that do not lie side by "
                        "side; pass global batches",
                        input->name()));
      range.count = std::max(range.count, part.begin + part.count - range.begin);
    }
    if (all && range != *all)
      return inputError(fmt::format(
          "local batches: of '{}' this process reads samples {} to {} of a microbatch, and of "
          "'{}' {} to {}; pass global batches",
          first, all->begin, all->begin + all->count - 1, input->name(), range.begin, range.begin + range.count - 1));
    if (!all) first = input->name();
    all = range;
  }
  if (!all) return inputError("local batches: no input of the plan has samples");
  return *all;
}

} // namespace

Result<std::vector<SampleRange>> samplesRead(const plan::Plan &plan, const Executor &executor) {
  std::vector<SampleRange> ranges;
  for (size_t shape = 0; shape < shapesOf(plan); ++shape) {
    const std::string routine = routineOf(plan, "step", shape);
    CLEAVE_ASSIGN_OR_RETURN(SampleRange range, samplesReadBy(plan, executor, routine));
    for (const plan::InputBinding *input : inputsOf(plan, routine))
      if (const int64_t places = input->without_samples() ? 0
                                                          : input->global_shape(static_cast<int>(input->sample_dim())) *
                                                                microbatchesOf(plan, routine);
          places > batchOf(plan, shape))
        return inputError(
            fmt::format("local batches: a step has {} places for {} samples; take a batch that divides over "
                        "the devices and microbatches",
                        places, batchOf(plan, shape)));
    ranges.push_back(range);
  }
  return ranges;
}

Status checkSameParts(ControlPlane &control, const SampleRange &own, const std::map<std::string, std::string> &digests,
                      TimeLimit limit) {
  const nlohmann::json mine = {own.begin, own.count, digests};
  CLEAVE_ASSIGN_OR_RETURN(const std::vector<std::string> all, control.allGather(mine.dump(), limit));
  std::map<std::tuple<int64_t, int64_t, std::string>, std::pair<std::string, size_t>> first; // digest and rank
  try {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const nlohmann::json told = nlohmann::json::parse(all[rank]);
      for (const auto &[input, digest] : told.at(2).items()) {
        const auto [found, isNew] = first.try_emplace({told.at(0), told.at(1), input}, digest.get<std::string>(), rank);
        if (isNew || found->second.first == digest.get<std::string>()) continue;
        return inputError(
            fmt::format("local batches: ranks {} and {} read the same samples, and were given different "
                        "arrays of input '{}': give both the same part (Trainer.rank_samples tells which)",
                        found->second.second, rank, input));
      }
    }
  } catch (const nlohmann::json::exception &) {
    return runError("a rank sent something else than what it was given");
  }
  return Status::ok();
}

Status agreeOnMore(ControlPlane &control, bool hasMore, TimeLimit limit) {
  CLEAVE_ASSIGN_OR_RETURN(bool agreed, control.allEqual(hasMore, limit));
  if (agreed) return Status::ok();
  return inputError(fmt::format("this process has {}, and another {}: all must give equally many",
                                hasMore ? "a batch more" : "no further batch", hasMore ? "has none" : "has one"));
}

} // namespace cleave::runtime
