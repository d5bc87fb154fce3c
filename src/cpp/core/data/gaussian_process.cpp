#include "pydirect/data/gaussian_process.hpp"

#include <algorithm>
#include <vector>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
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
}  // namespace

void covariance(const CovarianceProblem& p, double* out, int n_threads) {
  const auto covariance_row = kernels().gaussian_process.covariance_row[p.twice_smoothness / 2][p.second_part()];
  for_chunks(p.n, kCovarianceRowsPerChunk, threads_for(p.n, p.n, n_threads), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index row = i * p.stride;
      // A point is at distance zero from itself; rounding must not say otherwise where length-scales are short.
      p.ard[row + i] = p.ard_norm[i];
      p.isotropic[row + i] = p.isotropic_norm[i];
      if (p.n_axes > 0)
        kernels().gaussian_process.axes_row[p.of_pairs]({i + 1, p.n_axes, p.stride, p.axes, i, p.isotropic + row});
      covariance_row({i + 1, p.ard + row, p.isotropic + row, p.linear + row, p.ard_norm, p.isotropic_norm,
                      p.ard_norm[i], p.isotropic_norm[i], p.ard_amplitude, p.isotropic_amplitude, p.linear_amplitude,
                      p.constant, out + row});
      out[row + i] += p.noise[i];
    }
  });
}

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

void covariance_gradient(const CovarianceProblem& p, const double* inverse, const double* alpha,
                         double* distance_weight, double* sums, int n_threads) {
  const Index n_sums = 4 + p.n_axes;
  std::vector<double> row_sums(static_cast<std::size_t>(n_sums * p.n));
  const auto gradient_row = kernels().gaussian_process.gradient_row[p.second_part()];
  n_threads = threads_for(p.n, p.n, n_threads);
  for_chunks(p.n, kCovarianceRowsPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(static_cast<std::size_t>(3 * p.n_axes * kLevelPadding));
    for (Index i = begin; i < end; ++i) {
      const Index row = i * p.stride;
      CovarianceGradientRow task{i + 1,           inverse + row,    alpha,          alpha[i],
                                 p.ard + row,     p.isotropic + row, p.linear + row, p.isotropic_amplitude,
                                 distance_weight + row, {}};
      gradient_row(task);
      double* own_sums = row_sums.data() + n_sums * i;
      // Every pair of the strict lower triangle stands for two entries of the matrix.
      const double m = 0.5 * (inverse[row + i] - alpha[i] * alpha[i]);
      const double own[4] = {m * p.isotropic_amplitude, 0.0, m * p.linear[row + i], m};
      for (int k = 0; k < 4; ++k) own_sums[k] = 2.0 * task.sums[k] - own[k];
      if (p.n_axes == 0) continue;
      kernels().gaussian_process.axes_gradient_row[p.of_pairs](
          {{i + 1, p.n_axes, p.stride, p.axes, i, p.isotropic + row}, scratch.data(), own_sums + 4});
      for (Index k = 4; k < n_sums; ++k) own_sums[k] *= 2.0;
    }
  });
  std::fill(sums, sums + n_sums, 0.0);
  for (Index i = 0; i < p.n; ++i)
    for (Index k = 0; k < n_sums; ++k) sums[k] += row_sums[static_cast<std::size_t>(n_sums * i + k)];
  for_chunks(p.n, 32, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      for (Index k = i + 1; k < p.n; ++k) distance_weight[i * p.stride + k] = distance_weight[k * p.stride + i];
  });
}

}  // namespace pydirect
