#include "compiler/planner/search/driver/search.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/problem/pins.h"
#include "compiler/planner/search/driver/alternatives.h"
#include "compiler/planner/search/driver/size_text.h"
#include "compiler/planner/search/driver/what_would_fit.h"
#include "compiler/planner/search/moves/move.h"
#include "compiler/planner/search/space/search_space.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

// Ulysses splits attention by its heads; where they do not divide, its queries stay split by their positions.
void noteGatheredAttention(const Problem &problem, const SequenceFactors &sequence, const SplitModel &model,
                           std::vector<std::string> &notes) {
  int64_t cp = model.setting.cp;
  if (cp == 1 || model.attentionSplit != AttentionSplit::Ulysses) return;
  size_t count = 0;
  std::string first;
  for (const AttentionNodes &attention : sequence.attentions) {
    if (model.contextByHeads[size_t(attention.weigh)] || count++ > 0) continue;
    const Node &node = problem.nodes[size_t(attention.weigh)];
    int64_t heads = sequence.heads[size_t(attention.weigh)];
    first = fmt::format("'{}' ({})", node.name,
                        heads < 0 ? "one head" : fmt::format("{} heads", node.rule.factors[size_t(heads)].size));
  }
  if (count > 0)
    notes.push_back(
        fmt::format("Ulysses cannot split the heads of {} over cp={}{}: queries stay split by position, and "
                    "every device gathers all keys and values, so that their memory does not fall; choose "
                    "a cp that divides the heads, or --like ring",
                    first, cp, count > 1 ? fmt::format(" and of {} more like it", count - 1) : ""));
}

// Where nothing of the model divides by the tensor parallel devices all of them do the same.
void noteRepeatedWork(const Problem &problem, Decision &decision) {
  const int64_t tp = decision.mesh.axisSize("tp");
  if (tp == 1) return;
  bool splitsAny = false, splitsProducts = false, hasProducts = false;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const bool isSplit = std::ranges::any_of(
        decision.nodes[i].split, [](const dist::Axes &axes) { return std::ranges::find(axes, "tp") != axes.end(); });
    const bool isProduct = !problem.nodes[i].cheap && problem.nodes[i].flops > 0;
    splitsAny |= isSplit;
    splitsProducts |= isSplit && isProduct;
    hasProducts |= isProduct;
  }
  if (hasProducts ? splitsProducts : splitsAny) return;
  decision.notes.push_back(fmt::format("tp={} splits no {} of the model: its devices repeat each other's work", tp,
                                       hasProducts ? "product" : "operation"));
}

// With devices of twice the memory everything may be chosen again: the least step time known of it.
double secondsWithTwiceTheMemory(const SearchCase &asked, const Outcome &outcome, Cells &cells) {
  const auto &[problem, facts, cluster, constraints, time] = asked;
  if (time.isOver()) return outcome.best->seconds();
  Cluster larger = cluster;
  larger.device.memoryBytes *= 2;
  SearchOptions how = time.beside(1, "searching with twice the memory");
  how.worth = outcome.best->seconds();
  Outcome priced = searchSettings(problem, facts, larger, constraints, how, cells);
  return priced.best ? std::min(priced.best->seconds(), how.worth) : how.worth;
}

// Checks that the constraints can be asked of this problem.
Status checkAsked(const Problem &problem, const ProblemFacts &facts, const Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(checkPins(problem, constraints.pins));
  const std::string model = problem.name.empty() ? "this model" : problem.name;
  if (constraints.chunks.value_or(1) > 1 && std::ranges::none_of(problem.tensors, &Tensor::chunked))
    return {ErrorKind::Usage,
            fmt::format("--chunk {}: {} has no product whose result is much larger than what it reads and what is made "
                        "of it, such as logits; leave it out",
                        *constraints.chunks, model)};
  auto counts = [](int64_t dim) { return dim >= 0; };
  if (!constraints.mustSplitSequence || std::ranges::any_of(facts.sequenceDims, counts)) return Status::ok();
  return {ErrorKind::Usage,
          fmt::format("{} splits the sequence, but no tensor of {} has a dimension that counts positions "
                      "(beside samples and features); leave it out",
                      constraints.like.empty() ? "--sequence-parallel" : "--like " + constraints.like, model)};
}

// Nothing that fits was found: why.
Status noPlan(const SearchCase &asked, const Outcome &outcome, double leastBytes) {
  if (!outcome.leastMemory) return outcome.reason;
  if (outcome.isComplete) return whatWouldFit(asked, outcome, leastBytes);
  return {ErrorKind::NoFit,
          fmt::format("no plan that fits was found in {:.3g} s of search; the leanest so far ({}) needs {} on a "
                      "device, of which {} can be used: give --search-seconds more time, or leave it out",
                      asked.time.elapsed(), splitText(*outcome.leastMemory), bytesText(outcome.leastMemory->bytes()),
                      bytesText(asked.cluster.device.usableBytes()))};
}

