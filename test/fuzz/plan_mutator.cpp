#include "test/fuzz/plan_mutator.h"
#include "runtime/plan/plan_file.h"
#include "test/fuzz/message_mutator.h"
#include "test/fuzz/target.h"

namespace cleave::fuzz {
namespace {

MutatorOptions options(bool keepsDigest) {
  return {.isFixed =
              [keepsDigest](const google::protobuf::FieldDescriptor &field) {
                const std::string &name = field.name();
                if (name == "kernel_object" || name == "cubin" || name == "ptx") return true;
                return keepsDigest && (name == "kernels" || name == "code_digest" || name.ends_with("_graph"));
              },
          .word = [](const google::protobuf::FieldDescriptor &, Chance &chance) -> std::string {
            constexpr const char *words[] = {"dp", "tp", "pp", "cp", "step", "fill", "drain", "evaluate"};
            return chance.pick(words);
          }};
}

} // namespace

std::optional<Result<plan::Plan>> planOf(const uint8_t *data, size_t size) {
  std::string bytes = textOf(data, size);
  if (!bytes.starts_with("CLEAVEPL")) {
    plan::Plan plan;
    if (!plan.ParseFromString(bytes)) return std::nullopt;
    auto encoded = runtime::encodePlan(plan);
    if (!encoded) return Result<plan::Plan>(encoded.status());
    bytes = std::move(*encoded);
  }
  return runtime::decodePlan(bytes, "plan");
}

size_t mutatePlan(uint8_t *data, size_t size, size_t maxSize, unsigned seed, bool keepsDigest) {
  static const MutatorOptions choices[] = {options(false), options(true)};
  plan::Plan plan;
  return mutateMessage(plan, choices[keepsDigest], data, size, maxSize, seed);
}

} // namespace cleave::fuzz
