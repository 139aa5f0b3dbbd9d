// Plans: a plan.Plan message, to which the target adds the header of a plan file, so that its checksums are right; or a
// whole file, which begins with the header. The static verifier takes them or says what is wrong. Code that a plan
// holds is left alone: nobody can check it, and nothing here loads it.
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify.h"
#include "test/fuzz/message_mutator.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;

fuzz::MutatorOptions options() {
  return {.isFixed =
              [](const google::protobuf::FieldDescriptor &field) {
                return field.name() == "kernel_object" || field.name() == "cubin" || field.name() == "ptx";
              },
          .word = [](const google::protobuf::FieldDescriptor &, fuzz::Chance &chance) -> std::string {
            constexpr const char *words[] = {"dp", "tp", "pp", "cp", "step", "fill", "drain", "evaluate"};
            return chance.pick(words);
          }};
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bytes = fuzz::textOf(data, size);
  if (!bytes.starts_with("CLEAVEPL")) {
    plan::Plan plan;
    if (!plan.ParseFromString(bytes)) return -1;
    auto encoded = runtime::encodePlan(plan);
    if (!encoded) return fuzz::refused(encoded.status());
    bytes = std::move(*encoded);
  }
  auto plan = runtime::decodePlan(bytes, "plan");
  if (!plan) return fuzz::refused(plan.status());
  Status verified = runtime::verifyPlan(*plan);
  return verified ? 0 : fuzz::refused(verified);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static const fuzz::MutatorOptions choices = options();
  plan::Plan plan;
  return fuzz::mutateMessage(plan, choices, data, size, maxSize, seed);
}
