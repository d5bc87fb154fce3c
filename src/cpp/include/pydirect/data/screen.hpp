// Effects of pairs of columns: sums of squares between the cells of two columns of classes.
#pragma once

#include <cstdint>

#include "pydirect/types.hpp"

namespace pydirect {

inline constexpr Index kMostClasses = 6;  // of a column

struct PairScreen {
  Index n_rows, n_columns, n_outputs, n_classes;
  const std::uint8_t* classes;  // (n_columns, n_rows), below n_classes
  const double* y;              // (n_outputs, n_rows)
};

// Symmetric, both triangles filled: between (n_outputs, n_columns, n_columns), Σ over cells of (Σ y)²/count, and cells
// (n_columns, n_columns), the number of those that hold rows. Diagonals are not touched.
void pair_screen(const PairScreen& problem, double* between, std::int32_t* cells, int n_threads);

}  // namespace pydirect
