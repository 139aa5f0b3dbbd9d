// Where a decision's time and memory go, and what it would take elsewhere: for the report.
//
//   breakdown(decided).time {"layers.0..11", "Contract", 72 operations, 1.2 s compute, 0.3 s communication},
//   ...
#pragma once
#include "compiler/planner/explain/decided_model.h"

namespace cleave::planner {

// A tensor that collectives move: a parameter, or what a node makes, or their gradients.
struct MovedTensor {
  std::string name;       // of the parameter or node; of several alike in repeated blocks the first one's
  int64_t alike = 1;      // in the whole model
  double bytes = 0;       // of a step, all of them: part of CollectiveTotal::bytes
  std::string shown = {}; // to people (display_names.h)
};
inline constexpr size_t mostMovedTensors = 8; // that a CollectiveTotal names

// One kind of collective in a step, summed: on one device, of a pipeline the mean of its ranks.
struct CollectiveTotal {
  std::string op; // "all_reduce", ...; "send", to another stage
  dist::Axes axes;
  double bytes = 0; // of the tensors as the devices of the group have them together; of a shift or send, what goes out
  int64_t count = 0;
  double seconds = 0;                         // if nothing hid it
  bool hidden = false;                        // most of it, behind compute
  double forwardBytes = 0, backwardBytes = 0; // of `bytes`: in forward and in backward passes; the rest once a step
  std::string why;                            // of several repetitions the first one's
  std::string shown = {};                     // the same to people (display_names.h)
  std::vector<MovedTensor> tensors;           // with most bytes first
  int64_t tensorsMore = 0;                    // that are not named
};

// One kind of collective that moves a tensor, or its gradient, in a step: on one device, of a pipeline the mean of its
// ranks, with those of its repetitions in other blocks.
struct TensorCollective {
  std::string tensor; // the parameter's or node's name; of several alike in repeated blocks the first one's
  int64_t alike = 1;
  std::string op;
  dist::Axes axes;
  std::string why;
  double bytes = 0, seconds = 0;
};

// A step's seconds of one kind of operation in one part of the model, on one device; of a pipeline: the mean of its
// ranks. Parts are the repeated blocks, all repetitions of one together, and what stands between them. "optimizer":
// the update, with the collectives over gradients and parameters. Together they are the step's compute, its exposed and
// its hidden communication: of what may hide each operation has the same part hidden, but for what hides behind
// products.
struct TimePart {
  std::string part, op;
  int64_t count = 0; // operations
  double computeSeconds = 0, communicationSeconds = 0;
  double besideSeconds = 0; // collectives that compute hides
};

struct Breakdown {
  std::vector<std::string> parts; // of the model, by node: the names of TimePart::part
  std::vector<TimePart> time;
  std::vector<CollectiveTotal> collectives;        // that the decision implies, what takes longest first
  std::vector<TensorCollective> tensorCollectives; // the same by tensor
  // Beside Predicted::hiddenCommunicationSeconds, which is what all compute of a step hides: of collectives over tp,
  // what the product that each stands beside hides, and which is therefore in no price. Mean of a pipeline's ranks.
  double hiddenBehindProducts = 0;
  // The part of exposed communication that collectives take longer since others use their links meanwhile. So likewise.
  // Hidden and exposed communication are all collectives' seconds, but for what stages send each other (which runs
  // beside compute; what a rank waits for it is in the bubble), and for this, and for copies to the host's memory.
  double contention = 0;
};
Breakdown breakdown(const DecidedModel &decided);

// The step's time if one thing of the cluster were twice as good and the decision stayed the same.
struct Sensitivity {
  std::string what; // "network bandwidth", ...
  double stepSeconds = 0;
};
Result<std::vector<Sensitivity>> sensitivities(const DecidedModel &decided);

// The cost of every candidate of every node with all other choices as decided, repeated blocks once.
std::vector<NodeExplanation> explainAll(const DecidedModel &decided);

} // namespace cleave::planner
