// What an evaluation finds on samples that are held out: the loss and the recipe's metrics, joined over its batches.
//
//   Result<EvaluationRules> rules = readEvaluationRules(plan.training());
//   EvaluationSums sums;
//   sums.add(outputs, executor.outputTensors());        // of each run of the routine "evaluate"
//   EvaluationResult found = sums.result(*rules);       // found.metrics.at("accuracy") == 0.93
//   rules->score(found)                                 // by which one is better than another: less is better
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

struct EvaluationResult {
  double loss = 0;
  std::map<std::string, double> losses;  // several, by name, without their scales
  std::map<std::string, double> metrics; // by their names in the recipe
  std::map<std::string, std::vector<std::vector<double>>> confusion; // likewise: [class wanted][class said]
  int64_t samples = 0;                                               // that were looked at
  int64_t heldOut = 0;                                               // that there are; 0: the caller gave them
  bool isFirst = true; // this process is the run's first, which tells the result
};

// The recipe's `eval`.
struct EvaluationRules {
  struct Metric {
    std::string name, kind, loss; // `loss`: of several, the one that it is of
    bool isBinary = false;        // labels are 0 or 1, not classes
  };
  struct Part {
    std::string name;
    double scale = 1;
  };
  int64_t every = 0, batches = 10; // how often, and on how many batches; every = 0: never
  std::vector<Metric> metrics;
  std::vector<Part> parts; // of a sum of losses
  std::string monitor = "loss";
  int64_t patience = 0;
  double minDelta = 0;

  double score(const EvaluationResult &result) const;
};
Result<EvaluationRules> readEvaluationRules(const plan::Training &training);

class EvaluationSums {
public:
  // `numbers`, `tensors`: what a run gave, by name. `share`: of a batch that the run is, where the loss is a plain sum.
  void add(const std::map<std::string, double> &numbers, const std::map<std::string, std::vector<double>> &tensors,
           double share, int64_t samples);
  EvaluationResult result(const EvaluationRules &rules) const;

private:
  // A mean, of values with their weights.
  struct Mean {
    double sum = 0, weight = 0;
    double value() const { return sum / weight; }
  };
  Mean loss;
  std::map<std::string, Mean> losses; // of several, each
  int64_t count = 0;                  // samples
  std::map<std::string, double> sums;
  std::map<std::string, std::vector<double>> tables;
};

// 2 tp / (2 tp + fp + fn): the mean over the classes that are wanted or said; with `isBinary` that of class 1.
double f1Of(const std::vector<std::vector<double>> &confusion, bool isBinary);

} // namespace cleave::runtime
