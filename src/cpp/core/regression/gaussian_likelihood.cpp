#include "gaussian_likelihood.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect::regression {

void multiply_rows(const MeanFieldProblem& p, bool exact, Index begin, Index end, const double* s, double* out) {
  if (exact && p.a_exact != nullptr)
    kernels().rows<double>().gemv(begin, end, p.n_weights, p.a_exact, p.n_weights, s, out);
  else
    kernels().rows<float>().gemv(begin, end, p.n_weights, p.a, p.n_weights, s, out);
}

void residuals(const MeanFieldProblem& p, bool exact, Index n_posteriors, const double* s, double* out,
               int n_threads) {
  for_chunks(p.n_weights, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index i = 0; i < n_posteriors * p.n_weights; i += p.n_weights) {
      multiply_rows(p, exact, begin, end, s + i, out + i);
      for (Index j = begin; j < end; ++j) out[i + j] = p.c[j] - out[i + j];
    }
  });
}

void noise_logits(const MeanFieldProblem& p, double squared_error, double* out) {
  for (Index k = 0; k < p.n_noise; ++k)
    out[k] = p.noise_log_prior[k] - 0.5 * p.n_samples * std::log(p.noise_levels[k]) -
             0.5 * squared_error / p.noise_levels[k];
}

double noise_precision(const MeanFieldProblem& p, const std::vector<double>& q_noise) {
  double tau = 0.0;
  for (Index k = 0; k < p.n_noise; ++k) tau += q_noise[k] / p.noise_levels[k];
  return tau;
}

double xlogy_ratio(double q, double log_p) { return q > 0.0 ? q * (log_p - std::log(q)) : 0.0; }

void softmax(double* logits, Index n) {
  const double top = *std::max_element(logits, logits + n);
  double total = 0.0;
  for (Index k = 0; k < n; ++k) total += logits[k] = std::exp(logits[k] - top);
  for (Index k = 0; k < n; ++k) logits[k] /= total;
}

}  // namespace pydirect::regression
