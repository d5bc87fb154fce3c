// The published objective: the ELBO through the softmax of unconstrained logits, and its gradient.
#include <algorithm>
#include <cmath>
#include <vector>

#include "gaussian_likelihood.hpp"
#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {

using namespace regression;

double elbo_and_gradient(const MeanFieldProblem& p, Index n_used, const double* logits, const double* noise_logits,
                         double* gradient, double* noise_gradient, int n_threads) {
  const Index b = p.n_weights, m = n_used;
  std::vector<double> mean(b), second(b), product(b), gain(b);
  // q_j in `gradient`, log q_j = logits − log Z_j
  for_chunks(b, 256, n_threads, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      const auto theta = array(logits + j * m, m), w = array(p.family.levels + j * p.family.level_stride, m);
      const auto log_p = array(p.family.log_prior + j * p.family.prior_stride, m);
      auto q = array(gradient + j * m, m);
      const double top = theta.maxCoeff();
      q = theta - top;
      kernels().dense.exp(m, q.data(), q.data());
      const double total = q.sum(), log_z = top + std::log(total);
      q /= total;
      mean[j] = (q * w).sum();
      second[j] = (q * w * w).sum();
      gain[j] = (q > 0.0).select(q * (log_p - (theta - log_z)), 0.0).sum();
    }
  });
  for_chunks(b, kRowsPerChunk, n_threads,
             [&](Index begin, Index end) { multiply_rows(p, true, begin, end, mean.data(), product.data()); });

  // R and q_σ here in another order of sums than in gaussian_likelihood.hpp, which their bits depend on.
  double r = p.yty;
  for (Index j = 0; j < b; ++j)
    r += mean[j] * (product[j] - 2.0 * p.c[j]) + p.diagonal[j] * (second[j] - mean[j] * mean[j]);

  std::vector<double> q_noise(noise_logits, noise_logits + p.n_noise);
  softmax(q_noise.data(), p.n_noise);
  const double tau = noise_precision(p, q_noise);
  double total = -0.5 * p.n_samples * kLog2Pi, noise_mean = 0.0;
  for (Index k = 0; k < p.n_noise; ++k) {
    const double fit = -0.5 * p.n_samples * std::log(p.noise_levels[k]) - 0.5 * r / p.noise_levels[k];
    total += xlogy_ratio(q_noise[k], p.noise_log_prior[k]) + q_noise[k] * fit;
    noise_gradient[k] = q_noise[k] > 0.0 ? p.noise_log_prior[k] - std::log(q_noise[k]) + fit : 0.0;
    noise_mean += q_noise[k] * noise_gradient[k];
  }
  array(noise_gradient, p.n_noise) = array(q_noise) * (array(noise_gradient, p.n_noise) - noise_mean);
  for (Index j = 0; j < b; ++j) total += gain[j];

  // ∂/∂θ_j = q_j ⊙ (g_j − q_jᵀg_j), g_j = log p_j − log q_j + τ (r_j w − ½ a_j w²) up to a constant
  for_chunks(b, 256, n_threads, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      const double* w = p.family.levels + j * p.family.level_stride;
      const double* log_p = p.family.log_prior + j * p.family.prior_stride;
      double* q = gradient + j * m;
      const double pull = tau * (p.c[j] - product[j] + p.diagonal[j] * mean[j]);
      const double curvature = 0.5 * tau * p.diagonal[j];
      const double average = gain[j] + pull * mean[j] - curvature * second[j];
      for (Index k = 0; k < m; ++k) {
        const double g = q[k] > 0.0 ? log_p[k] - std::log(q[k]) + (pull - curvature * w[k]) * w[k] : 0.0;
        q[k] *= g - average;
      }
    }
  });
  return total;
}

}  // namespace pydirect
