#include "compiler/planner/product_fit.h"
#include "compiler/planner/cost.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace cleave::planner {

double flopsOf(const runtime::ProductFigure &p) {
  return 2.0 * double(p.batch) * double(p.m) * double(p.n) * double(p.k);
}

double edgeFactor(const runtime::ProductFigure &p, double lost) {
  return edgeFactor(Product{double(p.m), double(p.n), double(p.k)}, lost);
}

// For a given `lost` the best rate is a mean, so only `lost` is searched.
ProductFit fitProducts(std::span<const runtime::ProductFigure> products, double start, std::optional<double> known) {
  constexpr double most = 64, step = 0.125;
  ProductFit best;
  double least = std::numeric_limits<double>::infinity();
  for (double lost = known.value_or(0); lost <= known.value_or(most); lost += step) {
    std::vector<double> logs;
    for (const runtime::ProductFigure &p : products) {
      double seconds = flopsOf(p) / p.rate;
      double working = std::max(0.1 * seconds, seconds - start);
      logs.push_back(std::log(flopsOf(p) / working * edgeFactor(p, lost)));
    }
    double mean = 0, error = 0;
    for (double value : logs) mean += value / double(logs.size());
    for (double value : logs) error += (value - mean) * (value - mean);
    if (error >= least) continue;
    least = error;
    best = {std::exp(mean), lost};
  }
  return best;
}

namespace {

constexpr size_t terms = 3; // of a layer's time: its work at a rate of one, its starts, the bytes it copies
using Row = std::array<double, terms>;

// Least squares of `rows` x = 1 over the terms in `mask`, the others zero; none when they do not determine it.
std::optional<Row> leastSquares(const std::vector<Row> &rows, unsigned mask) {
  double a[terms][terms + 1] = {};
  for (size_t i = 0; i < terms; ++i) {
    if (!(mask >> i & 1)) {
      a[i][i] = 1;
      continue;
    }
    for (const Row &row : rows) {
      for (size_t j = 0; j < terms; ++j)
        if (mask >> j & 1) a[i][j] += row[i] * row[j];
      a[i][terms] += row[i];
    }
  }
  for (size_t i = 0; i < terms; ++i) { // positive definite: no pivots
    if (!(a[i][i] > 0)) return std::nullopt;
    for (size_t other = 0; other < terms; ++other) {
      if (other == i) continue;
      const double factor = a[other][i] / a[i][i];
      for (size_t j = i; j <= terms; ++j) a[other][j] -= factor * a[i][j];
    }
  }
  Row x;
  for (size_t i = 0; i < terms; ++i) x[i] = a[i][terms] / a[i][i];
  return x;
}

} // namespace

// For a given `lost` the time is linear in the other three, none of which is negative.
LayerFit fitLayers(std::span<const runtime::LayerFigure> layers) {
  constexpr double most = 64, step = 0.25;
  LayerFit best;
  double least = std::numeric_limits<double>::infinity();
  for (double lost = 0; lost <= most; lost += step) {
    std::vector<Row> rows;
    for (const runtime::LayerFigure &layer : layers) {
      const double s = double(layer.samples), in = double(layer.in), out = double(layer.out);
      const double work = 6 * s * in * out * edgeFactor(Product{s, out, in}, lost),
                   read = 4 * (2 * in * out + s * (in + out));
      rows.push_back({work / layer.seconds, 3 / layer.seconds, read / layer.seconds});
    }
    for (unsigned mask : {1u, 3u, 5u, 7u}) {
      std::optional<Row> x = leastSquares(rows, mask);
      if (!x || (*x)[0] <= 0 || (*x)[1] < 0 || (*x)[2] < 0) continue;
      double error = 0;
      for (const Row &row : rows) {
        const double off = row[0] * (*x)[0] + row[1] * (*x)[1] + row[2] * (*x)[2] - 1;
        error += off * off;
      }
      if (error >= least * (1 - 1e-9)) continue;
      least = error;
      best = {1 / (*x)[0], lost, (*x)[1], (*x)[2]};
    }
  }
  return best;
}

} // namespace cleave::planner
