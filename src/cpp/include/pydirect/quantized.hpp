// Posterior samples as level indices: integer-only inference.
#pragma once

#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// Indices of basis functions by column and level; a level of zero takes no part.
struct LevelIndex {
  Index n_columns, n_levels;
  std::vector<int> start, index;

  // codes (n_features, n_columns), taken[code] the level's number or −1.
  LevelIndex(const unsigned char* codes, Index n_features, Index columns, const std::vector<int>& taken, Index levels);
};

// Steps 1 to 3 of integer inference, as the Python package defines them.
struct IntegerProgram {
  Index n_columns_in, n_inputs;
  std::vector<int> columns;
  std::vector<float> origin, multiplier;
  int limit;
  Index n_frequencies;
  std::vector<unsigned> frequencies;
  std::vector<int> linear;
  std::vector<int> gain;  // of every basis function; those after the linear ones are constant
  LevelIndex index;
  std::vector<int> levels;
  int total_shift;

  // x (n_rows, n_columns_in); totals (n_rows, n_columns).
  void run(const double* x, Index n_rows, int* totals, int n_threads) const;
};

}  // namespace pydirect
