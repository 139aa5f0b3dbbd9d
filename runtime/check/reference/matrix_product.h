// Products of matrices in double precision, by BLIS on all threads of the caller: the sums of contractions and
// convolutions. A result does not depend on the number of threads.
//
//   multiply({a, 4, 1}, {b, 3, 1}, {c, 3, 1}, 2, 3, 4);   // c [2,3] = a [2,4] b [4,3], all row-major
#pragma once
#include <cstdint>

namespace cleave::runtime {

// Element (i, j) is data[i * rowStride + j * columnStride].
template <typename Element> struct MatrixView {
  Element *data;
  int64_t rowStride, columnStride;
  MatrixView transposed() const { return {data, columnStride, rowStride}; }
};

// c [m,n] = a [m,k] b [k,n], added to what c holds when `adds`.
void multiply(MatrixView<const double> a, MatrixView<const double> b, MatrixView<double> c, int64_t m, int64_t n,
              int64_t k, bool adds = false);
// As many products of row-major matrices, one after the other in memory.
void multiplyBatch(int64_t count, const double *a, const double *b, double *c, int64_t m, int64_t n, int64_t k);

} // namespace cleave::runtime
