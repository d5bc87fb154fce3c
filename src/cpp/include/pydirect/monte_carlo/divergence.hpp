// Monte Carlo estimates of KL(q ‖ p) = Σ_d E log q_d − E log p_d for weights w = μ + σ ξ (Nazarovs et al. 2021).
#pragma once

#include <vector>

#include "kernels/divergence.hpp"

namespace pydirect {

// Draws ξ of all weights of a tensor: independent, one set shared by all weights, or radial, r u of a random length r
// and a direction u uniform on the sphere of all weights together.
struct BaseDraws {
  enum class Layout { kIndependent, kShared, kRadial } layout;
  BaseLaw law;
  double shape;
  std::uint64_t seed;
  std::uint32_t epoch;  // another one, other draws
  Index first_draw, n_draws, n_weights;  // first_draw even, zero where shared

  // Shared draws count as one weight.
  Index n_columns() const { return layout == Layout::kShared ? 1 : n_weights; }
};

struct Exponents {
  std::vector<double> exponents;  // positive integers first, ascending
  Index n_logs;                   // 1: mean log ξ, 2: mean log² ξ too

  Index n_sums() const { return Index(exponents.size()) + n_logs; }
};

// Means of powers over the draws, (n_sums, n_columns). Draws are not stored.
void mean_powers(const BaseDraws&, const Exponents&, double* out, int n_threads);

// The same law of (mean ξ, mean ξ²) of normal draws without drawing them: N(0, 1/M) and its square + χ²(M − 1)/M.
void mean_powers_of_normals(const BaseDraws&, double* out, int n_threads);

// (n_draws, n_columns), the draws that the other functions use.
void base_draws(const BaseDraws&, double* out, int n_threads);

// Σ_d −log σ_d − mean log p(w_d) and its slopes, from means of powers or draw by draw; `exponential` means
// w = exp(μ + σ ξ) and densities of log w. Sums have n_columns of weights or one.
double divergence_from_sums(const LogDensity&, Index n_weights, const double* location, const double* scale,
                            const double* sums, bool shared, double* location_slope, double* scale_slope,
                            int n_threads);
double divergence_from_draws(const LogDensity&, const BaseDraws&, bool exponential, const double* location,
                             const double* scale, double* location_slope, double* scale_slope, int n_threads);

// Sorted draws and running sums of their powers: piecewise polynomial log-densities by rank (one search per knot).
class SortedDraws {
 public:
  SortedDraws(const BaseDraws&, Index degree, int n_threads);
  double divergence(const LogDensity&, Index n_weights, const double* location, const double* scale,
                    double* location_slope, double* scale_slope, int n_threads) const;

 private:
  Index n_draws_, n_columns_, degree_;
  std::vector<double> sorted_;  // (n_columns, n_draws)
  std::vector<double> sums_;    // (n_columns, degree, n_draws + 1)
};

}  // namespace pydirect
