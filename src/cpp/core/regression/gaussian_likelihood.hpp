// The Gaussian likelihood's part of the ELBO of Theorem 1 (eq. 8), whatever posterior the weights have: the expected
// squared error R, and q_σ given R. Written here for all; their sums keep their order, which decides the bits.
#pragma once

#include <vector>

#include "pydirect/regression/mean_field.hpp"

namespace pydirect::regression {

inline constexpr Index kRowsPerChunk = 128;

// Rows begin … end of A s, in double precision throughout when `exact` and the problem has the exact matrix.
void multiply_rows(const MeanFieldProblem& p, bool exact, Index begin, Index end, const double* s, double* out);

// c − A s of posteriors whose means (n_posteriors, n_weights) are s: every row of A is read once for all of them.
void residuals(const MeanFieldProblem& p, bool exact, Index n_posteriors, const double* s, double* out, int n_threads);

// R = yᵀy − 2 sᵀc + sᵀAs + diag(A)ᵀ(v − s²), v the second moments, with As = c − (residual + drift), of which the drift
// may be null.
inline double expected_squared_error(const MeanFieldProblem& p, const double* s, const double* v,
                                     const double* residual, const float* drift = nullptr) {
  double fit = 0.0, spread = 0.0;
  for (Index j = 0; j < p.n_weights; ++j) {
    fit += s[j] * (p.c[j] + residual[j] + (drift ? double(drift[j]) : 0.0));
    spread += p.diagonal[j] * (v[j] - s[j] * s[j]);
  }
  return p.yty - fit + spread;
}

// log q_σ up to a constant: log p_σ − (n/2) log σ² − ½ R σ⁻².
void noise_logits(const MeanFieldProblem& p, double squared_error, double* out);

// τ = E σ⁻²
double noise_precision(const MeanFieldProblem& p, const std::vector<double>& q_noise);

// q (log p − log q), with 0 log 0 = 0.
double xlogy_ratio(double q, double log_p);

// q ∝ exp(logits), in place.
void softmax(double* logits, Index n);

}  // namespace pydirect::regression
