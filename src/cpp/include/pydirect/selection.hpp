// Columns chosen for a ridge regression, one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// Columns k and n_pairs + k of Φ are taken together, at the cost of a pair, the others alone; the last one, the constant,
// always. The squared error of all outputs must fall by more than `least` per column.
struct Selection {
  Index n_columns, n_outputs, n_pairs;
  const double* a;  // (n_columns, n_columns): ΦᵀΦ
  const double* c;  // (n_columns, n_outputs): Φᵀy
  double ridge, pair_cost, single_cost, least;
};

// Choose at most `most` pairs and single columns, by the fall of the penalised squared error beyond `least` per cost; at
// least one is a pair, whatever `most`. Single columns are counted from n_pairs on.
std::vector<std::int64_t> select_columns(const Selection& selection, Index most);

}  // namespace pydirect
