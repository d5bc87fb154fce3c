#include "pydirect/regression/mean_field.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr double kLog2Pi = 1.8378770664093454836;
constexpr Index kRowsPerChunk = 128;

// y = A x over chunks of rows; double precision throughout when the exact matrix is given.
void multiply(const float* a, const double* a_exact, Index n, const double* x, double* y, int n_threads) {
  for_chunks(n, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    if (a_exact != nullptr)
      kernels().rows<double>().gemv(begin, end, n, a_exact, n, x, y);
    else
      kernels().rows<float>().gemv(begin, end, n, a, n, x, y);
  });
}

double xlogy_ratio(double q, double log_p) {  // q (log p − log q), with 0 log 0 = 0
  return q > 0.0 ? q * (log_p - std::log(q)) : 0.0;
}

// q ∝ exp(logits), in place; returns log of the normaliser.
double softmax(double* logits, Index n) {
  double top = -std::numeric_limits<double>::infinity();
  for (Index k = 0; k < n; ++k) top = std::max(top, logits[k]);
  double total = 0.0;
  for (Index k = 0; k < n; ++k) total += logits[k] = std::exp(logits[k] - top);
  for (Index k = 0; k < n; ++k) logits[k] /= total;
  return top + std::log(total);
}

}  // namespace

MeanField::MeanField(const MeanFieldProblem& problem, int n_threads)
    : p_(problem),
      n_threads_(n_threads),
      eta_(problem.n_weights),
      kappa_(problem.n_weights),
      mean_(problem.n_weights),
      second_(problem.n_weights),
      gain_(problem.n_weights),
      residual_(problem.n_weights),
      q_noise_(problem.n_noise, 1.0 / double(problem.n_noise)),
      drift_(problem.n_weights) {
  std::copy(p_.noise_log_prior, p_.noise_log_prior + p_.n_noise, q_noise_.begin());
  softmax(q_noise_.data(), p_.n_noise);
  set_tau_from_noise();
}

void MeanField::set_noise(const double* q_noise) {
  std::copy(q_noise, q_noise + p_.n_noise, q_noise_.begin());
  set_tau_from_noise();
}

void MeanField::set_tau_from_noise() {
  tau_ = 0.0;
  for (Index k = 0; k < p_.n_noise; ++k) tau_ += q_noise_[k] / p_.noise_levels[k];
}

void MeanField::tilt() {
  const TiltMoments moments{eta_.data(), kappa_.data(), mean_.data(), second_.data(), gain_.data()};
  for_chunks(p_.n_weights, 512, n_threads_,
             [&](Index begin, Index end) { kernels().tilt.moments(p_.family, moments, begin, end); });
}

void MeanField::probabilities(double* q) const {
  for_chunks(p_.n_weights, 512, n_threads_, [&](Index begin, Index end) {
    kernels().tilt.probabilities(p_.family, eta_.data(), kappa_.data(), q, begin, end);
  });
}

void MeanField::start_from_naturals(const double* eta, const double* kappa) {
  std::copy(eta, eta + p_.n_weights, eta_.begin());
  std::copy(kappa, kappa + p_.n_weights, kappa_.begin());
  tilt();
  refresh_residual();
}

void MeanField::start_from_prior() {
  std::fill(eta_.begin(), eta_.end(), 0.0);
  std::fill(kappa_.begin(), kappa_.end(), 0.0);
  tilt();
  refresh_residual();
}

// The tilt whose mean would be the ridge solution if the levels were continuous and the prior Gaussian.
void MeanField::start_from_ridge(const double* ridge) {
  for (Index j = 0; j < p_.n_weights; ++j) {
    eta_[j] = ridge[j] * (tau_ * p_.diagonal[j] + p_.prior_precision[j]);
    kappa_[j] = 0.5 * tau_ * p_.diagonal[j];
  }
  tilt();
  refresh_residual();
}

void MeanField::start_from_lattice(const float* factor, const double* ridge) {
  const Index b = p_.n_weights;
  std::vector<double> excess(b, 0.0);  // s − ridge for the weights already rounded
  const TiltMoments moments{eta_.data(), kappa_.data(), mean_.data(), second_.data(), gain_.data()};
  for (Index j = b - 1; j >= 0; --j) {
    double pull = 0.0;
    const float* row = factor + j * b;
    if (j + 1 < b) kernels().rows<float>().gemv(0, 1, b - j - 1, row + j + 1, b, excess.data() + j + 1, &pull);
    const double centre = ridge[j] - pull / double(row[j]);
    eta_[j] = centre * (tau_ * p_.diagonal[j] + p_.prior_precision[j]);
    kappa_[j] = 0.5 * tau_ * p_.diagonal[j];
    kernels().tilt.moments(p_.family, moments, j, j + 1);
    excess[j] = mean_[j] - ridge[j];
  }
  refresh_residual();
}

