// Large-neighbourhood search: blocks of weights rounded together.
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "kernels/kernel_table.hpp"
#include "pydirect/regression/mean_field.hpp"

namespace pydirect {

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
    sweep(sweeps, threshold, 0.0, sweeps + 1);
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

}  // namespace pydirect
