// Planning problems: read or refused with a word; what is read can be asked everything, and writes itself as a text
// that is read as the same.
#include "compiler/planner/problem/problem.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  auto problem = planner::Problem::parse(fuzz::textOf(data, size), "problem");
  if (!problem) return fuzz::refused(problem.status());
  const std::string text = problem->text();
  auto again = planner::Problem::parse(text, "problem");
  fuzz::require(bool(again), "refuses its own text: " + again.status().message() + "\n" + text);
  fuzz::require(again->text() == text, "its own text is another problem:\n" + text);
  (void)problem->producers();
  (void)problem->areWeights(true);
  (void)problem->needsGradient();
  (void)problem->batchDims();
  (void)problem->samplesMeetAt();
  (void)problem->liveBytes();
  (void)problem->findRepeats();
  return 0;
}
