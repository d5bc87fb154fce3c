// Rows of a Gaussian process' covariance and of its gradient: arguments and kernels of gaussian_process-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// One row i of the covariance  a_A Matérn(|x_A − x_A'|) + a_I exp(−r) + a_L x_L·x_L' + constant, columns 0..i; r is
// |x_I − x_I'| or, for a product over axes, Σ|p − p'|. Inner products come in; what the gradient needs again goes out
// in their place.
struct CovarianceRow {
  Index n;               // columns
  double* ard;           // in: x_A·x_A';  out: −∂(a_A Matérn)/∂|x_A − x_A'|²
  double* isotropic;     // in: x_I·x_I', or Σ|p − p'|;  out: r
  const double* linear;  // x_L·x_L'
  const double* ard_norm;        // |x_A|² of every column
  const double* isotropic_norm;  // |x_I|²
  double own_ard_norm, own_isotropic_norm;
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  double* covariance;    // out
};

// Row i of Σ|p − p'|, columns 0..i.
struct ProductDistanceRow {
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
  double* isotropic;         // r;  for a product over axes, out: M k_P, zero in the padding
  const double* linear;
  double isotropic_amplitude;
  double* distance_weight;   // out: M ∂(a_A Matérn)/∂|x_A − x_A'|²
  double sums[4];            // out: Σ M k_I, Σ M k_I r, Σ M x_L·x_L', Σ M over the row
};

// Σ M k_P |p_j − p_j'| over row i, for every axis j.
struct ProductGradientRow {
  ProductDistanceRow rows;  // `distance`, in: M k_P
  double* sums;             // (n_axes,) out
};

struct GaussianProcessKernels {
  // Smoothness 1/2, 3/2, 5/2; with the exponential part of |x_I − x_I'|, and of a product over axes.
  void (*covariance_row[3][2])(const CovarianceRow&);
  void (*gradient_row[2])(CovarianceGradientRow&);
  void (*product_distance_row)(const ProductDistanceRow&);
  void (*product_gradient_row)(const ProductGradientRow&);
};

}  // namespace pydirect
