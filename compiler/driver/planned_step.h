// The training step with the split that the search chose for it: ready to be partitioned, or to be told of.
//
//   Result<PlannedStep> planned = planStep(request, /*forCode=*/true);
//   planned->pipeline->partition(planned->decision);
//   Result<PlannedStep> other = splitOtherwise(*planned, planned->decision.runnersUp[0]);   // before partition or after
#pragma once
#include "compiler/driver/pipeline.h"
#include "compiler/report/report.h"
#include "compiler/specialize/microbatch_inputs.h"

namespace cleave {

// The step as built for the planner, whatever its split.
struct SearchedStep {
  std::shared_ptr<const CompileRequest> request; // whose step it is: with as many places in its batch
  planner::Problem problem;
  planner::Cluster cluster;                 // as this step uses it
  std::vector<std::string> notes, warnings; // warnings: that were told
  std::string imported = {};                // what the import rests on
  std::string noSmallerBatch = {};          // plan::Training::no_smaller_batch
  int64_t samples = 1;                      // of a step; the step's batch may have more places
};

struct PlannedStep : SearchedStep {
  planner::Decision decision;
  std::unique_ptr<Pipeline> pipeline;     // holds the step at the decision's microbatch
  std::vector<std::string> splitWarnings; // of this decision and its code, not told yet
  std::string samplesMeetAt = {};         // of several microbatches: Problem::samplesMeetAt
  Pipeline::StepOptions built = {};       // of the step that code is made of

  // It is not the step of the whole batch as the model has it.
  bool isRebuilt() const {
    return built.microbatches > 1 || built.staged || built.sequenceBlocks > 1 || built.libraryAttention;
  }
  report::Report report(const CompileRequest &given) const;
};

// Builds the step with the whole batch at once and searches; `forCode`: builds it again if the search cut the batch. A
// batch that does not divide over the devices gets places that stay empty where that makes the faster step, and other
// sizes padding (compiler/padding).
Result<PlannedStep> planStep(const CompileRequest &request, bool forCode);
// The same step for code, with another of the search's decisions, which warns nobody. Its module is dumped beside.
Result<PlannedStep> splitOtherwise(const SearchedStep &searched, const planner::Decision &decision);
// The request once more, which has told its warnings and written its problem; the IR goes into a folder beside.
CompileRequest askedAgain(const CompileRequest &request, const std::string &folder);
// What its plan is compared with, and what its inputs may hold: of the step without padding.
struct UnpaddedStep {
  std::string reference;
  std::string padded; // the reference of the step that has padding; "": it has none
  std::map<std::string, StepInput> inputs;
};
Result<UnpaddedStep> unpaddedStep(const PlannedStep &planned);
// The step of the whole batch, which is built, becomes that of a microbatch, as the options want it.
Status rebuild(const CompileRequest &request, Pipeline *beside, Pipeline::StepOptions options,
               std::unique_ptr<Pipeline> &built);

} // namespace cleave
