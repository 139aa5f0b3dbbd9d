// Plans (plan_mutator.h): the static verifier takes them or says what is wrong. Their code is not loaded.
#include "runtime/plan/verify/verify.h"
#include "test/fuzz/plan_mutator.h"
#include "test/fuzz/target.h"

using namespace cleave;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto plan = fuzz::planOf(data, size);
  if (!plan) return -1;
  if (!*plan) return fuzz::refused(plan->status());
  Status verified = runtime::verifyPlan(**plan);
  return verified ? 0 : fuzz::refused(verified);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  return fuzz::mutatePlan(data, size, maxSize, seed, seed % 2 == 0);
}
