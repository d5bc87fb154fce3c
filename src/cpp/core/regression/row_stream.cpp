#include "pydirect/regression/row_stream.hpp"

#include <algorithm>
#include <cmath>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"

namespace pydirect {
namespace {

// Deviation and log density at an error, of a mixture of normals whose variances are `factor` (latent + noise v).
void set_spread(const RowState& s, double latent, double factor, double error, RowPrediction* out) {
  const auto weights = array(s.noise_weights, s.n_noises), values = array(s.noise_factors, s.n_noises);
  const Vector variances = factor * (latent + s.noise_variance * values);
  const Vector logs = weights.log() - 0.5 * (variances.log() + kLog2Pi + error * error / variances);
  const double most = logs.maxCoeff();
  out->deviation = s.scale * std::sqrt((weights * variances).sum());
  out->log_density = most + std::log((logs - most).exp().sum()) - std::log(s.scale);
}

}  // namespace

RowStream::RowStream(const RowMap& map, const RowState& given)
    : state(given),
      map_(map),
      inputs_(static_cast<std::size_t>(map.kernel.n_inputs)),
      linear_(static_cast<std::size_t>(map.kernel.n_linear)),
      functions_(static_cast<std::size_t>(map.n_functions())),
      phi_(static_cast<std::size_t>(map.n_functions() + 1)),
      image_(phi_.size()),
      last_(static_cast<std::size_t>(map.columns.n_columns)),
      along_(static_cast<std::size_t>(given.n_waiting + given.n_left)) {}

// k(x, Z), Φ with the constant, and the variance of f that Φ lacks.
bool RowStream::map_row(const double* x) {
  constexpr Index kRows = 32;  // of L⁻¹ at once: what they have above the diagonal is multiplied too
  if (!array(x, map_.columns.n_columns).isFinite().all()) return false;
  const Index b = map_.n_functions();
  map_inputs(map_.columns, 1, x, inputs_.data());
  auto inputs = array(inputs_);
  inputs = inputs.max(-map_.largest_input).min(map_.largest_input);
  CrossCovariance kernel = map_.kernel;
  kernel.x = inputs_.data();
  kernel.out = functions_.data();
  cross_covariance(kernel, map_.linear_reach, map_.twice_smoothness, 1);
  for (Index i = 0; i < b; i += kRows) {
    const Index end = std::min(b, i + kRows);
    kernels().rows<double>().gemv(i, end, end, map_.whitening, b, functions_.data(), phi_.data());
  }
  phi_.back() = map_.constant;
  const auto given = inputs.head(kernel.n_linear);
  auto linear = array(linear_);
  linear = given.max(-map_.linear_reach).min(map_.linear_reach);
  const double all = kernel.ard_amplitude + kernel.isotropic_amplitude + kernel.constant +
                     kernel.linear_amplitude * linear.square().sum();
  const double residual = std::max(all - kernels().dense.dot(b, phi_.data(), phi_.data()), 0.0);
  missing_ = kernel.linear_amplitude * (given - linear).square().sum() + std::max(residual - map_.mean_missing, 0.0);
  return true;
}

// All that the map and the posterior say of a row, unless it is the one that was looked at last and nothing has changed.
bool RowStream::look_at(const double* x) {
  const auto row = array(x, map_.columns.n_columns);
  if (seen_ && (row == array(last_)).all()) return true;
  seen_ = false;
  if (!map_row(x)) return false;
  // Sφ = ratio (S_0φ − Σ s d dᵀφ)
  const Index n = Index(phi_.size()), n_waiting = state.n_waiting + state.n_rows;
  auto image = array(image_);
  kernels().rows<double>().gemv(0, n, n, state.covariance, n, phi_.data(), image_.data());
  image *= state.covariance_scale;
  kernels().rows<double>().gemv(0, n_waiting, n, state.directions, n, phi_.data(), along_.data());
  array(along_).head(n_waiting) *= -array(state.signs, n_waiting);
  kernels().rows<double>().add_transposed(n_waiting, n, state.directions, n, along_.data(), image_.data());
  mean_ = kernels().dense.dot(n, phi_.data(), state.mean);
  latent_ = state.ratio * std::max(kernels().dense.dot(n, phi_.data(), image_.data()), 0.0);
  array(last_) = row;
  return seen_ = true;
}

bool RowStream::predict(const double* x, RowPrediction* out) {
  if (!look_at(x)) return false;
  out->mean = state.location + state.scale * mean_;
  set_spread(state, latent_ + missing_ * state.prior_variance, state.calibration(), 0.0, out);
  return true;
}

bool RowStream::learn(const double* x, double y, double weight, double decay, double clock, RowPrediction* out) {
  RowState& s = state;
  if (s.n_rows >= s.n_left || !(weight > 0.0) || !(s.faded * decay >= s.least_faded) || !look_at(x)) return false;
  const Index b = map_.n_functions(), n = b + 1, row = s.n_rows;
  const double z = (y - s.location) / s.scale, error = z - mean_, factor = s.calibration();
  const double latent = latent_ + missing_ * s.prior_variance, variance = latent + s.noise_variance;
  if (!(std::abs(error) <= std::max(s.gross * std::sqrt(factor * variance), s.gross_scales))) return false;
  out->mean = s.location + s.scale * mean_;
  set_spread(s, latent, factor, error, out);
  seen_ = false;

  // m ← m + Sφ (y − φᵀm)/k and d = Sφ/√k with k = φᵀSφ + σ²/ω, in units of the ratio; then all fade.
  const double one = weight / decay, pivot = (latent_ + s.noise_variance / one) / s.ratio;
  array(s.mean, n) += error / pivot * array(image_);
  array(s.directions + (s.n_waiting + row) * n, n) = array(image_) / std::sqrt(pivot);
  s.signs[s.n_waiting + row] = 1.0;
  s.ratio /= decay;
  s.posterior_samples = (s.posterior_samples + one) * decay;

  s.sum_scale *= decay;
  double* sums = s.sum_rows + row * (b + 2);
  std::copy_n(s.sums_of_kernel ? functions_.data() : phi_.data(), b, sums);
  sums[b] = map_.constant;
  sums[b + 1] = z;
  s.sum_weights[row] = weight / s.sum_scale;

  // The row itself, and what is watched
  std::copy_n(x, map_.columns.n_columns, s.x + row * map_.columns.n_columns);
  s.y[row] = y;
  s.weight[row] = weight;
  s.clock[row] = clock;
  s.n_samples_then[row] = s.n_samples;
  s.n_samples = s.n_samples * decay + weight;
  s.faded *= decay;
  const Index n_inputs = map_.kernel.n_inputs;
  s.n_outside += (array(inputs_) < array(s.lowest, n_inputs)).any() || (array(inputs_) > array(s.highest, n_inputs)).any();
  const double square = error * error / variance;
  s.squares += std::min(square, s.largest_watched);
  s.calibration_sum = s.calibration_kept * s.calibration_sum + std::min(square, s.largest_calibration);
  s.calibration_weight = s.calibration_kept * s.calibration_weight + 1.0;
  s.score_sum = s.score_kept * s.score_sum + out->log_density;
  s.score_weight = s.score_kept * s.score_weight + 1.0;
  ++s.n_rows;
  return true;
}

}  // namespace pydirect
