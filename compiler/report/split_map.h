// The model as its split sees it: parts in the order of execution, repeated blocks once, in each the operations with
// how their tensors lie in words, who reads whose result, and the collectives of each tensor.
//
//   splitMap(report)[1]   "layers.0..11", stages 0 to 3
//     .operations[4]      "layers.0..11.mlp.up", over dp and tp
//                         weight 1024 x 4096: columns over tp; makes 8 x 128 x 4096: samples over dp, last dimension
//                         over tp; all_reduce over tp: partial results of a split reduction are combined
#pragma once
#include "compiler/report/report.h"

namespace cleave::report {

struct MapTensor {
  std::string name;   // of the parameter or input, or of the operation that makes it
  std::string layout; // "8 x 128 x 4096: samples over dp"
};

struct MapOperation {
  const planner::NodeExplanation *choice = nullptr;
  std::string name;             // as DisplayNames has it, with its repetitions
  dist::Axes axes;              // that split it
  std::vector<MapTensor> reads; // activations and inputs
  std::vector<MapTensor> parameters;
  std::vector<MapTensor> makes;
  std::vector<const planner::TensorCollective *> collectives; // of its results and parameters, and of their gradients
  std::vector<int> readers;                                   // later operations of the part that read its results
  bool readsFromAbove = false;                                // results of other parts, or of the repetition before
  bool readBelow = false; // its results are read in other parts, or by the repetition after
};

struct MapPart {
  std::string name;
  int64_t firstStage = -1, lastStage = -1; // of a pipeline; -1: none
  std::vector<MapOperation> operations;
};

// Empty where the report does not say what it was made from. Points into the report.
std::vector<MapPart> splitMap(const Report &report);

// "rows over dp, columns over tp", "whole on every device"; `sampleDim`: the dimension that counts samples, or -1.
std::string layoutInWords(const dist::Sharding &layout, int64_t sampleDim = -1);

} // namespace cleave::report
