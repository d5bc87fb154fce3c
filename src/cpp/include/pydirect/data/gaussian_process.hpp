// Covariance of the Gaussian process behind the features, and the gradient of its marginal likelihood.
#pragma once

#include <cstdint>

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
  const double* distances;  // |x − x'|
  const double* linear;    // x_L·x_L'
  const double* length_scales;  // (n_inputs,)
  double ard_amplitude, second_amplitude, linear_amplitude, constant;
  int twice_smoothness;  // of the Matérn part, see kernel_of
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

constexpr double kBadPoint = 1e10;  // the value where K cannot be factorised, with a gradient of zero

// −log posterior of θ = log [noise, a_A, ℓ_A (n_scales,), a_I, ℓ_I or those of axes, a_L], the prior included, less slope
// · log noise + rest.
struct KernelPosterior {
  MarginalLikelihood rows;  // but for what θ says
  const std::int64_t* tied;  // (n_inputs,): the length-scale of each
  const double* weight;      // (n,), by which the noise is divided
  const double *mean, *sd;
  Index n_scales, n_linear;
  double slope, rest;

  Index n_parameters() const { return 4 + n_scales + rows.n_rates(); }
  // −log prior, a pseudo-Huber function (Gaussian centre, exponential tails).
  double penalty(const double* theta, double* gradient) const;
  // work: (4, n, stride).
  double operator()(const double* theta, double* gradient, double* work, int n_threads) const;
};

// Covariance between rows and others; x_linear and strips are found here: the linear part reaches as far as
// ±linear_reach. twice_smoothness: see kernel_of.
void cross_covariance(const CrossCovariance& problem, double linear_reach, int twice_smoothness, int n_threads);

}  // namespace pydirect
