// Posterior samples as level indices: integer-only inference, and sums by level of basis functions in floating point.
#pragma once

#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// Indices of basis functions by column and level; a level of zero takes no part.
struct LevelIndex {
  Index n_columns, n_levels;
  std::vector<int> start, index;

  // codes (n_features, n_columns) of the basis functions [begin, end), taken[code] the level's number or −1. Indices
  // count from `begin`.
  LevelIndex(const unsigned char* codes, Index columns, Index begin, Index end, const std::vector<int>& taken,
             Index levels);
};

struct IntegerGroup {
  Index begin, end;
  int gain, shift;
};

// Steps 1 to 3 of integer inference, as the Python package defines them.
struct IntegerProgram {
  Index n_columns_in, n_inputs, n_features, n_columns;
  std::vector<int> columns;
  std::vector<float> origin, multiplier, limit;
  Index n_frequencies;
  std::vector<unsigned> frequencies;
  std::vector<int> linear;
  int linear_limit;
  bool constant;
  std::vector<short> quarter;
  std::vector<IntegerGroup> groups;
  std::vector<LevelIndex> indices;  // one per group
  std::vector<int> levels, shifts;  // shifts are empty unless all levels are ± powers of two

  // x (n_rows, n_columns_in); totals (n_rows, n_columns).
  void run(const double* x, Index n_rows, int* totals, int n_threads) const;
};

// out (n_rows, n_columns) = Σ_j φ_j level(code_j), added level by level.
void float_level_sums(const LevelIndex& index, const std::vector<double>& levels, const double* phi, Index n_rows,
                      Index n_features, double* out, int n_threads);

}  // namespace pydirect
