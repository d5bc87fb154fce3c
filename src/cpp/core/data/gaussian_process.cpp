#include "pydirect/data/gaussian_process.hpp"

#include <algorithm>
#include <vector>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/dense.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {
constexpr Index kCovarianceRowsPerChunk = 16;
constexpr Index kCrossRowsPerChunk = 64;
// Smaller matrices take a millisecond or so: waking threads, and their waiting afterwards, would cost more.
constexpr Index kEntriesForThreads = Index{1} << 17;

int threads_for(Index n_rows, Index n_columns, int n_threads) {
  return n_rows * n_columns < kEntriesForThreads ? 1 : n_threads;
}

// Inputs of `covariance`, which leaves in `ard` and `second` what the gradient needs.
struct Parts {
  double *ard, *second;
  Vector ard_norm, second_norm;
  std::vector<double> axes;
};

// Lower triangle of the covariance.
void covariance(const MarginalLikelihood& p, Parts& parts, double* out, int n_threads) {
  const auto covariance_row = kernels().gaussian_process.covariance_row[p.twice_smoothness / 2][p.second_part()];
  for_chunks(p.n, kCovarianceRowsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      double *const ard = parts.ard + i * p.stride, *const second = parts.second + i * p.stride;
      // A point is at distance zero from itself; rounding must not say otherwise where length-scales are short.
      ard[i] = parts.ard_norm[i];
      if (p.n_axes > 0) {
        kernels().gaussian_process.axes_row[p.of_pairs]({i + 1, p.n_axes, p.stride, parts.axes.data(), i, second});
      } else {
        array(second, p.stride) = p.rates[0] * p.rates[0] * array(p.products + i * p.stride, p.stride);
        second[i] = parts.second_norm[i];
      }
      covariance_row({i + 1, ard, second, p.linear + i * p.stride, parts.ard_norm.data(), parts.second_norm.data(),
                      parts.ard_norm[i], parts.second_norm[i], p.ard_amplitude, p.second_amplitude, p.linear_amplitude,
                      p.constant, out + i * p.stride});
      out[i * p.stride + i] += p.noise[i];
    }
  });
}

// From the lower triangle of K⁻¹, n_targets times, and α: distance_weight (n, stride), symmetric, and sums
// (4 + n_axes,) over the whole matrix of M k_I, M k_I r, M x_L·x_L', M, and M ∂k_I/∂log ℓ_j.
std::vector<double> covariance_gradient(const MarginalLikelihood& p, const Parts& parts, const double* inverse,
                                        const double* alpha, double* distance_weight, int n_threads) {
  const Index n_sums = 4 + p.n_axes;
  std::vector<double> row_sums(static_cast<std::size_t>(n_sums * p.n)), sums(static_cast<std::size_t>(n_sums));
  const auto gradient_row = kernels().gaussian_process.gradient_row[p.second_part()];
  for_chunks(p.n, kCovarianceRowsPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(static_cast<std::size_t>(3 * p.n_axes * kLevelPadding));
    for (Index i = begin; i < end; ++i) {
      const Index row = i * p.stride;
      CovarianceGradientRow task{i + 1,           inverse + row,      alpha,          alpha[i],
                                 parts.ard + row, parts.second + row, p.linear + row, p.second_amplitude,
                                 distance_weight + row, {}};
      gradient_row(task);
      double* own_sums = row_sums.data() + n_sums * i;
      // Every pair of the strict lower triangle stands for two entries of the matrix.
      const double m = 0.5 * (inverse[row + i] - alpha[i] * alpha[i]);
      const double own[4] = {m * p.second_amplitude, 0.0, m * p.linear[row + i], m};
      for (int k = 0; k < 4; ++k) own_sums[k] = 2.0 * task.sums[k] - own[k];
      if (p.n_axes == 0) continue;
      kernels().gaussian_process.axes_gradient_row[p.of_pairs](
          {{i + 1, p.n_axes, p.stride, parts.axes.data(), i, parts.second + row}, scratch.data(), own_sums + 4});
      for (Index k = 4; k < n_sums; ++k) own_sums[k] *= 2.0;
    }
  });
  for (Index i = 0; i < p.n; ++i)
    for (Index k = 0; k < n_sums; ++k)
      sums[static_cast<std::size_t>(k)] += row_sums[static_cast<std::size_t>(n_sums * i + k)];
  mirror_lower_triangle(p.n, distance_weight, p.stride, n_threads);
  return sums;
}

}  // namespace

void cross_covariance(const CrossCovariance& p, double linear_reach, int twice_smoothness, int n_threads) {
  const RoughPart rough = p.isotropic_amplitude <= 0.0 ? kNoRoughPart
                          : !p.product_weights         ? kIsotropicPart
                          : p.per_pair > 0.0           ? kPairsPart
                                                       : kProductPart;
  const auto of_rows = kernels().cross_covariance.of_rows[twice_smoothness / 2][rough];
  n_threads = threads_for(p.n_rows, p.n_others, n_threads);
  for_chunks(p.n_rows, kCrossRowsPerChunk, n_threads, [&](Index begin, Index end) {
    CrossCovariance part = p;
    part.n_rows = end - begin;
    part.x = p.x + begin * p.n_inputs;
    part.out = p.out + begin * p.n_others;
    std::vector<double> linear(static_cast<std::size_t>(part.n_rows * p.n_linear));
    matrix(linear.data(), part.n_rows, p.n_linear) = matrix(part.x, part.n_rows, p.n_inputs)
                                                         .leftCols(p.n_linear)
                                                         .unaryExpr([linear_reach](double x) {
                                                           return std::clamp(x, -linear_reach, linear_reach);
                                                         });
    alignas(64) double strips[3 * kRowsTogether * kStripColumns];
    part.x_linear = linear.data();
    part.strips = strips;
    of_rows(part);
  });
}

