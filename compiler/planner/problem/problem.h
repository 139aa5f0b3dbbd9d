// The subject of the planner: the forward operations of one step, their tensors and parameters. Text in, text out:
// a problem can be saved, solved, checked and diffed without the model or the compiler.
//
//   cleave-problem 2
//   batch 32 samples 32 precision fp32
//   tensor 0 input f32... see problem_text.cpp
//
// Backward work is not listed: it follows from the same factor split (a Contract's dX and dW have the same factors; a
// gradient has its tensor's layout; a parameter's gradient is partial over the axes that split factors the parameter
// does not have). `check()` before solving, `verify(problem, decision)` (decision.h) after.
#pragma once
#include "runtime/base/sharding/factor_rule.h"
#include "runtime/base/sharding/operation_kind.h"
#include "runtime/base/status.h"
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::planner {

enum class TensorKind : uint8_t {
  Parameter,  // persistent; home layout decided here (frozen parameters and running statistics too)
  Input,      // of the model; dimension 0 is the sample
  Label,      // the same, of the loss
  Constant,   // known when compiling, host scalars: every device has all of it
  Activation, // result of a node
};

// The work of a parameter's update beside passing over it once (Muon's products, norms of LAMB): of all of it, and
// where the parameter lies split along a dimension.
struct UpdateWork {
  struct Split {
    double wholeFlops = 0;            // of products that every device makes alike
    double gathered = 0, gathers = 0; // bytes that the devices put together, in so many collectives
    double summed = 0, sums = 0;      // and of which each has a part of the sum
    bool operator==(const Split &) const = default;
  };
  double flops = 0, products = 0;
  std::vector<Split> splits; // by dimension; empty: it passes over it only
  bool operator==(const UpdateWork &) const = default;
};

struct Tensor {
  std::string name;
  TensorKind kind = TensorKind::Activation;
  std::vector<int64_t> dims; // global, at `Problem::samples` samples
  int64_t elementBytes = 4;
  bool saved = false;        // Activation: the backward pass reads it
  bool chunked = false;      // Activation: lies within the operations that ChunkProducts runs part by part
  bool trainable = false;    // Parameter: has a gradient and optimizer state
  double optimizerBytes = 0; // Parameter: optimizer state, bytes an element (adam in fp32: 8)
  double masterBytes = 0;    // of these: the copy in fp32 of a parameter held in 16 bits
  double meansBytes = 0;     // of these: means over rows and over columns (Adafactor), which a split leaves whole
  double updateBytes = 0;    // Parameter: what its update makes on its way, at once, bytes an element
  UpdateWork update = {};    // Parameter
  int64_t gradientBytes = 4; // Parameter: gradient, bytes an element
  int64_t batchDim = -1;     // Input, Label: the dimension that counts samples (0 unless the model differs)

  int64_t elements() const;
  double bytes() const { return double(elements()) * double(elementBytes); }
};

struct Node {
  std::string name;
  std::string op;     // its name, for people
  std::string module; // that it is of, "h.0.attn.c_attn", for people; "": nobody tells
  dist::OperationKind kind;
  dist::FactorRule rule;
  std::vector<int> operands, results; // indices into Problem::tensors
  double flops = 0;                   // forward, global, at `samples`
  double backwardFlops = 0;           // of its whole backward, global
  bool cheap = false;                 // elementwise, broadcast, reduction, data movement: memory bound and fusible
  bool stopsGradient = false;         // no gradient flows to its operands
  bool reduces() const;               // does a result sum up a dimension, or have its largest or mean?
};

// Nodes [first, first + period * count) are `count` repetitions of `period` nodes of the same form.
struct Repeat {
  int first = 0, period = 0, count = 0;
  int end() const { return first + period * count; }
  bool operator==(const Repeat &) const = default;
};

// The factor of a dimension that a mesh axis would split, its first of more than one part; -1: none.
int64_t majorFactor(const dist::FactorRule &rule, const std::vector<int64_t> &factors);
// The dimension of a tensor that splitting the factor splits; -1: none.
int64_t dimOf(const dist::FactorRule &rule, const dist::TensorFactors &dims, int64_t factor);
// The groups of a grouped product: the factor that is reduced and that its second operand alone has; -1: none.
int64_t groupFactor(const dist::FactorRule &rule);

struct Problem {
  std::string name;
  int64_t batch = 1;   // samples a step
  int64_t samples = 1; // samples the tensors below are built with: batch, or batch / microbatches already chosen
  std::string precision = "fp32";
  bool meetsAtUpdate = false;   // it needs a number of all gradients together: clips by their norm, scales the loss
  bool chunksSamples = false;   // what is chunked can be cut along the samples alone, not along the sequence
  bool writesAttention = false; // scores of attention are written and kept, though a device may have it fused
  std::string lossMeetsAt;      // the node that makes the loss no sum, mean or weighted mean over samples; empty: none
  std::vector<Tensor> tensors;
  std::vector<Node> nodes; // in execution order: a tensor's producer stands before its consumers

  // The fault of the problem, if it has one: indices, order, rule against tensors, names used twice.
  Status check() const;

  std::string text() const;
  static Result<Problem> parse(const std::string &text, const std::string &file);

  // Per tensor: the node that makes it, -1 for none.
  std::vector<int> producers() const;
  // Per tensor: a parameter, or made from parameters and constants alone by cheap operations (an unrolled recurrence
  // cuts and joins its weights before it uses them). `trained`: only of those that are trained.
  std::vector<bool> areWeights(bool trained) const;
  // Per tensor: a gradient flows to it.
  std::vector<bool> needsGradient() const;
  // Per tensor: the dimension whose major part is the sample, -1: none. Flows from inputs through the factor rules, and
  // back to what is made only to be read along the samples.
  std::vector<int64_t> batchDims() const;
  // The node in which samples meet before the loss sums over them: it indexes or orders them, multiplies them with each
  // other, or reads a sum over them (batch statistics) beside each. Cutting the batch in microbatches is then another
  // training. Empty: nowhere.
  std::string samplesMeetAt() const;
  // The factor of a node that counts samples, given batchDims(); -1: none, or one that must stay whole.
  static int64_t batchFactor(const Node &node, const std::vector<int64_t> &batchDims);
  // Bytes of activations that are made before node i and read at or after it; one entry more than nodes.
  std::vector<double> liveBytes() const;
  // Repeated blocks by structural hashing: the longest runs of nodes whose form recurs with a period.
  std::vector<Repeat> findRepeats() const;
};

} // namespace cleave::planner
