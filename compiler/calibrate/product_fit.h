// The laws of matrix products and convolutions (cost.h) that measured rates come closest to.
//
//   fitProducts({{1, 512, 512, 512, 2.1e11}, ...}, 1.3e-6)     // {.rate = 2.3e11, .lost = 4.5}
#pragma once
#include "runtime/plan/machine_figures.h"
#include <optional>
#include <span>

namespace cleave::planner {

// rate / ((1 + lost/m) (1 + lost/n) (1 + lost/k)) FLOP/s, after the start.
struct ProductFit {
  double rate = 0, lost = 0;
};

double flopsOf(const runtime::ProductFigure &product);
double edgeFactor(const runtime::ProductFigure &product, double lost); // cost.h
// The mean of logarithms, at most `most`, and the sum of their squared distances from it.
struct Spread {
  double mean = 0, error = 0;
};
Spread spreadOf(std::span<const double> logs, double most);
// Least squares of the logarithms. `start`: seconds of a product that has next to nothing to do. `lost`: where it is
// known.
ProductFit fitProducts(std::span<const runtime::ProductFigure> products, double start,
                       std::optional<double> lost = std::nullopt);

// The time of layers' products on a CPU: besides the law above a start that counts, and seconds for each byte that
// is copied into another order first, as cost.h says.
struct LayerFit {
  double rate = 0, lost = 0, start = 0, readSeconds = 0;
};
// Least sum of relative errors: a trial that something else disturbed moves nothing.
LayerFit fitLayers(std::span<const runtime::LayerFigure> layers);

// The time of convolutions on a CPU: FLOP/s with whole blocks of channels, a start, and seconds for each byte that is
// ordered (ConvolutionLaw). Least sum of relative errors.
struct ConvolutionFit {
  double rate = 0, block = 0, start = 0, orderSeconds = 0;
};
ConvolutionFit fitConvolutions(std::span<const runtime::ConvolutionFigure> convolutions);

} // namespace cleave::planner