bool marginal_likelihood(const MarginalLikelihood& p, double* work, double* out, int n_threads) {
  n_threads = threads_for(p.n, p.n, n_threads);
  const Index n = p.n, stride = p.stride, size = n * stride;
  double *const k = work + 2 * size, *const lower = work + 3 * size;
  // 1. the covariance
  std::vector<double> scaled(static_cast<std::size_t>(n * p.n_inputs));
  auto x = matrix(scaled.data(), n, p.n_inputs);
  x = matrix(p.x, n, p.n_inputs).rowwise() / array(p.length_scales, p.n_inputs).transpose();
  Parts parts{work, work + size, Vector::Zero(stride), Vector::Zero(stride), {}};
  parts.ard_norm.head(n) = x.square().rowwise().sum();
  if (p.n_axes > 0) {
    parts.axes.assign(p.axes, p.axes + p.n_axes * stride);
    matrix(parts.axes.data(), p.n_axes, stride).colwise() *= array(p.rates, p.n_axes);
  } else {
    parts.second_norm.head(n) = p.rates[0] * p.rates[0] * matrix(p.products, n, stride).matrix().diagonal().array();
  }
  std::fill_n(parts.ard, size, 0.0);
  const Strided<const double> rows{scaled.data(), p.n_inputs, 1};
  add_product<double>({n, n, p.n_inputs, rows, rows.transposed(), nullptr, 1.0, {parts.ard, stride, 1}, Part::kAll,
                       Sum::kIsAdded},
                      n_threads);
  covariance(p, parts, k, n_threads);
  // 2. K = RᵀR, α = K⁻¹y and K⁻¹
  mirror_lower_triangle(n, k, stride, n_threads);
  if (factorise(n, k, stride, n_threads) < n) return false;
  std::vector<double> solved(p.y, p.y + n * p.n_targets);
  double* const last = solved.data() + (n - 1) * p.n_targets;
  solve_lower<double>(n, p.n_targets, {k, 1, stride}, {solved.data(), p.n_targets, 1}, n_threads);
  const double misfit = array(solved).square().sum();
  const double log_determinant = 2.0 * matrix(k, n, stride).matrix().diagonal().array().log().sum();
  solve_lower<double>(n, p.n_targets, {k + (n - 1) * (stride + 1), -stride, -1}, {last, -p.n_targets, 1}, n_threads);
  const auto alphas = matrix(solved.data(), n, p.n_targets);
  invert_factored(n, k, lower, stride, n_threads);
  // 3. M = ½ (n_targets K⁻¹ − Σ ααᵀ), of which the rows of the gradient subtract the first product
  if (p.n_targets > 1) {
    array(k, size) *= double(p.n_targets);
    const Strided<const double> others{solved.data() + 1, p.n_targets, 1};
    add_product<double>({n, n, p.n_targets - 1, others, others.transposed(), nullptr, -1.0, {k, stride, 1}, Part::kAll,
                         Sum::kIsAdded},
                        n_threads);
  }
  Vector alpha = Vector::Zero(stride);
  alpha.head(n) = alphas.col(0);
  const std::vector<double> sums = covariance_gradient(p, parts, k, alpha.data(), lower, n_threads);
  const double total = double(p.n_targets) * double(n) - misfit;
  const Vector diagonal = matrix(k, n, stride).matrix().diagonal().array() - alpha.head(n).square();
  const double noise = 0.5 * (diagonal * array(p.noise, n)).sum(), linear = p.linear_amplitude * sums[2];
  out[0] = 0.5 * (misfit + double(p.n_targets) * (log_determinant + double(n) * kLog2Pi));
  out[1] = noise;
  // Σ M ∂K/∂log a over all parts is Σ M K = ½ (n − yᵀα) per target, which gives the part not summed.
  out[2] = 0.5 * total - noise - sums[0] - linear - p.constant * sums[3];
  out[3] = sums[0];
  out[4] = linear;
  if (p.n_axes == 0) out[5] = sums[1];
  std::copy(sums.begin() + 4, sums.end(), out + 5);
  // 4. Σ W_ij (x_i − x_j)² for every input, by a product of matrices
  std::vector<double> weighted(scaled.size());
  add_product<double>({n, p.n_inputs, n, {lower, stride, 1}, rows, nullptr, 1.0, {weighted.data(), p.n_inputs, 1},
                       Part::kAll, Sum::kIsAdded},
                      n_threads);
  const auto weights = matrix(lower, n, stride).leftCols(n).rowwise().sum().eval();
  const auto product = matrix(weighted.data(), n, p.n_inputs);
  array(out + 5 + p.n_rates(), p.n_inputs) =
      -4.0 * (x.square().colwise() * weights - x * product).colwise().sum().transpose();
  return true;
}

}  // namespace pydirect
