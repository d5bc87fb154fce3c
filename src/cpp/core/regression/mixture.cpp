#include "pydirect/regression/mixture.hpp"

#include <algorithm>
#include <cmath>

#include "gaussian_likelihood.hpp"
#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

using namespace regression;

constexpr Index kWeightsPerChunk = 256;
// Pairs of components whose overlap is smaller than exp of this, wherever one weight moves, do not feel each other.
constexpr double kFarthest = -40.0;
constexpr double kSmallProduct = 1e-100;
constexpr double kSmallestAlpha = 1e-300;  // components may come back
constexpr int kAlphaSteps = 50;
// A component of (almost) no weight may climb for some sweeps before it is seen in the ELBO.
constexpr Index kFewestSweeps = 5;
// A fall by less than this fraction of the ELBO is what single precision cannot tell from none.
constexpr double kRounding = 1e-6;

double log_sum_exp(const double* x, Index n) {
  const double top = array(x, n).maxCoeff();
  return top + std::log((array(x, n) - top).exp().sum());
}

constexpr Index kSamplesPerChunk = 64, kSummedWeightsPerChunk = 64;

}  // namespace

void component_log_masses(Index n_samples, Index n_weights, Index n_levels, Index n_components,
                          const unsigned char* indices, const double* table, double* out, int n_threads) {
  for_chunks(n_samples, kSamplesPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      auto row = array(out + n * n_components, n_components);
      row.setZero();
      for (Index j = 0; j < n_weights; ++j)
        row += array(table + (j * n_levels + indices[n * n_weights + j]) * n_components, n_components);
    }
  });
}

void sum_by_level(Index n_samples, Index n_weights, Index n_levels, Index n_components, const unsigned char* indices,
                  const double* coefficients, double* out, int n_threads) {
  for_chunks(n_weights, kSummedWeightsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index n = 0; n < n_samples; ++n)
      for (Index j = begin; j < end; ++j)
        array(out + (j * n_levels + indices[n * n_weights + j]) * n_components, n_components) +=
            array(coefficients + n * n_components, n_components);
  });
}

Mixture::Mixture(const MeanFieldProblem& problem, const std::vector<TiltFamily>& families, int n_threads)
    : p_(problem), families_(families), n_threads_(n_threads) {
  const Index b = p_.n_weights, r = n_components(), m = families_[0].n_levels;
  s_.alpha.assign(r, 1.0 / double(r));
  s_.q_noise.assign(p_.n_noise, 1.0 / double(p_.n_noise));
  for (auto* v : {&s_.kappa, &s_.mean, &s_.second, &s_.gain, &s_.residual}) v->assign(r * b, 0.0);
  s_.drift.assign(r * b, 0.0f);
  s_.root.assign(b * r * m, 0.0);
  s_.factor.assign(b * r * r, 1.0);
  for (auto* v : {&s_.log_overlap, &s_.overlap}) v->assign(r * r, 0.0);
  s_.density.assign(r, 1.0);
  close_.assign(r * r, 0);
  offset_.assign(r, 0.0);
  set_tau_from_noise();
}

void Mixture::set_alpha(const double* alpha) {
  auto own = array(s_.alpha);
  own = array(alpha, n_components()).max(kSmallestAlpha);
  own /= own.sum();
}

void Mixture::set_offsets(const double* offsets) { std::copy(offsets, offsets + n_components(), offset_.begin()); }

void Mixture::set_noise(const double* q_noise) {
  std::copy(q_noise, q_noise + p_.n_noise, s_.q_noise.begin());
  set_tau_from_noise();
}

void Mixture::set_tau_from_noise() { tau_ = noise_precision(p_, s_.q_noise); }

