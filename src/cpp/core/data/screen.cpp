#include "pydirect/data/screen.hpp"

#include <vector>

#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kMostCells = kMostClasses * kMostClasses;
// Rows next to each other are added to different tables: a sum must not wait for the one before it.
constexpr Index kTables = 4;

struct Table {
  double sums[kTables][kMostCells];
};

// One table per remainder of the row's number; added up in order.
void sum_by_cell(Index n, const std::uint8_t* cell, const double* y, Index n_cells, double* out) {
  Table t = {};
  Index i = 0;
  for (; i + kTables <= n; i += kTables)
    for (Index k = 0; k < kTables; ++k) t.sums[k][cell[i + k]] += y[i + k];
  for (; i < n; ++i) t.sums[0][cell[i]] += y[i];
  for (Index c = 0; c < n_cells; ++c) out[c] = (t.sums[0][c] + t.sums[1][c]) + (t.sums[2][c] + t.sums[3][c]);
}

void count_by_cell(Index n, const std::uint8_t* cell, Index n_cells, double* out) {
  std::int32_t counts[kTables][kMostCells] = {};
  Index i = 0;
  for (; i + kTables <= n; i += kTables)
    for (Index k = 0; k < kTables; ++k) ++counts[k][cell[i + k]];
  for (; i < n; ++i) ++counts[0][cell[i]];
  for (Index c = 0; c < n_cells; ++c) out[c] = counts[0][c] + counts[1][c] + counts[2][c] + counts[3][c];
}

}  // namespace

void pair_screen(const PairScreen& p, double* between, std::int32_t* cells, int n_threads) {
  const Index n = p.n_rows, d = p.n_columns, n_cells = p.n_classes * p.n_classes;
  for_chunks(d, 1, n_threads, [&](Index first, Index) {
    std::vector<std::uint8_t> cell(static_cast<std::size_t>(n));
    double counts[kMostCells], sums[kMostCells];
    const std::uint8_t* own = p.classes + first * n;
    for (Index other = first + 1; other < d; ++other) {
      const std::uint8_t* theirs = p.classes + other * n;
      for (Index i = 0; i < n; ++i)
        cell[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(own[i] * p.n_classes + theirs[i]);
      count_by_cell(n, cell.data(), n_cells, counts);
      std::int32_t used = 0;
      for (Index c = 0; c < n_cells; ++c) used += counts[c] > 0;
      cells[first * d + other] = cells[other * d + first] = used;
      for (Index k = 0; k < p.n_outputs; ++k) {
        sum_by_cell(n, cell.data(), p.y + k * n, n_cells, sums);
        double total = 0.0;
        for (Index c = 0; c < n_cells; ++c)
          if (counts[c] > 0) total += sums[c] * sums[c] / counts[c];
        double* out = between + k * d * d;
        out[first * d + other] = out[other * d + first] = total;
      }
    }
  });
}

}  // namespace pydirect
