// Inference with a mixture posterior  q = Σ_i α_i ⊗_j q_j^(i)  (Evans & Nair 2018, section 4) for the likelihood of
// mean_field.hpp, under the pairwise bound on its entropy (Kolchinsky & Tracey, Entropy 19(7), 2017).
#pragma once

#include <vector>

#include "kernels/mixture.hpp"
#include "pydirect/regression/mean_field.hpp"

namespace pydirect {

// log q_i(w) of samples, (n_samples, n_components), from a table of log q_j^(i), (n_weights, n_levels, n_components).
void component_log_masses(Index n_samples, Index n_weights, Index n_levels, Index n_components,
                          const unsigned char* indices, const double* table, double* out, int n_threads);

// out_j(w) += Σ of the coefficients of the samples whose weight j is at level w; coefficients
// (n_samples, n_components), out (n_weights, n_levels, n_components).
void sum_by_level(Index n_samples, Index n_weights, Index n_levels, Index n_components, const unsigned char* indices,
                  const double* coefficients, double* out, int n_threads);

class Mixture {
 public:
  // One family of levels and prior masses per component, all with as many levels; problem.family is not used.
  Mixture(const MeanFieldProblem& problem, const std::vector<TiltFamily>& families, int n_threads);

  void set_component(Index i, const double* q);  // (n_weights, n_levels)
  void set_alpha(const double* alpha);           // (n_components,)
  void set_noise(const double* q_noise);
  // What a component's prior adds to its ELBO whatever its q is, (n_components,).
  void set_offsets(const double* offsets);

  // Sweeps over the weights of all components, which share each read of A; after each, α and σ² in closed form. Stops
  // as MeanField::coordinate_ascent does. A sweep that would lower the ELBO is undone and ends the ascent; when it is
  // by more than rounding, the ascent has not converged.
  Progress ascend(Index max_sweeps, double threshold, double relative_rise, Index refresh_every);

  // −(n/2) log 2π is included. Evaluated with a_exact when there is one.
  double elbo();

  Index n_components() const { return Index(families_.size()); }
  const std::vector<double>& alpha() const { return s_.alpha; }
  const std::vector<double>& mean() const { return s_.mean; }  // (n_components, n_weights)
  const std::vector<double>& q_noise() const { return s_.q_noise; }
  void probabilities(Index i, double* q) const;  // (n_weights, n_levels)

 private:
  struct State {
    std::vector<double> alpha, q_noise, kappa, mean, second, gain, residual;
    std::vector<double> root, factor, log_overlap, overlap, density;
    std::vector<float> drift;
  };

  void set_tau_from_noise();
  void refresh_residual(bool exact = false);
  void refresh_overlaps();
  void mark_close_pairs();
  void set_densities();
  void update_alpha();
  void update_noise();
  double expected_squared_error(Index i) const;
  std::vector<double> values() const;  // ELBO of each component but for what only the noise decides
  double weights_value(const std::vector<double>& alpha, const std::vector<double>& values) const;
  double value() const;

  MeanFieldProblem p_;
  std::vector<TiltFamily> families_;
  int n_threads_;
  double tau_ = 0.0;
  State s_, kept_;
  std::vector<unsigned char> close_;
  std::vector<double> offset_;
};

}  // namespace pydirect
