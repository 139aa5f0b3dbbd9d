// The evidence for and against a weight, from the nodes that read an initializer and from its numbers: a mask, a table,
// a limit?
#pragma once
#include "compiler/import/tensor_values.h"
#include "compiler/import/weights/ties.h"
#include <functional>

namespace cleave::import_ {

bool isConfiguration(const std::string &op, int operand);    // configures the node rather than being a weight
bool isWeightOperand(const std::string &op, int operand);    // whatever its size: a bias of one output, a PRelu's slope
bool isQuantizedOperand(const std::string &op, int operand); // its integers stand for a weight's real numbers
// The result does not change with small changes of the operands: what only such nodes read cannot train.
bool isComparison(const std::string &op);

// Is what a node makes compared with something, past nodes that only move or cast it? By the node itself, too.
bool isComparedPast(const GraphIndex &index, size_t node);
// A matrix that an operator multiplies by, or looks rows up in; or what is always a weight.
bool isReadAsWeight(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses);
// The value that a mask fills in: TorchScript calls a module's buffer "h.0.attn.masked_bias", as if it were a
// parameter.
bool isMaskNumber(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses);
// The bias of a layer with one output: an operand that is always a weight, or added to a product.
bool hasWeightUse(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses);
// Frequencies of rotary positions, or their cosines and sines: folded by the exporter (so without a module's dotted
// name, and not stated as a parameter), at least two real dimensions, only ever a factor of an elementwise product.
bool isRotary(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses, bool isStated);
// The scale and bias that a group normalization is given to be written as an InstanceNormalization: all elements
// equal, no module's dotted name, and a product with the layer's own scale comes after the Reshape back.
bool isNeutral(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses,
               const std::function<bool(const std::string &)> &isInitializer);
// Multiplied by or looked up in, and too large to look for values of masks in it.
bool isLargeWeight(const GraphIndex &index, const StoredTensor &tensor, const std::vector<Use> &uses);

} // namespace cleave::import_
