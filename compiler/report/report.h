// The report of a split to a person: one structure, shown as text, JSON or HTML, explained a node at a time, compared
// with another. The plan carries it as JSON.
//
//   Report report = makeReport(problem, cluster, decision);
//   fillFromPlan(report, plan, cluster);     // after code generation: exact bytes and collectives instead of predicted
//   plan.set_report_json(renderJson(report));
//   ... later: Result<Report> again = fromJson(plan.report_json());   renderText(*again), explain(*again, "up/MatMul")
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/explain/memory_over_time.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/report/split_request.h"
#include "compiler/schedule/schedule.h"
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <optional>
#include <string>
#include <vector>

namespace cleave::report {

struct ParameterLayout {
  std::string name, parameter, gradient, state; // layouts as Sharding::str(); "" where it does not train
  std::vector<int64_t> dims;                    // of the normalized parameter, which may split a dimension of the file
  int zero = 0;                                 // ZeRO stage; 0 too where it cannot be cut
  std::vector<std::string> readers = {};        // operations that read it
  std::string group = {}; // what it trains with other than the optimizer's: "lr x 0.1, weight decay 0"
};

// Devices that do the same work; one stage without pipelines. Seconds of a whole step.
struct Stage {
  int64_t devices = 0;
  int64_t nodes = 0;      // forward operations
  double parameters = 0;  // elements of all parameters of the stage
  double stepSeconds = 0; // at work; what is left of the step's time is waiting
  double memoryBytes = 0; // of a device, with its other stages
  int64_t rank = 0, blocks = 0, activationBlocks = 0, selectiveBlocks = 0, recomputedBlocks = 0;
  double forwardSeconds = 0, backwardSeconds = 0, reductionSeconds = 0, updateSeconds = 0;
  double communicationSeconds = 0;                    // part of forward and backward: collectives that nothing hides
  planner::StageTimes pass;                           // of one microbatch, as the schedule is simulated
  double sentForwardBytes = 0, sentBackwardBytes = 0; // of one microbatch, to the stage after and the one before
  double forwardCommunicationSeconds = 0;             // of communicationSeconds
  double afterPassesSeconds = 0; // of its rank: the update, and what no pass hides of the collectives once a step
};

// A tensor that a device holds when its memory is fullest.
struct HeldTensor {
  std::string kind, name; // kind: "parameter", "optimizer state", "gradient", "kept", "in use"
  int64_t copies = 1;     // kept for so many microbatches
  double bytes = 0;       // of all copies
};
inline constexpr size_t mostHeldTensors = 5; // of a kind, that a RankMemory names

// The memory of the devices of a pipeline's rank. `held` is the emitted plan's, those with most bytes of each kind
// first.
struct RankMemory {
  std::vector<planner::MemoryPoint> overTime;
  std::vector<HeldTensor> held;
  std::string fullestAt, phase; // the command at which most scratch is in use, and its phase; "": no plan tells
};

// The commands of a kind in a step of one device, as the plan has them. `launches`: kernels and library calls that they
// start. `bytes`: their operands, each once, of a gather the rows that it reads; none of collectives and transfers.
struct CommandTotal {
  std::string kind; // "launch", "contract", ...
  double count = 0, launches = 0, bytes = 0;
};

// An operation with its repetitions in other blocks, and the part of the model that it is in (TimePart::part).
struct ReportedNode {
  std::string part;
  planner::NodeExplanation choice;
};

// Whether the plan computes the unsplit step, as `cleave compile` has shown it (runtime/check/proof/prove.h).
struct ReportedProof {
  bool isProved = false;
  bool roundsElsewhere = false; // casts to 16 bits count as the numbers that they are made of
  std::string why;              // it is not proved
  int64_t verifiedSteps = 0;    // that ran beside the unsplit model and agreed
};

// What a tensor of the model's file is.
struct ReportedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string role, why; // role: trained | frozen | running statistic | buffer | constant
};

// One of the fastest splits of the search, compiled beside the others, and the seconds of its step.
struct TriedSplit {
  planner::Alternative split;  // as predicted, with its plan's memory; whyNot: it was left out
  double simulatedSeconds = 0; // compiler/simulate
  double measuredSeconds = 0;  // as it ran; 0: it did not
  bool isChosen = false;
};

