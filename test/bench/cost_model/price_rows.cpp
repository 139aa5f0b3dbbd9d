// Prices splits of problems as `cleave estimate` does, many in one process. A JSON object a line in, one a line out:
//
//   {"problem": "gpt.problem", "precision": "fp16", "cluster": "a100-80g:8", "batch": 64, "mesh": "dp=2,tp=4",
//   "microbatches": "8",
//    "schedule": "none", "balance": "", "recompute": "full", "like": "megatron-2021", "zero": "0", "sequence_parallel":
//    false}
//     -> {"seconds": 0.41, "compute": ..., "exposed": ..., "bubble": ..., "memory": {"parameters": ...}, "stages":
//     [...]}
//   {"cluster": "a100-80g:8", "ranks": 8, "bytes": 1e6}  -> {"seconds": 1e-4}      an all-reduce in a node
//
// Clusters are presets or files, problems what `cleave estimate --problem` writes. A problem that cannot be priced
// gives {"error": ...}. Memory is reported but does not limit: a run that was measured did fit.
#include "compiler/cluster/cost.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/schedule/schedule.h"
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace cleave;
using namespace cleave::planner;
using nlohmann::json;

namespace {

std::map<std::string, Problem> problems;
std::map<std::string, Cluster> clusters;

// As the published runs trained, which is leaner than Cleave's own mixed precision (docs/reference/precision.md): the
// whole model in 16 bits but for the loss. Beside a parameter's two bytes the optimizer keeps its state and a copy in
// fp32; gradients have two bytes in fp16, 16 a parameter with Adam (Rajbhandari et al. 2020, section 3.1), four in bf16
// (Megatron-LM).
void lowerAll(Problem &problem, const std::string &precision) {
  problem.precision = precision;
  for (Tensor &tensor : problem.tensors) {
    bool isFloat = tensor.elementBytes == 4, isOfLoss = tensor.name.starts_with("loss");
    bool isState = tensor.kind == TensorKind::Parameter && !tensor.trainable;
    if (!isFloat || isOfLoss || isState) continue;
    tensor.elementBytes = 2;
    if (tensor.kind != TensorKind::Parameter) continue;
    tensor.optimizerBytes += tensor.masterBytes = 4;
    tensor.gradientBytes = precision == "fp16" ? 2 : 4;
  }
}

Result<Problem> problemOf(const std::string &path, const std::string &precision) {
  auto known = problems.find(path);
  if (known != problems.end()) return known->second;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  Result<Problem> problem = Problem::parse(text.str(), path);
  if (!problem) return problem;
  if (precision != "fp32") lowerAll(*problem, precision);
  problems.emplace(path, *problem);
  return problem;
}

Result<Cluster> clusterOf(const std::string &name) {
  auto known = clusters.find(name);
  if (known != clusters.end()) return known->second;
  Result<Cluster> cluster = parseCluster(name);
  if (cluster) clusters.emplace(name, *cluster);
  return cluster;
}

json memoryOf(const MemoryBreakdown &memory) {
  return {{"parameters", memory.parameters},   {"gradients", memory.gradients}, {"optimizer", memory.optimizer},
          {"activations", memory.activations}, {"workspace", memory.workspace}, {"total", memory.total()}};
}

Result<json> price(const json &row) {
  Result<Cluster> cluster = clusterOf(row.at("cluster"));
  if (!cluster) return cluster.status();
  if (row.contains("ranks")) {
    GroupShape group = groupAlong(*cluster, row.at("ranks"), 1);
    return json{{"seconds", collectiveSeconds(*cluster, Collective::AllReduce, group, row.at("bytes"))}};
  }
  Result<Problem> problem = problemOf(row.at("problem"), row.at("precision"));
  if (!problem) return problem.status();
  problem->batch = row.at("batch");
  SplitFlags flags;
  flags.mesh = row.at("mesh");
  flags.microbatches = row.at("microbatches");
  flags.schedule = row.value("schedule", "");
  flags.recompute = row.at("recompute");
  flags.like = row.value("like", "");
  flags.zero = row.value("zero", "0");
  flags.balance = row.value("balance", "");
  flags.sequenceParallel = row.value("sequence_parallel", false);
  Result<Constraints> constraints = parseConstraints(flags, *cluster);
  if (!constraints) return constraints.status();
  constraints->recomputesAll = true; // a checkpointed layer's forward pass runs again as it is
  Cluster roomy = *cluster;
  roomy.device.memoryBytes *= 1000;
  Result<Decision> decision = solve(*problem, roomy, *constraints, {.alternatives = false});
  if (!decision) return decision.status();
  const Predicted &predicted = decision->predicted;
  json result = {{"seconds", predicted.stepSeconds},
                 {"compute", predicted.computeSeconds},
                 {"exposed", predicted.exposedCommunicationSeconds},
                 {"bubble", predicted.bubbleSeconds},
                 {"prediction_error", cluster->device.predictionError},
                 {"fits", predicted.memory.total() <= cluster->device.memoryBytes},
                 {"memory", memoryOf(predicted.memory)},
                 {"stages", json::array()}};
  // The measured software allocates as it goes: chunks of a rank share what they keep, where a plan has slots for each.
  std::vector<double> shared(decision->stageDecisions.size(), 1);
  if (decision->stages > 1) {
    auto table = makeSchedule(decision->schedule, int(decision->mesh.axisSize("pp")), decision->microbatches, {});
    if (!table) return table.status();
    const std::vector<int64_t> slots = peakSlots(*table), together = peakLive(*table, ActionKind::BackwardWeight);
    std::vector<double> apart(together.size(), 0);
    for (size_t s = 0; s < slots.size(); ++s) apart[size_t(table->rankOfStage[s])] += double(slots[s]);
    for (size_t s = 0; s < shared.size(); ++s) {
      const size_t rank = size_t(table->rankOfStage[s]);
      shared[s] = double(together[rank]) / apart[rank];
    }
  }
  for (size_t s = 0; s < shared.size(); ++s) {
    MemoryBreakdown memory = decision->stageDecisions[s].memory;
    memory.activations *= shared[s];
    result["stages"].push_back(memoryOf(memory));
  }
  return result;
}

} // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Result<json> priced = price(json::parse(line));
    std::cout << (priced ? *priced : json{{"error", priced.status().message()}}) << std::endl;
  }
}
