// Plans that the static verifier takes are proved (runtime/check/proof): whatever their graphs say, the proof ends with a
// word. The mutator changes the reference graph and what kernels say they compute, and states the digest of what comes
// out.
#include "graph.pb.h"
#include "runtime/check/proof/prove.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/verify/verify.h"
#include "test/fuzz/chance.h"
#include "test/fuzz/message_mutator.h"
#include "test/fuzz/plan_mutator.h"
#include "test/fuzz/target.h"
#include <cstring>

using namespace cleave;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto plan = fuzz::planOf(data, size);
  if (!plan || !*plan || !runtime::verifyPlan(**plan)) return -1;
  auto proof = proof::prove(**plan);
  return proof ? 0 : fuzz::refused(proof.status());
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  fuzz::Chance chance(seed);
  auto plan = fuzz::planOf(data, size);
  if (!plan || !*plan || chance.once(4)) return fuzz::mutatePlan(data, size, maxSize, seed, true);
  plan::Plan &changed = **plan;
  std::vector<std::string *> graphs = {changed.mutable_reference_graph()};
  for (plan::Kernel &kernel : *changed.mutable_kernels()) graphs.push_back(kernel.mutable_operations());
  std::string &bytes = *chance.pick(graphs);
  plan::Graph graph;
  if (!graph.ParseFromString(bytes)) return size;
  fuzz::changeMessage(graph, {}, chance);
  bytes = graph.SerializeAsString();
  changed.set_code_digest(runtime::codeDigest(changed));
  const std::string made = changed.SerializeAsString();
  if (made.size() > maxSize) return size;
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
