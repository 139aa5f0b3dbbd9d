// Loss formulas on core ops: the sum over the (micro)batch and the weight that a mean divides by.
//
//   softmax_cross_entropy   x[b,C], t[b]    sum_b  log(sum_c e^(x-max)) - (x-max)[b, t_b]      weight: labels not
//   ignored
//
// The class of a label is picked by comparing it to an Iota instead of by an index, so that a split of the classes over
// devices needs only partial sums. A label that is neither a class nor ignored makes the loss NaN. Formulas and limits
// are PyTorch's.
#pragma once
#include "compiler/recipe/recipe.h"
#include "dialects/onnx/formula.h"

namespace cleave::training {

struct LossTerms {
  mlir::Value sum;    // rank 0
  mlir::Value weight; // rank 0; an onnx.Constant where it is known; null for a plain sum
};

// The losses over classes: softmax_cross_entropy, nll and multi_margin. `labels` has x's shape without the dimension
// `axis`.
bool isClassLoss(recipe::LossKind kind);
LossTerms buildClassLoss(onnx::Formula f, const recipe::Loss &loss, mlir::Value x, mlir::Value labels, int64_t axis);
// softmax_cross_entropy against probabilities: `labels` has x's shape and floats.
LossTerms buildSoftClassLoss(onnx::Formula f, const recipe::Loss &loss, mlir::Value x, mlir::Value labels,
                             int64_t axis);
// bce, bce_with_logits, mse, l1, huber, kl_div. `labels` has x's shape, and so has `isEmpty`, if there is one: elements
// that do not count. `rows`: what batchmean divides by, the microbatch's part of x's first dimension; 0: its samples.
LossTerms buildElementLoss(onnx::Formula f, const recipe::Loss &loss, mlir::Value x, mlir::Value labels,
                           mlir::Value isEmpty, double rows);
// hinge_embedding and margin_ranking, where `labels` has the outputs' shape; cosine_embedding, without its last
// dimension; triplet, which has none. Labels are 1 or -1, of the outputs' element type.
bool isEmbeddingLoss(recipe::LossKind kind);
LossTerms buildEmbeddingLoss(onnx::Formula f, const recipe::Loss &loss, llvm::ArrayRef<mlir::Value> outputs,
                             mlir::Value labels);
// CTC's steps are unrolled: 1,024, 2,048 and 4,096 compile in 2.5, 4.9 and 12.9 s of a CPU, to plans of 5, 10 and 21
// MB.
inline constexpr int64_t longestCtc = 4096;
// x [steps, samples, classes], logarithms of probabilities; integers targets [samples, longest], and of each sample
// its steps and its labels.
LossTerms buildCtcLoss(onnx::Formula f, const recipe::Loss &loss, mlir::Value x, mlir::Value targets,
                       mlir::Value inputLengths, mlir::Value targetLengths);

} // namespace cleave::training
