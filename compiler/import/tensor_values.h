// Looks at tensors in place, and at numbers of nodes: enough to tell weights from masks and fresh constants.
#pragma once
#include "compiler/import/tensor_store.h"

namespace cleave::import_ {

// Every element has the bytes of the first. False when the bytes are unknown; stops at the first difference.
bool allEqual(const StoredTensor &tensor);
// Holds an infinity, a NaN or a number <= -1e30, or nothing but zeros and one number <= -100: what attention masks are
// made of. False when the bytes are unknown.
bool looksLikeMask(const StoredTensor &tensor);
// A table of sines and cosines of positions, in whatever order: the squares of every row [.., d] that is not zero sum
// up to d/2 (a sine and a cosine for each frequency). Of float32 and float64; false when the bytes are unknown.
bool isSinusoidal(const StoredTensor &tensor);
// A table [.., positions, .., frequencies..] of cosines or of sines alone, or of both, of positions 0, 1, 2, ..: begins
// with ones and zeros, and every column x follows x[p + 1] + x[p - 1] = 2 cos(frequency) x[p]. Of float32 and float64,
// with three turns or more; false when the bytes are unknown.
bool isTableOfAngles(const StoredTensor &tensor);
// No two rows [.., d] have the same bytes. False when the bytes are unknown.
bool hasDistinctRows(const StoredTensor &tensor);
// The first element, of a float, integer or bool tensor that has one.
std::optional<double> firstNumber(const StoredTensor &tensor);
// A node's attribute of this name, float or integer; `missing` where it has none.
double number(const ::onnx::NodeProto &node, const char *name, double missing);
// Same type, shape and bytes.
bool sameContent(const StoredTensor &a, const StoredTensor &b);
// Both are matrices of the same type, and b[j, i] has the bytes of a[i, j].
bool transposedContent(const StoredTensor &a, const StoredTensor &b);

} // namespace cleave::import_