void MeanField::refresh_residual(bool exact) {
  multiply(p_.a, exact ? p_.a_exact : nullptr, p_.n_weights, mean_.data(), residual_.data(), n_threads_);
  for (Index j = 0; j < p_.n_weights; ++j) residual_[j] = p_.c[j] - residual_[j];
  std::fill(drift_.begin(), drift_.end(), 0.0f);
}

// R = yᵀy − 2 sᵀc + sᵀAs + diag(A)ᵀ(v − s²), with As = c − residual.
double MeanField::expected_squared_error() const {
  double fit = 0.0, spread = 0.0;
  for (Index j = 0; j < p_.n_weights; ++j) {
    fit += mean_[j] * (p_.c[j] + residual_[j] + double(drift_[j]));
    spread += p_.diagonal[j] * (second_[j] - mean_[j] * mean_[j]);
  }
  return p_.yty - fit + spread;
}

// q_σ ∝ p_σ exp(−(n/2) log σ² − ½ R σ⁻²)
double MeanField::update_noise() {
  const double r = expected_squared_error();
  for (Index k = 0; k < p_.n_noise; ++k)
    q_noise_[k] =
        p_.noise_log_prior[k] - 0.5 * p_.n_samples * std::log(p_.noise_levels[k]) - 0.5 * r / p_.noise_levels[k];
  softmax(q_noise_.data(), p_.n_noise);
  set_tau_from_noise();
  return r;
}

double MeanField::value(double squared_error) const {
  double total = -0.5 * p_.n_samples * kLog2Pi;
  double precision = 0.0;
  for (Index k = 0; k < p_.n_noise; ++k) {
    total += xlogy_ratio(q_noise_[k], p_.noise_log_prior[k]);
    total -= 0.5 * p_.n_samples * q_noise_[k] * std::log(p_.noise_levels[k]);
    precision += q_noise_[k] / p_.noise_levels[k];
  }
  total -= 0.5 * precision * squared_error;
  for (Index j = 0; j < p_.n_weights; ++j) total += gain_[j];
  return total;
}

double MeanField::elbo() {
  refresh_residual(true);
  return value(expected_squared_error());
}

Progress MeanField::coordinate_ascent(Index max_sweeps, double threshold, double relative_rise, Index refresh_every,
                                      Index anneal_sweeps) {
  Progress progress = sweep(max_sweeps, threshold, relative_rise, refresh_every, anneal_sweeps);
  refresh_residual();
  return progress;
}

Progress MeanField::sweep(Index max_sweeps, double threshold, double relative_rise, Index refresh_every,
                          Index anneal_sweeps) {
  constexpr double kAnnealDecades = 3.0;
  Progress progress;
  const double final_tau = tau_;
  for (Index k = 0; k < max_sweeps; ++k) {
    const bool annealing = k < anneal_sweeps;
    const double tau =
        annealing ? final_tau * std::pow(10.0, -kAnnealDecades * (1.0 - double(k + 1) / double(anneal_sweeps)))
                  : tau_;
    const Sweep pass{p_.n_weights,     p_.a,          p_.n_weights, p_.diagonal,  p_.prior_precision, residual_.data(),
                     drift_.data(),    tau,           threshold,    eta_.data(),  kappa_.data(),      mean_.data(),
                     second_.data(),   gain_.data()};
    const Index moved = kernels().tilt.sweep(p_.family, pass);
    if ((k + 1) % refresh_every == 0) refresh_residual();
    const double r = annealing ? expected_squared_error() : update_noise();
    const double before = progress.trace.empty() ? -HUGE_VAL : progress.trace.back();
    progress.trace.push_back(value(r));
    ++progress.n_iterations;
    const bool flat = progress.trace.back() - before <= relative_rise * (std::fabs(before) + 1.0);
    if (k > anneal_sweeps && (moved == 0 || flat)) {
      progress.converged = true;
      break;
    }
  }
  return progress;
}

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

