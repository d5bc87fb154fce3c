// Covariance of the Gaussian process behind the features, and the gradient of its marginal likelihood.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Square matrices are (n, stride) with stride >= n a multiple of kLevelPadding; vectors of length stride.
struct CovarianceProblem {
  Index n, stride;
  double* ard;        // in: x_A·x_A', out: as CovarianceRow says
  double* isotropic;  // in: x_I·x_I'
  const double* linear;
  const double* ard_norm;        // (stride,) |x_A|²
  const double* isotropic_norm;  // (stride,)
  const double* noise;           // (n,) added to the diagonal; unused by cross_covariance
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  int twice_smoothness;  // of the Matérn part: 1, 3 or 5
};

// Lower triangle of the covariance.
void covariance(const CovarianceProblem& problem, double* out, int n_threads);

// From the lower triangle of K⁻¹ and α = K⁻¹y: distance_weight (n, stride), symmetric with both triangles filled, and
// sums (4,) over the whole matrix of M k_I, M k_I r_I, M x_L·x_L', M.
void covariance_gradient(const CovarianceProblem& problem, const double* inverse, const double* alpha,
                         double* distance_weight, double* sums, int n_threads);

// Covariance between n rows and other points: all matrices (n, stride), own norms of the n rows apart.
void cross_covariance(const CovarianceProblem& problem, const double* own_ard_norm, const double* own_isotropic_norm,
                      double* out, int n_threads);

}  // namespace pydirect