void Mixture::set_component(Index i, const double* q) {
  const TiltFamily& family = families_[i];
  const Index b = p_.n_weights, r = n_components(), m = family.n_levels;
  for (Index j = 0; j < b; ++j) {
    const auto row = array(q + j * m, m), w = array(family.levels + j * family.level_stride, m);
    const auto log_p = array(family.log_prior + j * family.prior_stride, m);
    array(s_.root.data() + (j * r + i) * m, m) = row.sqrt();
    s_.mean[i * b + j] = (row * w).sum();
    s_.second[i * b + j] = (row * w * w).sum();
    s_.gain[i * b + j] = (row > 0.0).select(row * (log_p - row.log()), 0.0).sum();
    s_.kappa[i * b + j] = 0.0;  // whatever its width: the first sweep looks at every weight
  }
}

void Mixture::probabilities(Index i, double* q) const {
  const Index r = n_components(), m = families_[0].n_levels;
  for (Index j = 0; j < p_.n_weights; ++j) array(q + j * m, m) = array(s_.root.data() + (j * r + i) * m, m).square();
}

void Mixture::refresh_residual(bool exact) {
  residuals(p_, exact, n_components(), s_.mean.data(), s_.residual.data(), n_threads_);
  std::fill(s_.drift.begin(), s_.drift.end(), 0.0f);
}

void Mixture::set_densities() {
  const Index r = n_components();
  for (Index i = 0; i < r; ++i) s_.density[i] = (array(s_.alpha) * array(s_.overlap.data() + i * r, r)).sum();
}

void Mixture::refresh_overlaps() {
  const Index b = p_.n_weights, r = n_components(), m = families_[0].n_levels;
  if (r > 1)
    for_chunks(b, kWeightsPerChunk, n_threads_, [&](Index begin, Index end) {
      kernels().mixture.overlap_factors(r, m, s_.root.data(), s_.factor.data(), begin, end);
    });
  for (Index pair = 0; pair < r * r; ++pair) {
    double total = 0.0, product = 1.0;  // few logarithms: of products before they underflow
    for (Index j = 0; j < b; ++j) {
      product *= s_.factor[j * r * r + pair];
      if (product < kSmallProduct) {
        total += std::log(product);
        product = 1.0;
      }
    }
    s_.log_overlap[pair] = total + std::log(product);
  }
  array(s_.overlap) = array(s_.log_overlap).exp();
  set_densities();
}

void Mixture::mark_close_pairs() {
  const Index b = p_.n_weights, r = n_components();
  for (Index i = 0; i < r; ++i)
    for (Index k = 0; k < r; ++k) {
      double smallest = 1.0;
      for (Index j = 0; j < b; ++j) smallest = std::min(smallest, s_.factor[(j * r + i) * r + k]);
      close_[i * r + k] = i != k && s_.log_overlap[i * r + k] - std::log(smallest) > kFarthest;
    }
}

// Of one component.
double Mixture::expected_squared_error(Index i) const {
  const Index at = i * p_.n_weights;
  return regression::expected_squared_error(p_, s_.mean.data() + at, s_.second.data() + at, s_.residual.data() + at,
                                            s_.drift.data() + at);
}

// q_σ given R = Σ_i α_i R_i.
void Mixture::update_noise() {
  double error = 0.0;
  for (Index i = 0; i < n_components(); ++i) error += s_.alpha[i] * expected_squared_error(i);
  noise_logits(p_, error, s_.q_noise.data());
  const double log_z = log_sum_exp(s_.q_noise.data(), p_.n_noise);
  array(s_.q_noise) = (array(s_.q_noise) - log_z).exp();
  set_tau_from_noise();
}

std::vector<double> Mixture::values() const {
  std::vector<double> out(n_components());
  for (Index i = 0; i < n_components(); ++i) {
    out[i] = offset_[i] - 0.5 * tau_ * expected_squared_error(i);
    for (Index j = 0; j < p_.n_weights; ++j) out[i] += s_.gain[i * p_.n_weights + j];
  }
  return out;
}

