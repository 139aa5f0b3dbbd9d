// Plans (plan_mutator.h) that the static verifier takes go on as `run` and `verify` do: a rehearsal, a step of
// training, a step beside the reference. They start from plans that were compiled for this machine (test/fuzz/run).
#include "runtime/plan/verify/verify.h"
#include "test/fuzz/execute_plan.h"
#include "test/fuzz/plan_mutator.h"
#include "test/fuzz/target.h"

using namespace cleave;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto plan = fuzz::planOf(data, size);
  if (!plan || !*plan || !runtime::verifyPlan(**plan)) return -1;
  for (bool trains : {false, true}) {
    const std::string wrong = fuzz::executePlan(**plan, trains);
    fuzz::require(wrong.empty(), wrong);
  }
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  return fuzz::mutatePlan(data, size, maxSize, seed, true);
}
