// Newton's method on the ELBO of a mean field.
#include <algorithm>
#include <cmath>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/regression/mean_field.hpp"

namespace pydirect {

// Moves every q_j to the member of its family for the new τ, keeping the residual correlation it answers to.
void MeanField::rescale_to_tau(double new_tau) {
  const Vector kappa = 0.5 * new_tau * array(p_.diagonal, p_.n_weights);
  for (Index j = 0; j < p_.n_weights; ++j)
    if (kappa_[j] > 0.0) eta_[j] *= kappa[j] / kappa_[j];
  array(kappa_) = kappa;
  tilt();
}

// Solves (diag(shift) + τA) step = gradient by conjugate gradients with the diagonal as preconditioner.
void MeanField::solve_newton_system(const std::vector<double>& shift, const std::vector<double>& gradient,
                                    Index max_cg, double tolerance) {
  const Index b = p_.n_weights;
  auto step = array(step_), r = array(cg_r_), p = array(cg_p_), q = array(cg_q_);
  const auto a = array(p_.diagonal, b), d = array(shift);
  const auto dot = [b](const auto& x, const auto& y) { return kernels().dense.dot(b, x.data(), y.data()); };
  step.setZero();
  r = array(gradient);
  const double target = tolerance * tolerance * dot(r, r);
  double rho_old = 0.0;
  for (Index it = 0; it < max_cg; ++it) {
    q = r / (d + tau_ * a);
    const double rho = dot(r, q);
    if (it == 0)
      p = q;
    else
      p = q + rho / rho_old * p;
    rho_old = rho;
    array(narrow_in_) = p.cast<float>();
    kernels().dense.symv(b, p_.a, b, narrow_in_.data(), narrow_out_.data());
    q = d * p + tau_ * array(narrow_out_).cast<double>();
    const double curvature = dot(p, q);
    if (!(curvature > 0.0)) break;
    const double alpha = rho / curvature;
    step += alpha * p;
    r -= alpha * q;
    if (dot(r, r) <= target) break;
  }
}

Progress MeanField::newton(Index max_iterations, double tolerance, Index max_cg, double cg_tolerance,
                           double relative_rise, bool exact) {
  const Index b = p_.n_weights;
  for (auto* w : {&gradient_, &shift_, &step_, &cg_r_, &cg_p_, &cg_q_}) w->resize(b);
  narrow_in_.resize(b);
  narrow_out_.resize(b);

  Progress progress;
  const auto a = array(p_.diagonal, b), prior = array(p_.prior_precision, b);
  const auto mean = array(mean_);
  Vector eta_old(b), variance(b), velocity(b);
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
    variance = (array(second_) - mean.square()).max(1e-14 / (tau_ * a + prior));
    array(gradient_) = tau_ * (array(residual_) + a * mean) - array(eta_);
    // The Hessian −(diag(1/variance) − τ diag(a) + τA) is indefinite where a weight hesitates between levels.
    array(shift_) = (1.0 / variance - tau_ * a).max(0.05 * tau_ * a + prior);
    const double largest = (array(gradient_).abs() * variance.sqrt()).maxCoeff();
    if (largest <= tolerance) {
      progress.converged = true;
      break;
    }
    solve_newton_system(shift_, gradient_, max_cg, cg_tolerance);
    velocity = 1.0 / variance * array(step_);

    eta_old = array(eta_);
    const std::vector<double> q_noise_old = q_noise_;
    double best = current;
    bool accepted = false;
    for (double t = 1.0; t > 1e-3; t *= 0.5) {
      array(eta_) = eta_old + t * velocity;
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
      array(eta_) = eta_old;
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
