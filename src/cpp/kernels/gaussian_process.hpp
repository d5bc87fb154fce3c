// Rows of a Gaussian process' covariance and of its gradient: arguments and kernels of gaussian_process-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// One row i of the covariance  a_A Matérn(|x_A − x_A'|) + a_I exp(−|x_I − x_I'|) + a_L x_L·x_L' + constant,
// columns 0..i. Inner products come in; what the gradient needs again goes out in their place.
struct CovarianceRow {
  Index n;               // columns
  double* ard;           // in: x_A·x_A';  out: −∂(a_A Matérn)/∂|x_A − x_A'|²
  double* isotropic;     // in: x_I·x_I';  out: |x_I − x_I'|
  const double* linear;  // x_L·x_L'
  const double* ard_norm;        // |x_A|² of every column
  const double* isotropic_norm;  // |x_I|²
  double own_ard_norm, own_isotropic_norm;
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  double* covariance;    // out
};

// Row i of the gradient. M = ½ (K⁻¹ − ααᵀ) is the derivative of −log N(y; 0, K) in K.
struct CovarianceGradientRow {
  Index n;
  const double* inverse;     // row of K⁻¹
  const double* alpha;       // K⁻¹y
  double own_alpha;
  const double* ard;         // as the forward pass left them
  const double* isotropic;
  const double* linear;
  double isotropic_amplitude;
  double* distance_weight;   // out: M ∂(a_A Matérn)/∂|x_A − x_A'|²
  double sums[4];            // out: Σ M k_I, Σ M k_I r_I, Σ M x_L·x_L', Σ M over the row
};

struct GaussianProcessKernels {
  void (*covariance_row[3])(const CovarianceRow&);  // smoothness 1/2, 3/2, 5/2
  void (*gradient_row)(CovarianceGradientRow&);
};

}  // namespace pydirect
