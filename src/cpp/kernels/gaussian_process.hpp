// Rows of a Gaussian process' covariance and of its gradient: arguments and kernels of gaussian_process-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// The second part of a covariance, beside the Matérn one: exp(−|x_I − x_I'|), a product over axes, exp(−Σ|p − p'|), or
// the mean over pairs of axes of M(|p_j − p_j'|) M(|p_k − p_k'|), M(t) = (1 + t + t²/3) exp(−t).
enum SecondPart { kOfDistance, kOfAxes, kOfPairs, kSecondParts };

// One row i of the covariance  a_A Matérn(|x_A − x_A'|) + a_I exp(−r) + a_L x_L·x_L' + constant, columns 0..i; r is
// |x_I − x_I'| or Σ|p − p'|; of pairs, it is their mean itself that comes in and counts. Inner products come in; what the gradient needs again goes out
// in their place.
struct CovarianceRow {
  Index n;               // columns
  double* ard;           // in: x_A·x_A';  out: −∂(a_A Matérn)/∂|x_A − x_A'|²
  double* isotropic;     // in: x_I·x_I', or what axes_row returns;  out: r
  const double* linear;  // x_L·x_L'
  const double* ard_norm;        // |x_A|² of every column
  const double* isotropic_norm;  // |x_I|²
  double own_ard_norm, own_isotropic_norm;
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  double* covariance;    // out
};

// Row i of Σ|p − p'|, or of the mean over pairs, columns 0..i.
struct AxesRow {
  Index n, n_axes, stride;
  const double* axes;  // (n_axes, stride): p of every column
  Index own;           // i
  double* distance;    // out
};

// Row i of the gradient. M = ½ (K⁻¹ − ααᵀ) is the derivative of −log N(y; 0, K) in K.
struct CovarianceGradientRow {
  Index n;
  const double* inverse;     // row of K⁻¹
  const double* alpha;       // K⁻¹y
  double own_alpha;
  const double* ard;         // as the forward pass left them
  double* isotropic;         // r;  of axes, out: M k_I, of pairs M a_I, zero in the padding
  const double* linear;
  double isotropic_amplitude;
  double* distance_weight;   // out: M ∂(a_A Matérn)/∂|x_A − x_A'|²
  double sums[4];            // out: Σ M k_I, Σ M k_I r, Σ M x_L·x_L', Σ M over the row
};

// Σ M ∂k_I/∂log ℓ_j over row i, for every axis j.
struct AxesGradientRow {
  AxesRow rows;     // `distance`, in: what gradient_row leaves
  double* scratch;  // (3, n_axes, kLevelPadding)
  double* sums;     // (n_axes,) out
};

struct GaussianProcessKernels {
  void (*covariance_row[3][kSecondParts])(const CovarianceRow&);  // smoothness 1/2, 3/2, 5/2
  void (*gradient_row[kSecondParts])(CovarianceGradientRow&);
  void (*axes_row[2])(const AxesRow&);  // of a product, of pairs
  void (*axes_gradient_row[2])(const AxesGradientRow&);
};

}  // namespace pydirect
