// Newton's method on the ELBO of a mean field.
#include <algorithm>
#include <cmath>

#include "kernels/kernel_table.hpp"
#include "pydirect/regression/mean_field.hpp"

namespace pydirect {

// Moves every q_j to the member of its family for the new τ, keeping the residual correlation it answers to.
void MeanField::rescale_to_tau(double new_tau) {
  for (Index j = 0; j < p_.n_weights; ++j) {
    const double kappa = 0.5 * new_tau * p_.diagonal[j];
    if (kappa_[j] > 0.0) eta_[j] *= kappa / kappa_[j];
    kappa_[j] = kappa;
  }
  tilt();
}

// Solves (diag(shift) + τA) step = gradient by conjugate gradients with the diagonal as preconditioner.
void MeanField::solve_newton_system(const std::vector<double>& shift, const std::vector<double>& gradient,
                                    Index max_cg, double tolerance) {
  const Index b = p_.n_weights;
  const auto dot = [b](const std::vector<double>& x, const std::vector<double>& y) {
    return kernels().dense.dot(b, x.data(), y.data());
  };
  std::fill(step_.begin(), step_.end(), 0.0);
  cg_r_ = gradient;
  const double target = tolerance * tolerance * dot(cg_r_, cg_r_);
  double rho_old = 0.0;
  for (Index it = 0; it < max_cg; ++it) {
    for (Index j = 0; j < b; ++j) cg_q_[j] = cg_r_[j] / (shift[j] + tau_ * p_.diagonal[j]);
    const double rho = dot(cg_r_, cg_q_);
    const double beta = it == 0 ? 0.0 : rho / rho_old;
    rho_old = rho;
    for (Index j = 0; j < b; ++j) {
      cg_p_[j] = it == 0 ? cg_q_[j] : cg_q_[j] + beta * cg_p_[j];
      narrow_in_[j] = float(cg_p_[j]);
    }
    kernels().dense.symv(b, p_.a, b, narrow_in_.data(), narrow_out_.data());
    for (Index j = 0; j < b; ++j) cg_q_[j] = shift[j] * cg_p_[j] + tau_ * double(narrow_out_[j]);
    const double curvature = dot(cg_p_, cg_q_);
    if (!(curvature > 0.0)) break;
    const double alpha = rho / curvature;
    for (Index j = 0; j < b; ++j) {
      step_[j] += alpha * cg_p_[j];
      cg_r_[j] -= alpha * cg_q_[j];
    }
    if (dot(cg_r_, cg_r_) <= target) break;
  }
}

Progress MeanField::newton(Index max_iterations, double tolerance, Index max_cg, double cg_tolerance,
                           double relative_rise, bool exact) {
  const Index b = p_.n_weights;
  for (auto* w : {&gradient_, &shift_, &step_, &cg_r_, &cg_p_, &cg_q_}) w->resize(b);
  narrow_in_.resize(b);
  narrow_out_.resize(b);

  Progress progress;
  std::vector<double> eta_old(b), velocity(b);
  double family_tau = tau_;  // the τ in kappa: followed when it moves by more than rounding
  rescale_to_tau(family_tau);
  refresh_residual(exact);
  double current = value(update_noise());
  for (Index it = 0; it < max_iterations; ++it) {
    if (std::fabs(tau_ - family_tau) > 1e-5 * tau_) {
      rescale_to_tau(family_tau = tau_);
      refresh_residual(exact);
      current = value(expected_squared_error());
    }
    // Gradient in s of the ELBO with the noise fixed: zero where eta_j = τ r_j, the fixed point of Theorem 1.
    double largest = 0.0;
    for (Index j = 0; j < b; ++j) {
      const double a = p_.diagonal[j];
      const double variance = std::max(second_[j] - mean_[j] * mean_[j], 1e-14 / (tau_ * a + p_.prior_precision[j]));
      gradient_[j] = tau_ * (residual_[j] + a * mean_[j]) - eta_[j];
      // The Hessian −(diag(1/variance) − τ diag(a) + τA) is indefinite where a weight hesitates between levels.
      shift_[j] = std::max(1.0 / variance - tau_ * a, 0.05 * tau_ * a + p_.prior_precision[j]);
      velocity[j] = 1.0 / variance;
      largest = std::max(largest, std::fabs(gradient_[j]) * std::sqrt(variance));
    }
    if (largest <= tolerance) {
      progress.converged = true;
      break;
    }
    solve_newton_system(shift_, gradient_, max_cg, cg_tolerance);
    for (Index j = 0; j < b; ++j) velocity[j] *= step_[j];

    eta_old = eta_;
    const std::vector<double> q_noise_old = q_noise_;
    double best = current;
    bool accepted = false;
    for (double t = 1.0; t > 1e-3; t *= 0.5) {
      for (Index j = 0; j < b; ++j) eta_[j] = eta_old[j] + t * velocity[j];
      tilt();
      refresh_residual(exact);
      best = value(update_noise());
      if (best > current) {
        accepted = true;
        break;
      }
    }
    ++progress.n_iterations;
    if (!accepted) {  // rounding, or a step along which nothing rises: keep what we had
      eta_ = eta_old;
      q_noise_ = q_noise_old;
      set_tau_from_noise();
      tilt();
      refresh_residual(exact);
      progress.converged = largest <= 1e3 * tolerance;
      break;
    }
    progress.trace.push_back(best);
    const double rise = best - current;
    current = best;
    if (rise <= relative_rise * (std::fabs(current) + 1.0)) {
      progress.converged = true;
      break;
    }
  }
  return progress;
}

}  // namespace pydirect
