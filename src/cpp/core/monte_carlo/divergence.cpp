// Divergences and their slopes, given means of powers or draw by draw.
#include "draw_loop.hpp"

namespace pydirect {
namespace {

constexpr Index kWeightsPerChunk = 2048;

}  // namespace

double divergence_from_sums(const LogDensity& p, Index n_weights, const double* location, const double* scale,
                            const double* sums, bool shared, double* location_slope, double* scale_slope,
                            int n_threads) {
  const Index n_sums = p.kind == LogDensity::Kind::kPowers ? p.n_powers + p.n_logs : p.degree;
  std::vector<double> everywhere(shared ? n_sums * kWeightsPerChunk : 0);
  if (shared)
    for (Index k = 0; k < n_sums; ++k)
      std::fill_n(everywhere.data() + k * kWeightsPerChunk, kWeightsPerChunk, sums[k]);
  std::vector<double> parts((n_weights + kWeightsPerChunk - 1) / kWeightsPerChunk);
  for_chunks(n_weights, kWeightsPerChunk, n_threads, [&](Index begin, Index end) {
    parts[begin / kWeightsPerChunk] = kernels().divergence.from_sums(
        p, {end - begin, location ? location + begin : nullptr, scale + begin,
            shared ? everywhere.data() : sums + begin, shared ? kWeightsPerChunk : n_weights,
            location_slope ? location_slope + begin : nullptr, scale_slope + begin});
  });
  return sum_in_order(parts);
}

double divergence_from_draws(const LogDensity& p, const BaseDraws& d, bool exponential, const double* location,
                             const double* scale, double* location_slope, double* scale_slope, int n_threads) {
  const Index n_weights = d.n_weights, n_chunks = n_draw_chunks(n_weights), padded = n_chunks * kDrawColumns;
  // μ, σ, and the sums of values, slopes and slopes times draws.
  std::vector<double> memory(5 * padded);
  double *mu = memory.data(), *sigma = mu + padded, *value = sigma + padded, *slope = value + padded,
         *product = slope + padded;
  if (location) std::copy_n(location, n_weights, mu);
  std::fill_n(sigma, padded, 1.0);
  std::copy_n(scale, n_weights, sigma);
  const bool with_logs = p.kind == LogDensity::Kind::kPowers && !exponential;
  for_draws(d, with_logs, n_threads, [&](const RowsOfDraws& rows) {
    const Index at = rows.chunk * kDrawColumns;
    kernels().divergence.add_log_densities(p, {rows.n_columns, rows.n_draws, exponential, mu + at, sigma + at, rows.xi,
                                    rows.log_xi, value + at, slope + at, product + at});
  });
  std::vector<double> parts(n_chunks);
  for_chunks(n_weights, kDrawColumns, n_threads, [&](Index begin, Index end) {
    const double each = 1.0 / double(d.n_draws);
    double total = 0.0;
    for (Index j = begin; j < end; ++j) {
      total -= std::log(scale[j]) + value[j] * each;
      if (location_slope) location_slope[j] = -slope[j] * each;
      scale_slope[j] = -1.0 / scale[j] - product[j] * each;
    }
    parts[begin / kDrawColumns] = total;
  });
  return sum_in_order(parts);
}

}  // namespace pydirect
