// The one loop over draws: blocks of rows for chunks of weights, the same numbers for any number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/monte_carlo/divergence.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {

// Shared draw i is draw i / kSharedColumns of weight i mod kSharedColumns.
inline constexpr Index kSharedColumns = 256;

enum : std::uint32_t { kWeightDraws = 0, kRadiusDraws = 1, kSumDraws = 2 };

struct RowsOfDraws {
  Index chunk, n_columns;       // weights chunk·kDrawColumns and after
  Index first_draw, n_draws;
  const double *xi, *log_xi;    // (n_draws, kDrawColumns)
};

inline DrawBlock draw_block_of(const BaseDraws& d, std::uint32_t purpose, Index first_column, Index n_columns,
                               Index first_draw, Index n_draws, double* xi, double* log_xi) {
  return {d.law, d.shape, d.seed, d.epoch, purpose, std::uint32_t(first_column),
          std::uint32_t((d.first_draw + first_draw) / 2), n_columns, (n_draws + 1) / 2, xi, log_xi};
}

// Of the chunks' parts, for the same bits with any number of threads.
inline double sum_in_order(const std::vector<double>& parts) {
  double total = 0.0;
  for (const double part : parts) total += part;
  return total;
}

inline Index n_draw_chunks(Index n_columns) { return (n_columns + kDrawColumns - 1) / kDrawColumns; }

template <class Body>
void for_independent_draws(const BaseDraws& d, Index first_column, Index n_columns, Index n_draws, bool with_logs,
                           int n_threads, const Body& body) {
  for_chunks(n_columns, kDrawColumns, n_threads, [&](Index begin, Index end) {
    double xi[kDrawRows * kDrawColumns], log_xi[kDrawRows * kDrawColumns];
    for (Index i = 0; i < n_draws; i += kDrawRows) {
      const Index rows = std::min(kDrawRows, n_draws - i);
      double* logs = with_logs ? log_xi : nullptr;
      kernels().draws.draw(draw_block_of(d, kWeightDraws, first_column + begin, end - begin, i, rows, xi, logs));
      body(RowsOfDraws{begin / kDrawColumns, end - begin, i, rows, xi, logs});
    }
  });
}

// Directions need the norm over all weights: some rows of the whole tensor at a time, as few as two.
template <class Body>
void for_radial_draws(const BaseDraws& d, int n_threads, const Body& body) {
  const Index n_chunks = n_draw_chunks(d.n_weights), padded = n_chunks * kDrawColumns;
  const Index block = std::clamp<Index>(Index(65536) / padded / 2 * 2, 2, kDrawRows);
  std::vector<double> xi(padded * block), squares(n_chunks * block), factor(block), radius(block * kDrawColumns);
  for (Index i = 0; i < d.n_draws; i += block) {
    const Index rows = std::min(block, d.n_draws - i);
    for_chunks(d.n_weights, kDrawColumns, n_threads, [&](Index begin, Index end) {
      double* part = xi.data() + begin * block;
      kernels().draws.draw(draw_block_of(d, kWeightDraws, begin, end - begin, i, rows, part, nullptr));
      for (Index r = 0; r < rows; ++r)
        squares[begin / kDrawColumns * block + r] =
            kernels().dense.dot(end - begin, part + r * kDrawColumns, part + r * kDrawColumns);
    });
    kernels().draws.draw(draw_block_of(d, kRadiusDraws, 0, 1, i, rows, radius.data(), nullptr));
    for (Index r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (Index chunk = 0; chunk < n_chunks; ++chunk) sum += squares[chunk * block + r];
      factor[r] = std::fabs(radius[r * kDrawColumns]) / std::sqrt(sum);
    }
    for_chunks(d.n_weights, kDrawColumns, n_threads, [&](Index begin, Index end) {
      double* part = xi.data() + begin * block;
      kernels().draws.scale_rows(end - begin, rows, factor.data(), part);
      body(RowsOfDraws{begin / kDrawColumns, end - begin, i, rows, part, nullptr});
    });
  }
}

// Calls body(RowsOfDraws) for all draws of all weights; blocks of one chunk come in order and never at once.
template <class Body>
void for_draws(const BaseDraws& d, bool with_logs, int n_threads, const Body& body) {
  if (d.layout == BaseDraws::Layout::kRadial)
    for_radial_draws(d, n_threads, body);
  else
    for_independent_draws(d, 0, d.n_weights, d.n_draws, with_logs, n_threads, body);
}

}  // namespace pydirect