struct Report {
  std::string command, version;         // that made it; "": not told
  std::string recipe;                   // resolved YAML; "": made without one
  std::string import;                   // what the model was read from: "read from the module's statement"
  std::vector<ReportedTensor> tensors;  // of the model's file, above one number
  std::string model, cluster, software; // software: whose steps are priced (device_presets.h)
  SplitRequest given;                   // as the command line has it
  int64_t batch = 0;
  int64_t tokensPerSample = 0; // 0: samples are not sequences
  dist::Mesh mesh;
  std::string schedule = "none", recompute = "none", offload = "none", like;
  int zero = 0;
  int lowerZero = -1; // of some parameters, where stages are mixed
  int64_t microbatches = 1, devices = 1;
  int64_t chunks = 1; // of the head and its loss
  planner::Predicted predicted;
  double contentionSeconds = 0;    // of exposed communication: links that other communication uses meanwhile
  double predictionError = 0;      // relative, of nine of ten steps (Device::predictionError); 0: not told
  double deviceMemoryBytes = 0;    // what a device has
  double reservedMemoryBytes = 0;  // of it, what no plan fills
  double pricePerHour = 0;         // of all devices, in the cluster file's money; 0: not told
  double estimatedMemoryBytes = 0; // the search's figure, kept when the plan's own replaces it
  bool memoryIsPlanned = false;    // `predicted.memory` is the emitted plan's
  double searchSeconds = 0, gap = 0;
  std::vector<planner::MoveResult> moves; // of the search
  int64_t candidates = 0;
  std::vector<Stage> stages;
  std::vector<planner::CollectiveTotal> collectives;
  bool collectivesArePlanned = false;
  std::vector<CommandTotal> commands; // none: no plan tells
  double simulatedSeconds = 0;        // a step of the plan's own commands (compiler/simulate); 0: none tells
  std::string simulatedShape;         // which of its steps that is, where they differ
  std::string notSimulated;           // why a plan has none
  std::optional<ReportedProof> proof; // nothing: it was not tried
  std::vector<planner::Alternative> alternatives;
  std::vector<TriedSplit> tried; // the search's choice first; none: only that was compiled
  std::vector<ParameterLayout> parameters;
  std::vector<planner::TensorCollective> tensorCollectives; // as the decision implies them
  std::vector<ReportedNode> nodes;
  std::vector<planner::TimePart> timeParts;
  std::vector<planner::MemoryPoint> memoryOverTime; // of the fullest rank
  std::vector<RankMemory> rankMemory;               // of each pipeline rank; one without a pipeline
  std::vector<planner::Sensitivity> sensitivities;
  std::vector<std::string> notes;
  std::string source; // problem and cluster it was made from (pricing_source.h), for --diff

  std::string priced() const { return cluster + " with the software " + software; }
};

// Never fails: what cannot be explained becomes a note.
Report makeReport(const planner::Problem &problem, const planner::Cluster &cluster, const planner::Decision &decision);
// Replaces predicted memory and collectives by those of the plan: memory of the device that needs most, and of each
// stage's; collectives as the mean of a pipeline's ranks. Names what each rank holds at its fullest, and counts the
// commands of a step.
void fillFromPlan(Report &report, const plan::Plan &plan, const planner::Cluster &cluster);

// In lines of at most `width` columns.
std::string renderText(const Report &report, int width = 100);
// The keys of docs/reference/report.md; fromJson() gives the same report back.
std::string renderJson(const Report &report);
Result<Report> fromJson(const std::string &json);
// One page that loads nothing from elsewhere; with what was measured (measured.h) where that is given.
struct Measured;
std::string renderHtml(const Report &report, const Measured *measured = nullptr);
// Two reports side by side on such a page.
struct ReportSide {
  std::string name; // for people: the file
  const Report &report;
};
std::string renderHtmlDiff(const ReportSide &left, const ReportSide &right);

// Candidate splits of one node, their costs, the chosen one and what it saves; of a parameter, how it lies and those of
// what reads it. An unknown name is an error that lists names like it.
Result<std::string> explain(const Report &report, const std::string &node);
// The same of one operation, by one of its names.
std::string explained(const planner::NodeExplanation &choice, const std::string &name);
// The differences between two reports, and their worth: each of the right one's choices is also priced by itself, in
// the left one's place.
std::string diff(const Report &left, const Report &right);

// With `tried` complete: alternatives and notes tell what became of the splits that were not chosen.
void noteTriedSplits(Report &report);
// "4 splits were compiled and simulated: the search's choice is the fastest, ...".
std::string triedText(const Report &report);
// "dp=2,cp=2, zero 1, microbatches 4, schedule zb-v (searched #2)"
std::string splitText(const planner::Alternative &row);

// The plans that the optimality gap is about: "plans with one ZeRO stage ...".
std::string comparedPlans(const Report &report);

// "proved: the split computes what the file says", or why not.
std::string proofText(const ReportedProof &proof);

// "1.50 GiB", "12.3 ms", "4.1 GFLOP": three significant digits.
std::string formatBytes(double bytes);
std::string formatFlops(double flops);
std::string formatSeconds(double seconds);
// "1,980", "61.4", "0.25": three significant digits below a hundred, whole with separators above.
std::string formatNumber(double value);

} // namespace cleave::report
