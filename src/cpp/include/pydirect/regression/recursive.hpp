// Rows that change the Gaussian posterior N(m, S) one after another: recursive least squares. The same bits for any
// instruction set.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// S = S_0 − Σ_i s_i d_i d_iᵀ over `n_earlier` rows.
struct RecursiveRows {
  Index n_rows, n_weights, n_earlier;
  const double *phi, *y, *weight;  // (n_rows, n_weights), (n_rows,), (n_rows,): negative to remove a row, never zero
  double noise_variance;
  double* directions;  // (≥ n_earlier + n_rows, n_weights): earlier d, then S_0φ of the new rows, which become theirs
  double* signs;       // s of all these
  double* mean;        // m, (n_weights,)
  double *f_mean, *f_variance;  // (n_rows,): of f before each row's turn
};

// False if a row to be removed cannot have been added; what is left of the new rows and of m is then undefined.
bool recursive_update(const RecursiveRows& rows);

}  // namespace pydirect
