// The automatic scheduling of "Zero Bubble Pipeline Parallelism" (Qi et al. 2023), section 3.1. Its rules:
//  - Warm-up: as many forwards as memory and the arrival of the first gradient allow.
//  - Then one forward and one backward in turn. While an input is not there yet, weight gradients that fit into the gap
//    fill it; one that does not fit is still taken if leaving the gap would make this rank the idlest of all. When
//    memory is full, weight gradients come first.
//  - Weight gradients that are left come at the end.
// Three of its choices are open; all eight combinations are tried, and the one with the least cost is kept.
#include "compiler/schedule/generators.h"
#include <algorithm>
#include <limits>
#include <utility>

namespace cleave::planner {
namespace {

struct Choices {
  bool delayFirstGradient; // a last warm-up forward may run into the arrival of the first gradient
  bool holdForwards;       // a rank that is two forwards ahead may let the next rank catch up
  bool fillSmallGaps;      // a weight gradient may fill a gap that is shorter, even if the rank can afford the gap
};

class Greedy {
public:
  Greedy(int ranks, int64_t microbatches, const StageTimes &times, double limit, Choices choices)
      : ranks(ranks), microbatches(microbatches), times(times), limit(limit), choices(choices), state(ranks) {
    slack = 1e-9 * (times.forward + times.backwardInput + times.backwardWeight);
    for (Rank &rank : state) {
      rank.forwardEnds.reserve(microbatches);
      rank.inputEnds.reserve(microbatches);
      rank.row.reserve(3 * microbatches);
    }
    warmUp();
    for (int64_t m = 1; m < microbatches; ++m) {
      std::vector<bool> goes = forwardsOfRound();
      for (int r = 0; r < ranks; ++r)
        if (goes[r]) forwardAfterWeights(r);
      for (int r = ranks - 1; r >= 0; --r) inputGradientAfterWeights(r);
    }
    for (int r = 0; r < ranks; ++r)
      while (state[r].weights < microbatches) weightGradient(r);
  }

  double cost() const { // the longest that a rank takes
    double longest = 0;
    for (const Rank &rank : state) longest = std::max(longest, rank.clock - rank.begin);
    return longest;
  }

  void take(PipelineSchedule &schedule) {
    for (int r = 0; r < ranks; ++r) schedule.rows[r] = std::move(state[r].row);
  }

private:
  struct Rank {
    std::vector<double> forwardEnds, inputEnds; // of the microbatches done
    int64_t weights = 0;                        // weight gradients done
    double begin = 0, clock = 0, idle = 0;      // idle: after the first forward
    std::vector<ScheduledAction> row;

    int64_t forwards() const { return static_cast<int64_t>(forwardEnds.size()); }
    int64_t inputs() const { return static_cast<int64_t>(inputEnds.size()); }
    bool weightWaits() const { return weights < inputs(); }
  };

  double memory(const Rank &rank) const {
    return static_cast<double>(rank.forwards() - rank.inputs()) +
           kWeightPartOfActivations * static_cast<double>(rank.inputs() - rank.weights);
  }
  bool full(const Rank &rank) const { return memory(rank) + 1 > limit + 1e-9; }

  // When the input of the rank's next forward, or its next gradient, is there.
  double forwardArrives(int r) const {
    return r == 0 ? 0 : state[r - 1].forwardEnds[state[r].forwards()] + times.sendForward;
  }
  double gradientArrives(int r) const {
    const int64_t m = state[r].inputs();
    return r == ranks - 1 ? state[r].forwardEnds[m] : state[r + 1].inputEnds[m] + times.sendBackward;
  }

  void start(Rank &rank, double ready) {
    if (rank.row.empty())
      rank.begin = ready;
    else if (ready > rank.clock)
      rank.idle += ready - rank.clock, mostIdle = std::max(mostIdle, rank.idle);
    rank.clock = std::max(rank.clock, ready);
  }
  void forward(int r) {
    Rank &rank = state[r];
    start(rank, forwardArrives(r));
    rank.row.push_back({ActionKind::Forward, r, rank.forwards()});
    rank.forwardEnds.push_back(rank.clock += times.forward);
  }
  void inputGradient(int r) {
    Rank &rank = state[r];
    start(rank, gradientArrives(r));
    rank.row.push_back({ActionKind::BackwardInput, r, rank.inputs()});
    rank.inputEnds.push_back(rank.clock += times.backwardInput);
  }
  void weightGradient(int r) {
    Rank &rank = state[r];
    rank.row.push_back({ActionKind::BackwardWeight, r, rank.weights++});
    rank.clock += times.backwardWeight;
  }

