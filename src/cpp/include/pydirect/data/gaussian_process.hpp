// Covariance of the Gaussian process behind the features, and the gradient of its marginal likelihood.
#pragma once

#include "kernels/cross_covariance.hpp"
#include "kernels/gaussian_process.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

// Targets whose covariance is K: rows of amplitudes · (Matérn(x / length_scales), second part, x_L·x_L', 1), and noise on
// the diagonal. Square matrices are (n, stride) with stride >= n a multiple of kLevelPadding.
struct MarginalLikelihood {
  Index n, stride, n_inputs, n_targets;
  const double* x;         // (n, n_inputs)
  const double* y;         // (n, n_targets)
  const double* noise;     // (n,)
  const double* products;  // x·x'
  const double* linear;    // x_L·x_L'
  const double* length_scales;  // (n_inputs,)
  double ard_amplitude, second_amplitude, linear_amplitude, constant;
  int twice_smoothness;  // of the Matérn part: 1, 3 or 5
  const double* rates;   // inverse length-scales of the second part: one, or of every axis
  // (n_axes, stride): where there are any, the second part is of axes, see SecondPart.
  const double* axes;
  Index n_axes;
  bool of_pairs;

  SecondPart second_part() const { return n_axes == 0 ? kOfDistance : of_pairs ? kOfPairs : kOfAxes; }
  Index n_rates() const { return n_axes == 0 ? 1 : n_axes; }
  Index n_sums() const { return 5 + n_rates() + n_inputs; }
};

// −log N(Y; 0, K), summed over targets, and its derivatives in the logarithms of the noise, of the first three
// amplitudes, of the second part's length-scales and of those of every input: (n_sums,). work: (4, n, stride). Returns
// whether K could be factorised; nothing else is written where it could not.
bool marginal_likelihood(const MarginalLikelihood& problem, double* work, double* sums, int n_threads);

// Covariance between rows and others; x_linear and strips are found here: the linear part reaches as far as
// ±linear_reach. twice_smoothness: 1, 3 or 5.
void cross_covariance(const CrossCovariance& problem, double linear_reach, int twice_smoothness, int n_threads);

}  // namespace pydirect
