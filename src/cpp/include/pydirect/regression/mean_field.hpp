// Mean-field inference for  −½ τ (yᵀy − 2 sᵀc + sᵀAs − diag(A)ᵀs² + diag(A)ᵀv) + separable terms:
// the ELBO of Theorem 1 (Evans & Nair 2018, eq. 8), with q_j kept in natural parameters,
//     q_j(w) ∝ p_j(w) exp(eta_j w − kappa_j w²),
// the family in which every stationary point lies.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tilt.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

struct MeanFieldProblem {
  Index n_weights;
  const float* a;           // (n_weights, n_weights) symmetric, ΦᵀΦ in single precision
  const double* a_exact;    // the same in double precision, or null
  const double* diagonal;   // (n_weights,) of ΦᵀΦ
  const double* c;          // (n_weights,) Φᵀy
  double yty;
  double n_samples;         // Σ of the sample weights
  TiltFamily family;
  const double* prior_precision;  // (n_weights,) 1 / Var_p(w_j)
  Index n_noise;
  const double* noise_levels;     // (n_noise,) σ²
  const double* noise_log_prior;  // (n_noise,)
};

struct Progress {
  Index n_iterations = 0;
  bool converged = false;
  std::vector<double> trace;  // ELBO after each iteration
};

class MeanField {
 public:
  explicit MeanField(const MeanFieldProblem& problem, int n_threads);

  // Starts. Each leaves a complete state at the current τ.
  // Back-substitution with rounding in expectation (Babai). factor is upper, row-major, of A + prior_precision/τ or a
  // multiple of it, rows and columns in `order`, in which sweeps then visit the weights, too;
  // ridge is in the order of the weights.
  void start_from_lattice(const float* factor, const std::int64_t* order, const double* ridge);
  void start_from_naturals(const double* eta, const double* kappa);
  void set_noise(const double* q_noise);

  // Exact maximisation weight by weight; σ² in closed form after every sweep. Stops when no mean
  // moves by more than `threshold` posterior standard deviations or the ELBO rises by less than `relative_rise`.
  // With a_exact where `exact` and there is one.
  Progress coordinate_ascent(Index max_sweeps, double threshold, double relative_rise, bool exact);

  // Newton's method in eta, systems solved by conjugate gradients.
  // Stops when the largest gradient, in posterior standard deviations, falls below `tolerance` or the ELBO rises by
  // less than `relative_rise`. Directions are found in single precision; `exact` as above is how the ELBO is evaluated.
  Progress newton(Index max_iterations, double tolerance, Index max_cg, double cg_tolerance, double relative_rise,
                  bool exact);

  // −(n/2) log 2π is included. Evaluated with a_exact when there is one.
  double elbo();

  double tau() const { return tau_; }
  const std::vector<double>& eta() const { return eta_; }
  const std::vector<double>& kappa() const { return kappa_; }
  const std::vector<double>& mean() const { return mean_; }
  const std::vector<double>& second_moment() const { return second_; }
  const std::vector<double>& q_noise() const { return q_noise_; }
  void probabilities(double* q) const;  // (n_weights, n_levels padded)

 private:
  void tilt();
  void set_tau_from_noise();
  void rescale_to_tau(double new_tau);
  void refresh_residual(bool exact = false);
  Index sweep(double threshold, bool exact);
  double expected_squared_error() const;  // R of eq. 8, from the current residual
  double update_noise();                  // closed form; returns R
  double value(double squared_error) const;
  void solve_newton_system(const std::vector<double>& shift, const std::vector<double>& gradient, Index max_cg,
                           double tolerance);

  MeanFieldProblem p_;
  int n_threads_;
  double tau_ = 0.0;
  std::vector<std::int64_t> order_;  // of sweeps
  std::vector<double> eta_, kappa_, mean_, second_, gain_, residual_, q_noise_;
  // workspace of newton
  std::vector<double> gradient_, shift_, step_, cg_r_, cg_p_, cg_q_;
  std::vector<float> narrow_in_, narrow_out_;
};

// ELBO and its gradient in the logits of q and q_noise (Theorem 1 through the softmax): the published objective.
// logits (n_weights, n_levels), gradient likewise; only the first n_used levels of a row are free.
double elbo_and_gradient(const MeanFieldProblem& problem, Index n_used, const double* logits,
                         const double* noise_logits, double* gradient, double* noise_gradient, int n_threads);

}  // namespace pydirect
