// The meaning of every core operator, as terms. It reads the reference graph and the operations of kernels alike.
//
//   Tensor y = operations.apply(node, {x, w}, {f32, {8, 16}}, {});     y.value: a term of the dimensions d0 < 8, d1 <
//   16
//
// An operator that is not known here throws Unproved.
#pragma once
#include "graph.pb.h"
#include "runtime/base/attention_band.h"
#include "runtime/base/boxes.h"
#include "runtime/check/proof/store.h"
#include "runtime/plan/dtype.h"
#include <optional>

namespace cleave::proof {

struct TensorType {
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
};
// `value` depends on Dimension variables (d, shape[d]), mesh coordinates, and nothing else.
struct Tensor {
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
  Term value{};
};

using runtime::elementCount;
using runtime::rowMajorStrides;

// The window of a convolution or pool: one entry a spatial dimension.
struct Window {
  std::vector<int64_t> kernel, strides, padsBegin, dilations;
  int64_t groups = 1;
};

class Operations {
public:
  explicit Operations(Store &store) : store(store) {}

  // `scalars`: of a kernel's launch, what an operator's index counts from.
  Tensor apply(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type,
               const std::vector<Index> &scalars);
  // Bytes that the plan carries: one number where all elements are it, else a tensor named by its bytes.
  Tensor constant(const std::string &bytes, const TensorType &type);

  // The element of a tensor at an index.
  Term at(const Tensor &tensor, const std::vector<Index> &index);
  // The element number `linear` in row-major order.
  Term atLinear(const Tensor &tensor, Index linear);
  std::vector<Index> dimensions(const std::vector<int64_t> &shape);
  Index linear(const std::vector<Index> &index, const std::vector<int64_t> &strides);
  std::vector<Index> places(Index linear, const std::vector<int64_t> &shape);

  // Library operations that commands and operators share. Shapes are those of the forward operation.
  Tensor gather(const Tensor &table, const Tensor &indices, int64_t outer, int64_t rows, int64_t inner, Index start,
                int64_t globalRows, const std::vector<int64_t> &shape);
  Tensor scatterAdd(const Tensor &indices, const Tensor &updates, int64_t outer, int64_t rows, int64_t inner,
                    Index start, int64_t globalRows, const std::vector<int64_t> &shape);
  // Where each entry of the leading `batch` dimensions looks up rows of its own (batch_dims).
  Tensor gatherOfEntries(const Tensor &table, const Tensor &indices, size_t axis, size_t batch, const TensorType &type);
  Tensor scatterAddOfEntries(const Tensor &indices, const Tensor &updates, size_t axis, size_t batch,
                             const TensorType &type);
  // GroupedContract over index letters, with the rows of the groups from `start` on.
  struct GroupLetters {
    std::vector<int64_t> lhs, rhs, rows, result;
    int64_t group = 0, count = 0;
  };
  Tensor groupedContract(const GroupLetters &letters, const Tensor &lhs, const Tensor &rhs, const Tensor &groups,
                         Index start, int64_t globalGroups, const TensorType &type);
  Tensor cumSum(const Tensor &x, int64_t axis, bool exclusive, bool reverse);
  Tensor convolution(const Tensor &x, const Tensor &w, const Window &window, const TensorType &type);
  Tensor convolutionInput(const Tensor &dy, const Tensor &w, const Window &window, const TensorType &type);
  Tensor convolutionWeight(const Tensor &x, const Tensor &dy, const Window &window, const TensorType &type);
  // Tensors of [batch, heads, positions, features] in one type, whose products and softmax are in fp32.
  struct AttentionOperands {
    Tensor query, key, value;
    std::optional<Tensor> bias; // added to the scores, of size 1 where it is the same
    double scale = 1;
    runtime::AttentionBand band; // of keys that the queries see
    double softCap = 0;          // 0: none
  };
  struct AttentionForward {
    Term output, stats; // stats [batch, heads, positions]
  };
  struct AttentionBackward {
    Term query, key, value;
  };
  AttentionForward attention(const AttentionOperands &of);
  AttentionBackward attentionGradient(const AttentionOperands &of, const Tensor &output, const Tensor &stats,
                                      const Tensor &outputGradient);
  // Pools are names: `operands` are functions of their spatial dimensions.
  Tensor pool(const std::string &name, const std::vector<Tensor> &operands, const TensorType &type);

private:
  // Products of x and `other`, a weight or a gradient, summed over variables and, in each spatial dimension, over the
  // taps or the outputs that `other` has there; where both are read in the dimensions before these.
  struct WindowSum {
    const Tensor &x, &other;
    bool isOverTaps;
    std::vector<Atom> over;
    std::vector<Index> ofX, ofOther;
  };
  Index rowOfEntry(const Tensor &indices, const std::vector<Index> &place, int64_t rows);
  Tensor overWindows(WindowSum sum, const Window &window, const TensorType &type);
  Index windowPlace(const Window &window, size_t d, Index output, Index tap);
  Term unary(const std::string &op, Term x, plan::DType dtype);
  Term binary(const std::string &op, Term a, Term b, plan::DType dtype);
  Term cast(Term x, plan::DType from, plan::DType to);
  Term number(const char *bytes, plan::DType dtype);
  Tensor applied(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type,
                 const std::vector<Index> &scalars);
  Tensor contract(const plan::GraphNode &node, const Tensor &lhs, const Tensor &rhs, const TensorType &type);
  Tensor reduction(Reduce kind, const Tensor &x, const std::vector<int64_t> &axes, const TensorType &type);
  struct Scores {
    Tensor x;
    std::optional<Term> slope; // of a soft cap: the derivative by what is capped
  };
  Scores scores(const AttentionOperands &of);
  Tensor probabilities(const Tensor &scores, const Tensor &stats);
  Term ofHead(const Tensor &x, const std::vector<Index> &index, int64_t heads);
  Tensor movement(const plan::GraphNode &node, const std::vector<Tensor> &operands, const TensorType &type);

  Store &store;
};

} // namespace cleave::proof