  void warmUp() {
    for (int r = 0; r < ranks; ++r) forward(r);
    std::vector<int64_t> more(ranks, 0); // forwards before the first gradient arrives
    double gradient = state[ranks - 1].clock + times.backwardInput;
    for (int r = ranks - 2; r >= 0; --r) {
      gradient += times.sendBackward;
      double clock = state[r].clock;
      while (1 + more[r] < microbatches && static_cast<double>(2 + more[r]) <= limit + 1e-9 &&
             (choices.delayFirstGradient ? clock < gradient - slack : clock + times.forward <= gradient + slack)) {
        ++more[r];
        clock += times.forward;
      }
      gradient = std::max(clock, gradient) + times.backwardInput;
    }
    for (int r = 1; r < ranks; ++r) // each rank one fewer than the one before, unless it has them all
      if (1 + more[r] < microbatches) more[r] = std::max<int64_t>(0, std::min(more[r], more[r - 1] - 1));
    for (int r = 0; r < ranks; ++r)
      for (int64_t i = 0; i < more[r]; ++i) forward(r);
    for (int r = ranks - 1; r >= 0; --r) inputGradient(r);
  }

  // Which ranks do a forward before the next gradient. A rank must not when the one after it does not.
  std::vector<bool> forwardsOfRound() const {
    std::vector<bool> goes(ranks);
    for (int r = 0; r < ranks; ++r) goes[r] = state[r].forwards() < microbatches && !(choices.holdForwards && holds(r));
    for (int r = ranks - 2; r >= 0; --r) goes[r] = goes[r] && goes[r + 1];
    return goes;
  }

  bool holds(int r) const {
    if (r + 1 >= ranks || state[r].forwards() < state[r + 1].forwards() + 2) return false;
    const Rank &rank = state[r], &next = state[r + 1];
    const double gradient = next.clock + times.forward + times.backwardInput + times.sendBackward;
    if (rank.clock >= gradient - slack) return true;
    double clock = rank.clock, held = memory(rank) + 1;
    for (int64_t w = rank.weights; held > limit + 1e-9 && w < rank.inputs(); ++w, held -= kWeightPartOfActivations)
      clock += times.backwardWeight;
    if (clock + times.forward <= gradient + slack) return false;
    return gradient - rank.clock <= mostIdle - rank.idle + slack; // it can afford to wait for the gradient
  }

  void fillGap(int r, double arrives) {
    Rank &rank = state[r];
    while (rank.weightWaits() && rank.clock + times.backwardWeight <= arrives + slack) weightGradient(r);
    const double gap = arrives - rank.clock;
    if (rank.weightWaits() && gap > slack && (choices.fillSmallGaps || gap > mostIdle - rank.idle + slack))
      weightGradient(r);
  }

  void forwardAfterWeights(int r) {
    while (full(state[r]) && state[r].weightWaits()) weightGradient(r);
    if (r > 0) fillGap(r, forwardArrives(r));
    forward(r);
  }

  void inputGradientAfterWeights(int r) {
    if (r + 1 < ranks) fillGap(r, gradientArrives(r));
    // Nothing waits for the first rank's gradients once its forwards are done.
    if (r == 0 && state[0].forwards() == microbatches)
      while (state[0].weightWaits()) weightGradient(0);
    inputGradient(r);
  }

  int ranks;
  int64_t microbatches;
  StageTimes times;
  double limit, slack = 0, mostIdle = 0;
  Choices choices;
  std::vector<Rank> state;
};

void fillGreedily(PipelineSchedule &schedule, const StageTimes &times, double limit) {
  double least = std::numeric_limits<double>::infinity();
  for (int choice = 0; choice < 8; ++choice) {
    Greedy greedy(schedule.ranks, schedule.microbatches, times, limit,
                  {(choice & 1) != 0, (choice & 2) != 0, (choice & 4) != 0});
    if (greedy.cost() >= least) continue;
    least = greedy.cost();
    greedy.take(schedule);
  }
}

} // namespace

void fillZeroBubble1P(PipelineSchedule &schedule, const StageTimes &times) {
  fillGreedily(schedule, times, schedule.ranks);
}
void fillZeroBubble2P(PipelineSchedule &schedule, const StageTimes &times) {
  fillGreedily(schedule, times, 2.0 * schedule.ranks);
}

} // namespace cleave::planner