Progress MeanField::large_neighbourhood(const Index* blocks, Index n_blocks, Index block_size, Index sweeps,
                                        double threshold) {
  Progress progress;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Matrix sub(block_size, block_size);
  Eigen::VectorXf ridge(block_size), target(block_size);
  refresh_residual();
  double current = value(update_noise());
  const TiltMoments moments{eta_.data(), kappa_.data(), mean_.data(), second_.data(), gain_.data()};
  for (Index n = 0; n < n_blocks; ++n) {
    const Index* block = blocks + n * block_size;
    const auto eta = eta_, kappa = kappa_, mean = mean_, second = second_, gain = gain_, residual = residual_,
               q_noise = q_noise_;
    for (Index i = 0; i < block_size; ++i) {
      const float* row = p_.a + block[i] * p_.n_weights;
      float fit = 0.0f;
      for (Index k = 0; k < block_size; ++k) {
        sub(i, k) = row[block[k]];
        fit += sub(i, k) * float(mean_[block[k]]);
      }
      target[i] = float(residual_[block[i]]) + fit;  // c_B − A_{B,rest} s_rest
      sub(i, i) += float(p_.prior_precision[block[i]] / tau_);
    }
    Eigen::LLT<Matrix> factor(sub);
    if (factor.info() != Eigen::Success) continue;
    ridge = factor.solve(target);
    const Matrix upper = factor.matrixU();
    Eigen::VectorXf excess = Eigen::VectorXf::Zero(block_size);
    for (Index i = block_size - 1; i >= 0; --i) {
      const Index j = block[i], rest = block_size - i - 1;
      const float pull = rest > 0 ? upper.row(i).tail(rest).dot(excess.tail(rest)) : 0.0f;
      const double centre = double(ridge[i] - pull / upper(i, i));
      const double before = mean_[j];
      eta_[j] = centre * (tau_ * p_.diagonal[j] + p_.prior_precision[j]);
      kappa_[j] = 0.5 * tau_ * p_.diagonal[j];
      kernels().tilt.moments(p_.family, moments, j, j + 1);
      excess[i] = float(mean_[j]) - ridge[i];
      kernels().dense.subtract_scaled(p_.n_weights, float(mean_[j] - before), p_.a + j * p_.n_weights, drift_.data());
    }
    sweep(sweeps, threshold, 0.0, sweeps + 1, 0);
    // By more than single precision can tell, so that data that differ by rounding take the same path.
    if (value(expected_squared_error()) - current > 1e-6 * (std::fabs(current) + 1.0)) {
      refresh_residual();
      current = value(update_noise());
    } else {
      eta_ = eta, kappa_ = kappa, mean_ = mean, second_ = second, gain_ = gain, residual_ = residual;
      q_noise_ = q_noise;
      std::fill(drift_.begin(), drift_.end(), 0.0f);
      set_tau_from_noise();
    }
    ++progress.n_iterations;
    progress.trace.push_back(current);
  }
  progress.converged = true;
  return progress;
}

double elbo_and_gradient(const MeanFieldProblem& p, Index n_used, const double* logits, const double* noise_logits,
                         double* gradient, double* noise_gradient, int n_threads) {
  const Index b = p.n_weights, m = n_used;
  std::vector<double> mean(b), second(b), product(b), gain(b);
  // q_j in `gradient`, log q_j = logits − log Z_j
  for_chunks(b, 256, n_threads, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      const double* theta = logits + j * m;
      const double* w = p.family.levels + j * p.family.level_stride;
      const double* log_p = p.family.log_prior + j * p.family.prior_stride;
      double* q = gradient + j * m;
      const double top = *std::max_element(theta, theta + m);
      for (Index k = 0; k < m; ++k) q[k] = theta[k] - top;
      kernels().maths.exp(m, q, q);
      double total = 0.0;
      for (Index k = 0; k < m; ++k) total += q[k];
      const double log_z = top + std::log(total);
      double s = 0.0, v = 0.0, g = 0.0;
      for (Index k = 0; k < m; ++k) {
        q[k] /= total;
        s += q[k] * w[k];
        v += q[k] * w[k] * w[k];
        if (q[k] > 0.0) g += q[k] * (log_p[k] - (theta[k] - log_z));
      }
      mean[j] = s;
      second[j] = v;
      gain[j] = g;
    }
  });
  multiply(p.a, p.a_exact, b, mean.data(), product.data(), n_threads);

  double r = p.yty;
  for (Index j = 0; j < b; ++j)
    r += mean[j] * (product[j] - 2.0 * p.c[j]) + p.diagonal[j] * (second[j] - mean[j] * mean[j]);

  std::vector<double> q_noise(noise_logits, noise_logits + p.n_noise);
  softmax(q_noise.data(), p.n_noise);
  double total = -0.5 * p.n_samples * kLog2Pi, tau = 0.0, noise_mean = 0.0;
  for (Index k = 0; k < p.n_noise; ++k) {
    const double fit = -0.5 * p.n_samples * std::log(p.noise_levels[k]) - 0.5 * r / p.noise_levels[k];
    tau += q_noise[k] / p.noise_levels[k];
    total += xlogy_ratio(q_noise[k], p.noise_log_prior[k]) + q_noise[k] * fit;
    noise_gradient[k] = q_noise[k] > 0.0 ? p.noise_log_prior[k] - std::log(q_noise[k]) + fit : 0.0;
    noise_mean += q_noise[k] * noise_gradient[k];
  }
  for (Index k = 0; k < p.n_noise; ++k) noise_gradient[k] = q_noise[k] * (noise_gradient[k] - noise_mean);
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
