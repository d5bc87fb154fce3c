// Piecewise polynomial log-densities: which draws lie in which piece is a rank among the sorted draws.
#include "draw_loop.hpp"

namespace pydirect {

SortedDraws::SortedDraws(const BaseDraws& d, Index degree, int n_threads)
    : n_draws_(d.n_draws), n_columns_(d.n_columns()), degree_(degree), sorted_(n_columns_ * n_draws_),
      sums_(n_columns_ * degree * (n_draws_ + 1)) {
  if (n_columns_ == 1)
    base_draws(d, sorted_.data(), n_threads);
  else
    for_draws(d, false, n_threads, [&](const RowsOfDraws& rows) {
      for (Index c = 0; c < rows.n_columns; ++c) {
        double* xi = sorted_.data() + (rows.chunk * kDrawColumns + c) * n_draws_ + rows.first_draw;
        for (Index i = 0; i < rows.n_draws; ++i) xi[i] = rows.xi[i * kDrawColumns + c];
      }
    });
  for_chunks(n_columns_, 8, n_threads, [&](Index begin, Index end) {
    for (Index j = begin; j < end; ++j) {
      double *xi = sorted_.data() + j * n_draws_, *sum = sums_.data() + j * degree_ * (n_draws_ + 1);
      std::sort(xi, xi + n_draws_);
      for (Index i = 0; i < n_draws_; ++i) {
        double power = 1.0;
        for (Index k = 0; k < degree_; ++k) {
          power *= xi[i];
          double* at = sum + k * (n_draws_ + 1) + i;
          at[1] = at[0] + power;
        }
      }
    }
  });
}

double SortedDraws::divergence(const LogDensity& p, Index n_weights, const double* location, const double* scale,
                               double* location_slope, double* scale_slope, int n_threads) const {
  constexpr Index kChunk = 256;
  std::vector<double> parts((n_weights + kChunk - 1) / kChunk);
  for_chunks(n_weights, kChunk, n_threads, [&](Index begin, Index end) {
    double total = 0.0, q[kMostSums + 1];
    for (Index j = begin; j < end; ++j) {
      const Index column = n_columns_ == 1 ? 0 : j;
      const double *xi = sorted_.data() + column * n_draws_, *sums = sums_.data() + column * degree_ * (n_draws_ + 1);
      const double mu = location ? location[j] : 0.0, sigma = scale[j], A = mu - p.centre;
      double value = 0.0, slope = 0.0, product = 0.0;
      Index from = 0;
      for (Index piece = 0; piece <= p.n_knots; ++piece) {
        Index to = n_draws_;
        if (piece < p.n_knots)
          to = std::partition_point(xi + from, xi + n_draws_, [&](double x) {
                 return !(p.knots[piece] < (mu + sigma * x) - p.centre);
               }) - xi;
        // p⁽ʲ⁾(A)/j!
        const double* coefficient = p.coefficients + piece * (p.degree + 1);
        for (Index k = 0; k <= p.degree; ++k) q[k] = coefficient[k];
        for (Index k = 0; k < p.degree; ++k)
          for (Index l = p.degree - 1; l >= k; --l) q[l] += A * q[l + 1];
        double power = 1.0, sum = double(to - from);
        for (Index k = 0; k <= p.degree; ++k) {
          if (k > 0) {
            const double* at = sums + (k - 1) * (n_draws_ + 1);
            sum = at[to] - at[from];
            product += double(k) * power * sum * q[k];
            power *= sigma;
          }
          value += power * sum * q[k];
          if (k < p.degree) slope += double(k + 1) * power * sum * q[k + 1];
        }
        from = to;
      }
      const double each = 1.0 / double(n_draws_);
      total -= std::log(sigma) + value * each;
      if (location_slope) location_slope[j] = -slope * each;
      scale_slope[j] = -1.0 / sigma - product * each;
    }
    parts[begin / kChunk] = total;
  });
  return sum_in_order(parts);
}

}  // namespace pydirect
