// Covariance of the Gaussian process behind the features, and the gradient of its marginal likelihood.
#pragma once

#include "kernels/cross_covariance.hpp"
#include "kernels/gaussian_process.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

// Square matrices are (n, stride) with stride >= n a multiple of kLevelPadding; vectors of length stride.
struct CovarianceProblem {
  Index n, stride;
  double* ard;        // in: x_A·x_A', out: as CovarianceRow says
  double* isotropic;  // in: x_I·x_I', or anything where there are axes
  const double* linear;
  const double* ard_norm;        // (stride,) |x_A|²
  const double* isotropic_norm;  // (stride,)
  const double* noise;           // (n,) added to the diagonal
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  int twice_smoothness;  // of the Matérn part: 1, 3 or 5
  // (n_axes, stride): where there are any, the second part is of axes, see SecondPart.
  const double* axes;
  Index n_axes;
  bool of_pairs;

  SecondPart second_part() const { return n_axes == 0 ? kOfDistance : of_pairs ? kOfPairs : kOfAxes; }
};

// Lower triangle of the covariance.
void covariance(const CovarianceProblem& problem, double* out, int n_threads);

// From the lower triangle of K⁻¹ and α = K⁻¹y: distance_weight (n, stride), symmetric with both triangles filled, and
// sums (4 + n_axes,) over the whole matrix of M k_I, M k_I r, M x_L·x_L', M, and M ∂k_I/∂log ℓ_j. Leaves nothing of
// `isotropic` where there are axes.
void covariance_gradient(const CovarianceProblem& problem, const double* inverse, const double* alpha,
                         double* distance_weight, double* sums, int n_threads);

// Covariance between rows and others; x_linear and strips are found here: the linear part reaches as far as
// ±linear_reach. twice_smoothness: 1, 3 or 5.
void cross_covariance(const CrossCovariance& problem, double linear_reach, int twice_smoothness, int n_threads);

}  // namespace pydirect
