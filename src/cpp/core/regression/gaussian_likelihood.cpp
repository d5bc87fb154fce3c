#include "gaussian_likelihood.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/arrays.hpp"
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
      array(out + i + begin, end - begin) = array(p.c + begin, end - begin) - array(out + i + begin, end - begin);
    }
  });
}

void noise_logits(const MeanFieldProblem& p, double squared_error, double* out) {
  const auto levels = array(p.noise_levels, p.n_noise);
  array(out, p.n_noise) =
      array(p.noise_log_prior, p.n_noise) - 0.5 * p.n_samples * levels.log() - 0.5 * squared_error / levels;
}

double noise_precision(const MeanFieldProblem& p, const std::vector<double>& q_noise) {
  return (array(q_noise) / array(p.noise_levels, p.n_noise)).sum();
}

double xlogy_ratio(double q, double log_p) { return q > 0.0 ? q * (log_p - std::log(q)) : 0.0; }

void softmax(double* logits, Index n) {
  auto q = array(logits, n);
  q = (q - q.maxCoeff()).exp();
  q /= q.sum();
}

}  // namespace pydirect::regression
