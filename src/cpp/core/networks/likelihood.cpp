// Expected log-likelihoods of one row and their adjoints; every branch sets d/d mean and d/d variance times `factor`.
#include <algorithm>
#include <cmath>

#include "gaussian_layers.hpp"
#include "tilted_softmax.hpp"

namespace pydirect::gaussian_network {
namespace {

// Gauss-Hermite for the standard normal weight; nodes come in pairs ±z.
constexpr int kPairs = 10;
constexpr double kNode[kPairs] = {0.3469641570813559, 1.042945348802751,  1.7452473208141268, 2.458663611172368,
                                  3.1890148165533896, 3.9439673506573163, 4.734581334046055,  5.5787388058932015,
                                  6.510590157013654,  7.619048541679758};
constexpr double kNodeWeight[kPairs] = {0.2607930634495548,     0.16173933398400003,   0.06150637206397696,
                                        0.013997837447100996,   0.0018301031310804924, 0.00012882626996192942,
                                        4.4021210902308646e-06, 6.127490259982928e-08, 2.4820623623151797e-10,
                                        1.2578006724379264e-13};

// A target's mean m and l, jointly Gaussian.
struct MeanAndNoise { double m, l, mm, ml, ll; };

// Noise variance exp l: the variance of l stands inside the exponent, exp(−l + Σ_ll/2) (eq. 8).
double heteroscedastic(const MeanAndNoise& o, double y, MeanAndNoise& bar) {
  const CappedExponential w = capped_exp(-o.l + 0.5 * o.ll);
  const double deviation = o.m - o.ml - y, q = o.mm + deviation * deviation;
  bar = {-w.value * deviation, -0.5 + 0.5 * w.slope * q, -0.5 * w.value, w.value * deviation, -0.25 * w.slope * q};
  return -0.5 * (kLog2Pi + o.l + w.value * q);
}

// Noise variance log(1 + exp l): given l, m is N(m + g z, Σ_mm − g²) with l = mean + s z, s² = Σ_ll, g = Σ_ml/s.
double softplus(const MeanAndNoise& o, double y, MeanAndNoise& bar) {
  constexpr double least = 1e-12;  // of Σ_ll: derivatives in it divide by its root
  const double s = std::sqrt(std::max(o.ll, least)), g = o.ml / s;
  double value = -0.5 * kLog2Pi, g_bar = 0.0, s_bar = 0.0;
  bar = {};
  const bool certain = o.ll == 0.0;
  const int n_nodes = certain ? 1 : 2 * kPairs;
  for (int node = 0; node < n_nodes; ++node) {
    const double z = certain ? 0.0 : node < kPairs ? kNode[node] : -kNode[node - kPairs], l = o.l + s * z;
    const double weight = certain ? 1.0 : kNodeWeight[node % kPairs];
    const double noise = std::max(l, 0.0) + std::log1p(std::exp(-std::abs(l)));
    // log of the noise variance, and its slope; for very negative l both series' limits.
    const double log_noise = l < -36.0 ? l : std::log(noise);
    const double slope = l < -36.0 ? 1.0 : 1.0 / ((1.0 + std::exp(-l)) * noise);
    const CappedExponential precision = capped_exp(-log_noise);
    const double deviation = o.m + g * z - y, q = deviation * deviation + o.mm - g * g;
    value -= 0.5 * weight * (log_noise + precision.value * q);
    const double l_bar = 0.5 * weight * slope * (precision.slope * q - 1.0);
    bar.m -= weight * precision.value * deviation;
    bar.mm -= 0.5 * weight * precision.value;
    bar.l += l_bar;
    s_bar += l_bar * z;
    g_bar -= weight * precision.value * (deviation * z - g);
  }
  bar.ml = g_bar / s;
  bar.ll = o.ll > least ? 0.5 * (s_bar - g_bar * g / s) / s : 0.0;
  return value;
}

double regression(const GaussianNetwork& network, const double* y, const double* log_noise,
                  const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  const Index n = network.n_targets, o = output.n_outputs;
  double value = 0.0;
  for (Index t = 0; t < n; ++t) {
    MeanAndNoise target{output.mean[t], 0.0, output.variance[t], 0.0, 0.0}, bar;
    if (network.likelihood == Likelihood::kHomoscedastic) {
      target.l = log_noise[t];
      value += heteroscedastic(target, y[t], bar);
      adjoint.log_noise[t] += factor * bar.l;
    } else {
      const Index l = n + t;
      target.l = output.mean[l];
      target.ll = output.variance[l];
      if (output.covariance) target.ml = output.covariance[t * o + l];
      value += network.likelihood == Likelihood::kSoftplus ? softplus(target, y[t], bar)
                                                           : heteroscedastic(target, y[t], bar);
      adjoint.mean[l] = factor * bar.l;
      adjoint.variance[l] = factor * bar.ll;
      // Half of the derivative in each triangle.
      if (output.covariance) adjoint.covariance[t * o + l] = adjoint.covariance[l * o + t] = 0.5 * factor * bar.ml;
    }
    adjoint.mean[t] = factor * bar.m;
    adjoint.variance[t] = factor * bar.mm;
  }
  return value;
}

// om_y − lse(om) − ½ (p·diag Σ − pᵀΣp) (eq. 21), p = softmax(om).
double classification(Index label, const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  const Index n = output.n_outputs;
  double* p = adjoint.mean;  // first the probabilities, then the adjoint
  const double highest = *std::max_element(output.mean, output.mean + n);
  double total = 0.0;
  for (Index k = 0; k < n; ++k) total += p[k] = std::exp(output.mean[k] - highest);
  for (Index k = 0; k < n; ++k) p[k] /= total;
  double* u = adjoint.variance;  // first ½ diag Σ − Σp
  double mean_u = 0.0, spread = 0.0;
  for (Index k = 0; k < n; ++k) {
    double product = output.variance[k] * p[k];
    if (output.covariance) {
      product = 0.0;
      for (Index i = 0; i < n; ++i) product += output.covariance[k * n + i] * p[i];
    }
    u[k] = 0.5 * output.variance[k] - product;
    mean_u += p[k] * u[k];
    spread += p[k] * (output.variance[k] - product);
  }
  if (output.covariance)
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < n; ++k)
        if (i != k) adjoint.covariance[i * n + k] = 0.5 * factor * p[i] * p[k];
  for (Index k = 0; k < n; ++k) {
    const double pk = p[k], uk = u[k];
    adjoint.variance[k] = -0.5 * factor * pk * (1.0 - pk);
    adjoint.mean[k] = factor * ((k == label ? 1.0 : 0.0) - pk - pk * (uk - mean_u));
  }
  return output.mean[label] - highest - std::log(total) - 0.5 * spread;
}

}  // namespace

double expected_log_likelihood(const GaussianNetwork& network, const double* y, const double* log_noise,
                               const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  if (network.likelihood == Likelihood::kTiltedClassification)
    return tilted_classification(Index(y[0]), output, factor, adjoint);
  if (network.likelihood == Likelihood::kClassification)
    return classification(Index(y[0]), output, factor, adjoint);
  if (adjoint.covariance) std::fill_n(adjoint.covariance, output.n_outputs * output.n_outputs, 0.0);
  return regression(network, y, log_noise, output, factor, adjoint);
}

}  // namespace pydirect::gaussian_network
