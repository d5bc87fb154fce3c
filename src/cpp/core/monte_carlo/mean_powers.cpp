// Draws reduced to means of powers as they are made (spec of the sums: Nazarovs et al. 2021, theorems 1 and 2).
#include "draw_loop.hpp"

namespace pydirect {
namespace {

bool needs_logs(const Exponents& e) {
  for (std::size_t k = 0; k < e.exponents.size(); ++k)
    if (e.exponents[k] != -1.0 && (e.exponents[k] < 0.0 || e.exponents[k] != std::floor(e.exponents[k]))) return true;
  return e.n_logs > 0;
}

Index n_integers(const Exponents& e) {
  Index n = 0;
  while (n < Index(e.exponents.size()) && e.exponents[n] > 0.0 && e.exponents[n] == std::floor(e.exponents[n])) ++n;
  return n;
}

void add_powers(const Exponents& e, Index integers, const RowsOfDraws& rows, double* sums) {
  kernels().draws.add_power_sums({rows.n_columns, rows.n_draws, rows.xi, rows.log_xi, Index(e.exponents.size()),
                                  integers, e.exponents.data(), e.n_logs, sums});
}

}  // namespace

void mean_powers(const BaseDraws& d, const Exponents& e, double* out, int n_threads) {
  const Index n_sums = e.n_sums(), integers = n_integers(e), table = n_sums * kDrawColumns;
  const bool logs = needs_logs(e), shared = d.layout == BaseDraws::Layout::kShared;
  const Index n_chunks = n_draw_chunks(shared ? kSharedColumns : d.n_weights);
  std::vector<double> sums(n_chunks * table);
  if (shared) {
    const Index each = d.n_draws / kSharedColumns, rest = d.n_draws % kSharedColumns;
    const auto add = [&](Index first_chunk) {
      return [&, first_chunk](const RowsOfDraws& rows) {
        add_powers(e, integers, rows, sums.data() + (first_chunk + rows.chunk) * table);
      };
    };
    for_independent_draws(d, 0, kSharedColumns, each, logs, n_threads, add(0));
    // One draw more of the first weights: the second of a pair where `each` is odd.
    for_chunks(rest, kDrawColumns, 1, [&](Index begin, Index end) {
      double xi[2 * kDrawColumns], log_xi[2 * kDrawColumns];
      kernels().draws.draw(
          draw_block_of(d, kWeightDraws, begin, end - begin, each, 1, xi, logs ? log_xi : nullptr));
      const Index row = each % 2 * kDrawColumns;
      // Columns beyond the last one are summed with their pack; only the first `rest` count below.
      std::vector<double> one(table);
      add_powers(e, integers, {0, end - begin, each, 1, xi + row, logs ? log_xi + row : nullptr}, one.data());
      matrix(sums.data() + begin / kDrawColumns * table, n_sums, kDrawColumns).leftCols(end - begin) +=
          matrix(one.data(), n_sums, kDrawColumns).leftCols(end - begin);
    });
    for (Index k = 0; k < n_sums; ++k) {
      double total = 0.0;
      for (Index chunk = 0; chunk < n_chunks; ++chunk)
        for (Index c = 0; c < kDrawColumns; ++c) total += sums[chunk * table + k * kDrawColumns + c];
      out[k] = total / double(d.n_draws);
    }
    return;
  }
  for_draws(d, logs, n_threads,
            [&](const RowsOfDraws& rows) { add_powers(e, integers, rows, sums.data() + rows.chunk * table); });
  for_chunks(d.n_weights, kDrawColumns, n_threads, [&](Index begin, Index end) {
    const double* chunk = sums.data() + begin / kDrawColumns * table;
    matrix(out, n_sums, d.n_weights).middleCols(begin, end - begin) =
        matrix(chunk, n_sums, kDrawColumns).leftCols(end - begin) / double(d.n_draws);
  });
}

void mean_powers_of_normals(const BaseDraws& d, double* out, int n_threads) {
  const double M = double(d.n_draws);
  BaseDraws chi_square = d;
  chi_square.law = BaseLaw::kGamma;
  chi_square.shape = 0.5 * (M - 1.0);
  for_chunks(d.n_weights, kDrawColumns, n_threads, [&](Index begin, Index end) {
    double z[2 * kDrawColumns], half[2 * kDrawColumns] = {};
    kernels().draws.draw(draw_block_of(d, kSumDraws, begin, end - begin, 0, 1, z, nullptr));
    if (d.n_draws > 1)
      kernels().draws.draw(draw_block_of(chi_square, kWeightDraws, begin, end - begin, 0, 1, half, nullptr));
    for (Index c = begin; c < end; ++c) {
      const double mean = z[c - begin] / std::sqrt(M);
      out[c] = mean;
      out[d.n_weights + c] = mean * mean + 2.0 * half[c - begin] / M;
    }
  });
}

void base_draws(const BaseDraws& d, double* out, int n_threads) {
  if (d.layout == BaseDraws::Layout::kShared) {
    for_chunks(std::min(d.n_draws, kSharedColumns), kDrawColumns, n_threads, [&](Index begin, Index end) {
      double xi[2 * kDrawColumns];
      for (Index i = 0; i * kSharedColumns + begin < d.n_draws; ++i) {
        if (i % 2 == 0)
          kernels().draws.draw(draw_block_of(d, kWeightDraws, begin, end - begin, i, 2, xi, nullptr));
        for (Index c = begin; c < end && i * kSharedColumns + c < d.n_draws; ++c)
          out[i * kSharedColumns + c] = xi[i % 2 * kDrawColumns + c - begin];
      }
    });
    return;
  }
  for_draws(d, false, n_threads, [&](const RowsOfDraws& rows) {
    for (Index i = 0; i < rows.n_draws; ++i)
      std::copy_n(rows.xi + i * kDrawColumns, rows.n_columns,
                  out + (rows.first_draw + i) * d.n_weights + rows.chunk * kDrawColumns);
  });
}

}  // namespace pydirect
