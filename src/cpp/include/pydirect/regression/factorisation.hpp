// Cholesky factorisations of precision matrices, also in the order of the smallest pivots, and the diagonal of the
// inverse. The same bits for any instruction set and number of threads.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// M = diag(scale) (matrix_scale · matrix + diag(ridge)) diag(scale); reads the upper triangle of `matrix` (b, b).
struct ScaledMatrix {
  Index n;
  const double* matrix;
  double matrix_scale;
  const double *ridge, *scale;
};

// M[o][:, o] = RᵀR; factor (b, b) must be zero and becomes R, `order` o. Returns the rank: the number of pivots before
// the first that is not positive and finite; the factor is undefined from there. With `pivot` the smallest diagonal
// entry of the remaining Schur complement comes next, of equal ones that of the lowest index.
Index cholesky(const ScaledMatrix& m, bool pivot, double* factor, std::int64_t* order, int n_threads);

// The first of the rows in the order of the largest pivots, at most n_order while these are above `least`: returns how
// many. matrix (n, n): its upper triangle is overwritten; order (n,): what follows them is undefined.
Index largest_pivots(Index n, double* matrix, Index n_order, double least, std::int64_t* order, int n_threads);

// out = diagonal of (RᵀR)⁻¹: squared norms of the rows of R⁻¹.
void inverse_diagonal(Index n, const double* factor, double* out, int n_threads);

}  // namespace pydirect
