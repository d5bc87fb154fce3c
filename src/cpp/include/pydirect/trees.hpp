// Trees whose levels each have one split, fitted to squared errors.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Splits compare the cell of one input: split `column · n_cells + cell` asks whether a row's cell is above `cell`.
struct TreeRows {
  Index n_rows, n_inputs, n_cells, n_outputs;
  const unsigned char* cells;  // (n_rows, n_inputs)
  const bool* is_seen;         // (n_rows,): whether splits are chosen for the row
  const double* weight;        // (n_rows,)
  const double* target;        // (n_rows, n_outputs)
  double ridge;
};

// Choose `depth` splits one by one by the fall of the penalised squared error of the leaves' means; where `splits` has
// `n_given` = depth already, the first of them gives way to each. explained (n_rows, n_outputs): the leaves' means of all
// rows at the rows.
void improve_tree(const TreeRows& rows, Index depth, Index n_given, std::int64_t* splits, double* explained);

}  // namespace pydirect
