// Rows of a Gaussian process' covariance and of its gradient: arguments and kernels of gaussian_process-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Radial functions by twice their smoothness: Matérn ones of 1/2, 3/2, 5/2, and 0, the squared exponential.
inline int kernel_of(int twice_smoothness) { return twice_smoothness == 0 ? 3 : twice_smoothness / 2; }

// The second part of a covariance, beside the Matérn one: exp(−|x_I − x_I'|), a product over axes, exp(−Σ|p − p'|), or
// the mean over pairs of axes of M(|p_j − p_j'|) M(|p_k − p_k'|), M(t) = (1 + t + t²/3) exp(−t).
enum SecondPart { kOfDistance, kOfAxes, kOfPairs, kSecondParts };

// Rows are those of the upper triangle from the pack on that holds the diagonal: `own` columns stand before it.

// One row of the covariance  a_A Matérn(|x_A − x_A'|) + a_I exp(−ρr) + a_L x_L·x_L' + constant; ρr is ρ|x_I − x_I'|, or
// Σ|p − p'|; of pairs, the mean itself comes in. What the gradient needs again goes out.
struct CovarianceRow {
  Index n;                 // columns
  double* ard;             // in: x_A·x_A';  out: −∂(a_A Matérn)/∂|x_A − x_A'|²
  double* second;          // in, but for distances: what axes_row returns;  out: the second part
  const double* distance;  // |x_I − x_I'|
  const double* linear;    // x_L·x_L'
  const double* ard_norm;  // |x_A|² of every column
  double own_ard_norm, rate;
  double ard_amplitude, second_amplitude, linear_amplitude, constant;
  double* covariance;      // out
};

// One row of Σ|p − p'|, or of the mean over pairs.
struct AxesRow {
  Index n, n_axes, stride;
  const double* axes;  // (n_axes, stride): p of every column
  Index own;
  double* distance;    // out
};

// One row of the gradient. M = ½ (K⁻¹ − ααᵀ) is the derivative of −log N(y; 0, K) in K.
struct CovarianceGradientRow {
  Index n, own;
  const double* inverse;     // row of K⁻¹
  const double* alpha;       // K⁻¹y
  const double* ard;         // as the forward pass left them
  double* second;            // of axes, out: M k_I, of pairs M a_I, zero beside the triangle
  const double* distance;
  const double* linear;
  double rate, second_amplitude;
  double* distance_weight;   // out: M ∂(a_A Matérn)/∂|x_A − x_A'|², zero beside the triangle
  double* column_sums;       // to which it is added
  double sums[5];            // out: over the row of M k_I, M k_I ρr, M x_L·x_L', M and distance_weight
};

// Σ M ∂k_I/∂log ℓ_j over the row, for every axis j.
struct AxesGradientRow {
  AxesRow rows;     // `distance`, in: what gradient_row leaves
  double* scratch;  // (3, n_axes, kLevelPadding)
  double* sums;     // (n_axes,) out
};

struct GaussianProcessKernels {
  void (*covariance_row[4][kSecondParts])(const CovarianceRow&);  // by kernel_of
  void (*gradient_row[kSecondParts])(CovarianceGradientRow&);
  void (*axes_row[2])(const AxesRow&);  // of a product, of pairs
  void (*axes_gradient_row[2])(const AxesGradientRow&);
};

}  // namespace pydirect
