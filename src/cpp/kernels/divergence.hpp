// Divergences from sums of draws and draw by draw: arguments and kernels of divergence-inl.hpp.
#pragma once

#include "kernels/draws.hpp"

namespace pydirect {

// log p(w) of a prior up to a constant of the caller's.
struct LogDensity {
  enum class Kind { kPolynomial, kPowers, kLogistic } kind;
  double centre, scale, log_scale;
  // Piecewise polynomial in w − centre, one row of coefficients more than there are knots.
  Index degree, n_knots;
  const double *coefficients, *knots;
  // Σ factor w^exponent + log_factor log w + log_square_factor (log w − log_centre)²
  Index n_powers, n_logs;
  const double *exponents, *factors;
  double log_factor, log_square_factor, log_centre;
};

// Σ over weights of −log σ − mean log p(μ + σ ξ), mean powers of ξ given; slopes are written.
struct DivergenceBlock {
  Index n_columns;
  const double *location, *scale;  // (n_columns,); no location for powers
  const double* sums;              // means, (n_sums, sum_stride)
  Index sum_stride;
  double *location_slope, *scale_slope;
};

// The same sums draw by draw: of log p(w), its derivative, and ξ times it.
struct DirectSums {
  Index n_columns, n_draws;
  bool exponential;  // w = exp(μ + σ ξ), and the density is that of log w
  const double *location, *scale;  // (n_columns up to a multiple of 8,)
  const double* xi;                // (n_draws, kDrawColumns)
  const double* log_xi;            // the same; of positive laws
  double *value, *slope, *scale_slope;  // increased
};

struct DivergenceKernels {
  double (*from_sums)(const LogDensity&, const DivergenceBlock&);
  void (*add_log_densities)(const LogDensity&, const DirectSums&);
};

}  // namespace pydirect
