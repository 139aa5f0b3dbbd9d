#include "compiler/calibrate/product_fit.h"
#include "compiler/cluster/cost.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace cleave::planner {

double flopsOf(const runtime::ProductFigure &p) {
  return 2.0 * double(p.batch) * double(p.m) * double(p.n) * double(p.k);
}

double edgeFactor(const runtime::ProductFigure &p, double lost) {
  return edgeFactor(Product{double(p.m), double(p.n), double(p.k)}, lost);
}

Spread spreadOf(std::span<const double> logs, double most) {
  Spread spread{std::min(most, std::accumulate(logs.begin(), logs.end(), 0.0) / double(logs.size()))};
  for (double value : logs) spread.error += (value - spread.mean) * (value - spread.mean);
  return spread;
}

// For a given `lost` the best rate is a mean, so only `lost` is searched.
ProductFit fitProducts(std::span<const runtime::ProductFigure> products, double start, std::optional<double> known) {
  constexpr double most = 64, step = 0.125;
  ProductFit best;
  double least = infinity;
  for (double lost = known.value_or(0); lost <= known.value_or(most); lost += step) {
    std::vector<double> logs;
    for (const runtime::ProductFigure &p : products) {
      double seconds = flopsOf(p) / p.rate;
      double working = std::max(0.1 * seconds, seconds - start);
      logs.push_back(std::log(flopsOf(p) / working * edgeFactor(p, lost)));
    }
    const Spread spread = spreadOf(logs, infinity);
    if (spread.error >= least) continue;
    least = spread.error;
    best = {std::exp(spread.mean), lost};
  }
  return best;
}

namespace {

constexpr size_t terms = 3; // of some products' time: their work at a rate of one, their starts, the bytes they copy
using Row = std::array<double, terms>; // one measurement's terms, each divided by its time; or the terms' factors

// The part of the measured time that the terms explain.
double explainedShare(const Row &row, const Row &x) {
  double sum = 0;
  for (size_t i = 0; i < terms; ++i) sum += row[i] * x[i];
  return sum;
}

double absoluteErrors(const std::vector<Row> &rows, const Row &x) {
  double error = 0;
  for (const Row &row : rows) error += std::abs(explainedShare(row, x) - 1);
  return error;
}

// The x that minimises the sum of weights[r] (rows[r] . x - 1)^2, with the terms outside `mask` zero. None when the
// rows do not determine it.
std::optional<Row> leastSquares(const std::vector<Row> &rows, const std::vector<double> &weights, unsigned mask) {
  double a[terms][terms + 1] = {};
  for (size_t i = 0; i < terms; ++i) {
    if (!(mask >> i & 1)) {
      a[i][i] = 1;
      continue;
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      const double weighted = weights[r] * rows[r][i];
      for (size_t j = 0; j < terms; ++j)
        if (mask >> j & 1) a[i][j] += weighted * rows[r][j];
      a[i][terms] += weighted;
    }
  }
  for (size_t i = 0; i < terms; ++i) { // Gauss-Jordan elimination; positive definite: no pivots
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

// Least absolute deviations by iteratively reweighted least squares: a weight is one over the last error (Schlossmacher
// 1973).
std::optional<Row> leastAbsoluteDeviations(const std::vector<Row> &rows, unsigned mask) {
  constexpr int rounds = 12;
  constexpr double minError = 1e-3; // relative; bounds the weights
  std::vector<double> weights(rows.size(), 1);
  std::optional<Row> x = leastSquares(rows, weights, mask);
  for (int round = 0; round < rounds && x; ++round) {
    for (size_t r = 0; r < rows.size(); ++r)
      weights[r] = 1 / std::max(minError, std::abs(explainedShare(rows[r], *x) - 1));
    x = leastSquares(rows, weights, mask);
  }
  return x;
}

struct Fit {
  Row x{};
  double error = infinity;
};

// The best fit among subsets of the terms that has no negative factor.
Fit fitRows(const std::vector<Row> &rows) {
  Fit best;
  for (unsigned mask : {1u, 3u, 5u, 7u}) {
    std::optional<Row> x = leastAbsoluteDeviations(rows, mask);
    if (!x || (*x)[0] <= 0 || (*x)[1] < 0 || (*x)[2] < 0) continue;
    if (const double error = absoluteErrors(rows, *x); error < best.error * (1 - 1e-9)) best = {*x, error};
  }
  return best;
}

} // namespace

// For a given `lost` the time is linear in the other three, none of which is negative. The products that make rows read
// weights, the one that makes the weights' gradient reads rows; which costs what only the two apart tell.
LayerFit fitLayers(std::span<const runtime::LayerFigure> layers) {
  constexpr double most = 64, step = 0.25;
  LayerFit best;
  double least = infinity;
  for (double lost = 0; lost <= most; lost += step) {
    std::vector<Row> rows;
    for (const runtime::LayerFigure &layer : layers) {
      const double s = double(layer.samples), in = double(layer.in), out = double(layer.out);
      const double product = 2 * s * in * out * edgeFactor(Product{s, out, in}, lost);
      const double made = layer.rowSeconds, gradient = std::max(0.1 * layer.seconds, layer.seconds - made);
      rows.push_back({2 * product / made, 2 / made, 4 * 2 * in * out / made});
      rows.push_back({product / gradient, 1 / gradient, 4 * s * (in + out) / gradient});
    }
    const Fit fit = fitRows(rows);
    if (fit.error >= least * (1 - 1e-9)) continue;
    least = fit.error;
    best = {1 / fit.x[0], lost, fit.x[1], fit.x[2]};
  }
  return best;
}

// For a given block the time is linear in the other three.
ConvolutionFit fitConvolutions(std::span<const runtime::ConvolutionFigure> convolutions) {
  ConvolutionFit best;
  double least = infinity;
  for (double block : {1.0, 4.0, 8.0, 16.0, 32.0}) {
    std::vector<Row> rows;
    for (const runtime::ConvolutionFigure &c : convolutions) {
      const double positions = double(c.samples * c.side * c.side), kernel = double(c.kernel * c.kernel);
      const double in = double(c.in), out = double(c.out), flops = 2 * positions * in * out * kernel;
      const ConvolutionShape shape{in, out, 1, 4 * positions * in, 4 * positions * out, 4 * in * out * kernel};
      for (auto [pass, seconds] : {std::pair{ConvolutionPass::Forward, c.forward},
                                   {ConvolutionPass::GradInput, c.gradInput},
                                   {ConvolutionPass::GradWeight, c.gradWeight}}) {
        const Blocked blocked = blockedBy(block, pass, shape);
        rows.push_back({flops * blocked.work / seconds, 1 / seconds, blocked.ordered / seconds});
      }
    }
    const Fit fit = fitRows(rows);
    if (fit.error >= least * (1 - 1e-9)) continue;
    least = fit.error;
    best = {1 / fit.x[0], block, fit.x[1], fit.x[2]};
  }
  return best;
}

} // namespace cleave::planner
