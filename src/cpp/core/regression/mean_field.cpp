#include "pydirect/regression/mean_field.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "gaussian_likelihood.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
using namespace regression;

MeanField::MeanField(const MeanFieldProblem& problem, int n_threads)
    : p_(problem),
      n_threads_(n_threads),
      order_(problem.n_weights),
      eta_(problem.n_weights),
      kappa_(problem.n_weights),
      mean_(problem.n_weights),
      second_(problem.n_weights),
      gain_(problem.n_weights),
      residual_(problem.n_weights),
      q_noise_(problem.n_noise, 1.0 / double(problem.n_noise)) {
  std::iota(order_.begin(), order_.end(), 0);
  std::copy(p_.noise_log_prior, p_.noise_log_prior + p_.n_noise, q_noise_.begin());
  softmax(q_noise_.data(), p_.n_noise);
  set_tau_from_noise();
}

void MeanField::set_noise(const double* q_noise) {
  std::copy(q_noise, q_noise + p_.n_noise, q_noise_.begin());
  set_tau_from_noise();
}

void MeanField::set_tau_from_noise() { tau_ = noise_precision(p_, q_noise_); }

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

// The tilt whose mean would be `centre` if the levels were continuous and the prior Gaussian, weight by weight.
void MeanField::start_from_lattice(const float* factor, const std::int64_t* order, const double* ridge) {
  const Index b = p_.n_weights;
  order_.assign(order, order + b);
  std::vector<double> excess(b, 0.0);  // s − ridge for the weights already rounded, in `order`
  const TiltMoments moments{eta_.data(), kappa_.data(), mean_.data(), second_.data(), gain_.data()};
  for (Index i = b - 1; i >= 0; --i) {
    double pull = 0.0;
    const float* row = factor + i * b;
    if (i + 1 < b) kernels().rows<float>().gemv(0, 1, b - i - 1, row + i + 1, b, excess.data() + i + 1, &pull);
    const Index j = order[i];
    const double centre = ridge[j] - pull / double(row[i]);
    eta_[j] = centre * (tau_ * p_.diagonal[j] + p_.prior_precision[j]);
    kappa_[j] = 0.5 * tau_ * p_.diagonal[j];
    kernels().tilt.moments(p_.family, moments, j, j + 1);
    excess[i] = mean_[j] - ridge[j];
  }
  refresh_residual();
}

void MeanField::refresh_residual(bool exact) {
  residuals(p_, exact, 1, mean_.data(), residual_.data(), n_threads_);
}

double MeanField::expected_squared_error() const {
  return regression::expected_squared_error(p_, mean_.data(), second_.data(), residual_.data());
}

double MeanField::update_noise() {
  const double r = expected_squared_error();
  noise_logits(p_, r, q_noise_.data());
  softmax(q_noise_.data(), p_.n_noise);
  set_tau_from_noise();
  return r;
}

double MeanField::value(double squared_error) const {
  double total = -0.5 * p_.n_samples * kLog2Pi;
  for (Index k = 0; k < p_.n_noise; ++k) {
    total += xlogy_ratio(q_noise_[k], p_.noise_log_prior[k]);
    total -= 0.5 * p_.n_samples * q_noise_[k] * std::log(p_.noise_levels[k]);
  }
  total -= 0.5 * noise_precision(p_, q_noise_) * squared_error;
  for (Index j = 0; j < p_.n_weights; ++j) total += gain_[j];
  return total;
}

double MeanField::elbo() {
  refresh_residual(true);
  return value(expected_squared_error());
}

Index MeanField::sweep(double threshold, bool exact) {
  const auto with = [&](const auto* a) {
    return Sweep<std::decay_t<decltype(*a)>>{p_.n_weights,       order_.data(), a,            p_.n_weights,  p_.diagonal,
                                             p_.prior_precision, residual_.data(), tau_,      threshold,
                                             eta_.data(),        kappa_.data(), mean_.data(), second_.data(),
                                             gain_.data()};
  };
  return exact ? kernels().tilt.exact_sweep(p_.family, with(p_.a_exact))
               : kernels().tilt.sweep(p_.family, with(p_.a));
}

Progress MeanField::coordinate_ascent(Index max_sweeps, double threshold, double relative_rise, bool exact) {
  exact = exact && p_.a_exact != nullptr;
  Progress progress;
  refresh_residual(exact);
  for (Index k = 0; k < max_sweeps; ++k) {
    const Index moved = sweep(threshold, exact);
    const double r = update_noise();
    const double before = progress.trace.empty() ? -HUGE_VAL : progress.trace.back();
    progress.trace.push_back(value(r));
    ++progress.n_iterations;
    const bool flat = progress.trace.back() - before <= relative_rise * (std::fabs(before) + 1.0);
    if (k > 0 && (moved == 0 || flat)) {
      progress.converged = true;
      break;
    }
  }
  return progress;
}

}  // namespace pydirect