// Flags of what the split does not have; presets fix them for meshes of all sizes.
void noteIdleFlags(const Constraints &constraints, Decision &decision) {
  if (!constraints.like.empty()) return;
  if (constraints.schedule && decision.stages < 2)
    decision.notes.push_back(fmt::format("--schedule {} has no effect: this split has no pipeline stages (--mesh pp=N "
                                         "asks for them)",
                                         *constraints.schedule));
  if (constraints.mustSplitSequence && decision.mesh.axisSize("tp") < 2)
    decision.notes.push_back("--sequence-parallel has no effect: it splits over tp, and this split has none (--mesh "
                             "tp=N asks for it)");
  int64_t divided = 1;
  for (const std::string &axis : decision.zeroAxes) divided *= decision.mesh.axisSize(axis);
  if (constraints.zero.value_or(0) > 0 && divided < 2)
    decision.notes.push_back(fmt::format("--zero {} has no effect: it divides over dp, and this split has one device "
                                         "there (--mesh dp=N asks for more)",
                                         *constraints.zero));
}

void addNotes(const SearchCase &asked, const SplitModel &model, Decision &decision) {
  const ProblemFacts &facts = asked.facts;
  if (!facts.samplesMeetAt.empty() && !asked.constraints.microbatches)
    decision.notes.push_back(
        "samples of a batch can meet at '" + facts.samplesMeetAt +
        "' (as in batch statistics, or where the number of samples is a factor): the search keeps "
        "the batch in one microbatch; with --microbatches N only the samples of a microbatch meet");
  noteIdleFlags(asked.constraints, decision);
  noteGatheredAttention(asked.problem, facts.sequence, model, decision.notes);
  noteRepeatedWork(asked.problem, decision);
}

// One of the fastest plans as a decision, with what the search knows beside it.
Decision decisionOf(const SearchCase &asked, const RankedPlan &plan, const std::vector<PricedPreset> &presets,
                    const Outcome &outcome, const SearchOptions &options) {
  const Solution &solution = *plan.solution;
  Decision decision = toDecision(asked.problem, solution);
  decision.row = plan.row;
  decision.like = plan.like;
  addNotes(asked, *solution.model, decision);
  decision.candidates = outcome.candidates;
  decision.gap = std::max(0.0, 1 - outcome.bound / solution.seconds());
  decision.moves = outcome.moves;
  if (options.alternatives) decision.alternatives = alternativesOf(asked, presets, solution.seconds());
  for (Alternative &row : runnersUp(asked.cluster, options, outcome, solution))
    decision.alternatives.push_back(std::move(row));
  return decision;
}

} // namespace

Cluster usedBy(const Problem &problem, Cluster cluster) {
  if (problem.writesAttention && !computeCapability(cluster.device.kind).empty()) cluster.device.fusedAttention = false;
  return cluster;
}

Result<Decision> solve(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                       const SearchOptions &options) {
  const SearchTime time(options);
  CLEAVE_RETURN_IF_ERROR(problem.check());
  CLEAVE_RETURN_IF_ERROR(checkMoves(options.moves));
  const ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
  CLEAVE_RETURN_IF_ERROR(checkAsked(problem, facts, constraints));
  const SearchCase asked{problem, facts, cluster, constraints, time};
  Cells cells(problem, facts, cluster, constraints);
  Outcome outcome = searchSettings(problem, facts, cluster, constraints, time.first(), cells);
  double leastBytes = 0;
  outcome = openHosts(asked, [&] { return time.first(); }, std::move(outcome), leastBytes);
  if (!outcome.best) return noPlan(asked, outcome, leastBytes);
  std::vector<PricedPreset> presets;
  if (options.alternatives) presets = pricePresets(asked);
  const std::vector<std::string> notes = outcome.notes; // of any plan
  const std::string chosen = choosePreset(asked, presets, outcome);
  std::vector<Decision> decisions;
  for (const RankedPlan &plan : fastestPlans(asked, presets, chosen, outcome, options.refine))
    decisions.push_back(decisionOf(asked, plan, presets, outcome, options));
  const double twice = options.alternatives ? secondsWithTwiceTheMemory(asked, outcome, cells) : 0;
  for (Decision &one : decisions) {
    const std::vector<std::string> &found = &one == &decisions.front() ? outcome.notes : notes;
    one.notes.insert(one.notes.begin(), found.begin(), found.end());
    one.twiceMemorySeconds = twice;
    if (options.alternatives && time.isOver())
      one.notes.push_back("the time that --search-seconds gives was over before all alternatives were priced, and all "
                          "that twice the memory would bring");
    one.searchSeconds = time.elapsed();
    CLEAVE_RETURN_IF_ERROR(verify(problem, one));
  }
  Decision &decision = decisions.front();
  decision.runnersUp.assign(std::make_move_iterator(decisions.begin() + 1), std::make_move_iterator(decisions.end()));
  return std::move(decision);
}

} // namespace cleave::planner