// Σ_i α_i (E_i − log Z_i)
double Mixture::weights_value(const std::vector<double>& alpha, const std::vector<double>& values) const {
  const Index r = n_components();
  double total = 0.0;
  for (Index i = 0; i < r; ++i) {
    const double z = (array(alpha) * array(s_.overlap.data() + i * r, r)).sum();
    if (alpha[i] > 0.0) total += alpha[i] * (values[i] - std::log(z));
  }
  return total;
}

// Exponentiated gradient with backtracking; without overlaps the first step is the maximum, α_i ∝ exp E_i.
void Mixture::update_alpha() {
  const Index r = n_components();
  const std::vector<double> e = values();
  std::vector<double> logit(r), proposal(r);
  double current = weights_value(s_.alpha, e);
  for (int it = 0; it < kAlphaSteps; ++it) {
    double rise = 0.0;
    for (double t = 1.0; t > 1e-3; t *= 0.5) {
      for (Index i = 0; i < r; ++i) {
        double gradient = e[i] - std::log(s_.density[i]);
        for (Index k = 0; k < r; ++k) gradient -= s_.alpha[k] * s_.overlap[i * r + k] / s_.density[k];
        logit[i] = std::log(s_.alpha[i]) + t * gradient;
      }
      const double log_z = log_sum_exp(logit.data(), r);
      array(proposal) = (array(logit) - log_z).exp().max(kSmallestAlpha);
      rise = weights_value(proposal, e) - current;
      if (rise > 0.0) break;
    }
    if (!(rise > 0.0)) break;
    s_.alpha = proposal;
    current += rise;
    set_densities();
    if (rise <= 1e-12 * (std::fabs(current) + 1.0)) break;
  }
}

double Mixture::value() const {
  double total = -0.5 * p_.n_samples * kLog2Pi + weights_value(s_.alpha, values());
  for (Index k = 0; k < p_.n_noise; ++k) {
    const double q = s_.q_noise[k];
    if (q > 0.0) total += q * (p_.noise_log_prior[k] - std::log(q) - 0.5 * p_.n_samples * std::log(p_.noise_levels[k]));
  }
  return total;
}

double Mixture::elbo() {
  refresh_residual(true);
  refresh_overlaps();
  return value();
}

Progress Mixture::ascend(Index max_sweeps, double threshold, double relative_rise, Index refresh_every) {
  Progress progress;
  refresh_residual();
  refresh_overlaps();
  update_alpha();
  update_noise();
  double current = value();
  for (Index n = 0; n < max_sweeps; ++n) {
    kept_ = s_;
    mark_close_pairs();
    const ComponentSweep pass{p_.n_weights, n_components(), families_.data(), p_.a, p_.diagonal, p_.prior_precision,
                              s_.residual.data(), s_.drift.data(), tau_, threshold, s_.alpha.data(), close_.data(),
                              s_.kappa.data(), s_.mean.data(), s_.second.data(), s_.gain.data(), s_.root.data(),
                              s_.factor.data(), s_.overlap.data(), s_.density.data()};
    const Index moved = kernels().mixture.sweep(pass);
    if ((n + 1) % refresh_every == 0) refresh_residual();
    refresh_overlaps();
    update_alpha();
    update_noise();
    const double rise = value() - current;
    ++progress.n_iterations;
    if (!(rise >= 0.0)) {  // at rest, by rounding; else a pair that was far apart and met within one sweep
      std::swap(s_, kept_);
      set_tau_from_noise();
      progress.trace.push_back(current);
      progress.converged = -rise <= kRounding * (std::fabs(current) + 1.0);
      break;
    }
    current += rise;
    progress.trace.push_back(current);
    const bool flat = n + 1 >= kFewestSweeps && rise <= relative_rise * (std::fabs(current) + 1.0);
    if (moved == 0 || flat) {
      progress.converged = true;
      break;
    }
  }
  refresh_residual();
  return progress;
}

}  // namespace pydirect
