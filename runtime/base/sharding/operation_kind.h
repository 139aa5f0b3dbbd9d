// The kind of an operation, where that makes a difference beyond its factor rule. The operation says so itself (its
// facet of cost), and the planner's problem carries it: nothing there is known by its name.
//
//   Exp         {Elementwise, Function}      Reshape   {Reshape}, a view
//   ReduceSum   {Elementwise, Reduction}     Contract  {Product}, heavy
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave::dist {

enum class Form : uint8_t {
  Elementwise,  // and what is fused as such operations are: reductions, draws, pads
  Accumulation, // the sum of its operands, whose gradients are those of the result
  Cast,
  Reshape, // a view, and so are the next three: a kernel reads the operand where it lies, or computes from indices
  Broadcast,
  Iota,
  Identity,
  Transpose,
  Slice,
  Concat,
  Gather,
  Pool,    // a library's, of windows
  Product, // heavy, as all below: bound by arithmetic, and never fused
  Convolution,
  TransposedConvolution // the gradient of a convolution's input
};
inline constexpr const char *formNames[] = {
    "elementwise", "accumulation", "cast",      "reshape",     "broadcast",
    "iota",        "identity",     "transpose", "slice",       "concat",
    "gather",      "pool",         "product",   "convolution", "transposed-convolution"};

// The work of a memory-bound operation on each element, apart from moving it.
enum class ElementWork : uint8_t {
  None,       // moves only
  Arithmetic, // adds, multiplies, compares, selects, ...
  Division,   // also roots
  Function,   // exponentials, logarithms, error functions, ...
  Reduction,  // sums and extrema
  Random,     // draws
  Window      // elements of the windows of pooling
};
inline constexpr size_t elementWorks = 7;
inline constexpr const char *elementWorkNames[elementWorks] = {"none",      "arithmetic", "division", "function",
                                                               "reduction", "random",     "window"};

struct OperationKind {
  Form form = Form::Elementwise;
  ElementWork work = ElementWork::Arithmetic;

  bool isHeavy() const { return form >= Form::Product; }
  bool isView() const { return form >= Form::Reshape && form <= Form::Identity; }
  bool operator==(const OperationKind &) const = default;
};

} // namespace cleave::dist
