// Divergence of the weights' Gaussians from their priors, fixed or chosen by the weights (eqs. 10 to 13).
#include <cmath>
#include <vector>

#include "gaussian_layers.hpp"

namespace pydirect {
namespace {

// One set of weights: its place among the means, and Σ (V + M²).
struct WeightSet {
  const WeightPrior* prior;
  Index begin, size;
  double sum_of_squares;
};

template <class Body>
void for_weight_sets(const GaussianNetwork& network, const double* mean, const double* variance, const Body& body) {
  Index begin = 0;
  const WeightPrior* prior = network.priors.data();
  for (Index l = 0; l < network.n_layers(); ++l) {
    for (const Index size : {network.n_in(l) * network.n_out(l), network.n_out(l)}) {
      const auto squares = array(mean + begin, size).square();
      body(WeightSet{prior++, begin, size,
                     variance ? (squares + array(variance + begin, size)).sum() : squares.sum()});
      begin += size;
    }
  }
}

// s* = (SS + 2β)/(Ω + 2α + 2) (eq. 13).
double prior_variance(const WeightSet& set) {
  const WeightPrior& prior = *set.prior;
  if (prior.kind == WeightPrior::Kind::kFixed) return prior.variance;
  return (set.sum_of_squares + 2.0 * prior.beta) / (double(set.size) + 2.0 * prior.alpha + 2.0);
}

// std::lgamma keeps the sign in a global variable, which threads share.
double log_gamma(double x) {
#ifdef _WIN32
  return std::lgamma(x);
#else
  int sign;
  return ::lgamma_r(x, &sign);
#endif
}

// The part that depends on SS, and its derivative in SS; −½ Σ (1 + log V), the entropy's part, is not in it.
struct SetDivergence { double value, slope; };

SetDivergence set_divergence(const WeightSet& set) {
  const WeightPrior& prior = *set.prior;
  const double n = double(set.size), ss = set.sum_of_squares, s = prior_variance(set);
  const double gaussian = 0.5 * (n * std::log(s) + ss / s);
  if (prior.kind == WeightPrior::Kind::kFixed) return {gaussian, 0.5 / s};
  if (prior.kind == WeightPrior::Kind::kEmpirical) {  // eq. 12; s* is stationary
    const double hyperprior = (prior.alpha + 1.0) * std::log(s) + prior.beta / s - prior.alpha * std::log(prior.beta) +
                              log_gamma(prior.alpha);
    return {gaussian + hyperprior, 0.5 / s};
  }
  const double shifted = ss + 2.0 * prior.beta, slope_in_s = 0.5 * (n / s - ss / (s * s));
  return {gaussian, 0.5 / s + slope_in_s * s / shifted};
}

}  // namespace

double weight_divergence(const GaussianNetwork& network, const double* parameters, const double* v, double factor,
                         double* gradient) {
  const Index n = network.n_weights();
  double total = 0.0;
  for_weight_sets(network, parameters, v, [&](const WeightSet& set) {
    const SetDivergence d = set_divergence(set);
    const auto part = [&set](auto* p) { return array(p + set.begin, set.size); };
    total += d.value;
    part(gradient) += 2.0 * factor * d.slope * part(parameters);
    if (!v) {
      total += 0.5 * double(set.size) * kLog2Pi;
      return;
    }
    total -= 0.5 * double(set.size) + part(parameters + n).sum();  // of log deviations
    part(gradient + n) += factor * (2.0 * d.slope * part(v) - 1.0);
  });
  return total;
}

void prior_variances(const GaussianNetwork& network, const double* parameters, double* out) {
  const std::vector<double> v = weight_variances(network, parameters);
  for_weight_sets(network, parameters, v.data(), [&](const WeightSet& set) { *out++ = prior_variance(set); });
}

}  // namespace pydirect
