#include "runtime/check/reference/matrix_product.h"
#include "runtime/base/threads/parallel.h"
#include <algorithm>
#include <blis.h>

namespace cleave::runtime {
namespace {

constexpr int64_t tile = 256; // rows and columns of what one thread computes at a time

int64_t tilesOf(int64_t size) { return (size + tile - 1) / tile; }

// Tile `index` of the product, counted along its rows.
void multiplyTile(MatrixView<const double> a, MatrixView<const double> b, MatrixView<double> c, int64_t m, int64_t n,
                  int64_t k, double kept, int64_t index) {
  const int64_t row = index / tilesOf(n) * tile, column = index % tilesOf(n) * tile;
  double one = 1;
  bli_dgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, std::min(tile, m - row), std::min(tile, n - column), k, &one,
            const_cast<double *>(a.data + row * a.rowStride), a.rowStride, a.columnStride,
            const_cast<double *>(b.data + column * b.columnStride), b.rowStride, b.columnStride, &kept,
            c.data + row * c.rowStride + column * c.columnStride, c.rowStride, c.columnStride);
}

} // namespace

void multiply(MatrixView<const double> a, MatrixView<const double> b, MatrixView<double> c, int64_t m, int64_t n,
              int64_t k, bool adds) {
  parallelFor(tilesOf(m) * tilesOf(n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) multiplyTile(a, b, c, m, n, k, adds ? 1 : 0, i);
  });
}

void multiplyBatch(int64_t count, const double *a, const double *b, double *c, int64_t m, int64_t n, int64_t k) {
  const int64_t tiles = tilesOf(m) * tilesOf(n);
  parallelFor(count * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / tiles;
      multiplyTile({a + at * m * k, k, 1}, {b + at * k * n, n, 1}, {c + at * m * n, n, 1}, m, n, k, 0, i % tiles);
    }
  });
}

} // namespace cleave::runtime
