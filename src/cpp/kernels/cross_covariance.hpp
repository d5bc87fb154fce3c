// Covariance of a Gaussian process between rows and others: arguments and kernels of cross_covariance-inl.hpp.
#pragma once

#include <cstdint>

#include "pydirect/types.hpp"

namespace pydirect {

constexpr Index kStripColumns = 256;  // whose distances wait in the nearest cache
constexpr Index kRowsTogether = 4;    // at most

// The second part: none, exp(−|x − z|/ℓ), a product over axes, exp(−Σ|x_j − z_j|/ℓ_j), or the mean over pairs of axes of
// M(|x_j − z_j|/ℓ_j) M(|x_k − z_k|/ℓ_k), M of smoothness 5/2.
enum RoughPart { kNoRoughPart, kIsotropicPart, kProductPart, kPairsPart, kRoughParts };

// a_A Matérn(|x − z|_w) + a_I exponential part + a_L x_L·z_L + constant. Weights are those of squared distances in units
// of log 2: a Matérn function of the distance y is a polynomial times 2^−y.
struct CrossCovariance {
  Index n_rows, n_inputs, n_linear, n_others;
  const double* x;         // (n_rows, n_inputs)
  const double* x_linear;  // (n_rows, n_linear)
  const double* others;    // (⌈n_others/8⌉, n_inputs + n_linear, 8): all inputs, then those of the linear part
  const double* weights;   // (n_inputs,) of the Matérn part
  double isotropic_weight;
  const double* product_weights;  // (n_inputs,) of distances along axes, in the same units; 0 for inputs not seen
  double per_pair;                // one over twice the number of pairs of axes
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  double* strips;  // (3, kRowsTogether, kStripColumns) to work in
  double* out;     // (n_rows, n_others)
  // Inputs in which a row (n_rows, n_words), or one of eight others (⌈n_others/8⌉, n_words), differs from the first of the
  // others, a bit each; null: all are summed. `inputs` (n_inputs,): 0, 1, …, or to work in; null: nothing is left out.
  const std::uint64_t *moving_rows = nullptr, *moving_others = nullptr;
  Index n_words = 0;
  Index* inputs = nullptr;
  const double* rest = nullptr;  // (n_linear,) what the products of the linear part are less, and their sum
  double rest_sum = 0.0;
};

struct CrossCovarianceKernels {
  void (*of_rows[4][kRoughParts])(const CrossCovariance&);  // by kernel_of
};

}  // namespace pydirect
