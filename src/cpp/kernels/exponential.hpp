// Expected exponentials of linear functions of discrete weights: arguments and kernels of exponential-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Rows of log E exp(x·w), x_j = factor φ_j, for independent discrete weights w_j.
constexpr Index kExponentialRows = 4;
constexpr double kLargestLogTerm = 100.0;  // a term beyond counts as this much in the gradient, which stays finite
struct ExponentialRows {
  Index n_rows, n_weights;
  const double* phi;     // (n_rows, stride)
  Index stride;
  const double* factor;  // (n_rows,)
  const double* weight;  // (n_rows,)
  Index n_levels, padded;  // weights padded to kLevelPadding, q = 1 at the first level there
  const double* q;       // (n_levels, padded)
  const double* first;   // (padded,) lowest level of each weight
  const double* offsets; // (n_levels, padded) w_jk − w_j0
  bool evenly_spaced;    // offsets are multiples of their second row
  double* scratch;       // (2 kExponentialRows, padded) when there is a gradient
  double* log_terms;     // (n_rows,)
  double* gradient;      // (n_levels, padded), added to; or nullptr
};

struct ExponentialKernels {
  void (*terms)(const ExponentialRows&);
};

}  // namespace pydirect
