// Sums over data points, accumulated in double precision.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// total (n, n) += block (n, n) on and above the diagonal.
template <class T>
void add_upper_triangle(Index n, const T* block, double* total, int n_threads);

// total (n, n) += block (n, n) + factor shift shiftᵀ on and above the diagonal: sums about two means become sums about
// the common one when shift is the difference of the means (Chan, Golub & LeVeque 1979).
template <class T>
void merge_upper_triangle(Index n, const T* block, double factor, const double* shift, double* total, int n_threads);

// Copies the upper triangle to the lower one.
void mirror_upper_triangle(Index n, double* matrix, int n_threads);

// out (n_columns,) += rowsᵀ y.
template <class T>
void add_transposed_product(Index n_rows, Index n_columns, const T* rows, const double* y, double* out);

// mean (n_rows,) = rows · weight, variance = rows² · spread.
void row_moments(Index n_rows, Index n_columns, const double* rows, const double* weight, const double* spread,
                 double* mean, double* variance, int n_threads);

}  // namespace pydirect
