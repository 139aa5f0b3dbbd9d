#include "compiler/planner/product_fit.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::planner {

double flopsOf(const runtime::ProductFigure &p) {
  return 2.0 * double(p.batch) * double(p.m) * double(p.n) * double(p.k);
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
      double edges = (1 + lost / double(p.m)) * (1 + lost / double(p.n)) * (1 + lost / double(p.k));
      logs.push_back(std::log(flopsOf(p) / working * edges));
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

} // namespace cleave::planner
