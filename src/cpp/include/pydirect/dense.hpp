// Dense products, Cholesky factorisations and triangular solves with one result: the same bits for any instruction set,
// number of threads, batch and layout. Every entry is a chain of fused multiply-adds in the order of the inner axis: of a
// product one for each 256 places, added in order. For T float and double.
#pragma once

#include "kernels/tiles.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

// Element (i, j) at data[i · row + j · column]; strides may be negative.
template <class T>
struct Strided {
  T* data;
  Index row, column;

  T& operator()(Index i, Index j) const { return data[i * row + j * column]; }
  Strided from(Index i, Index j) const { return {data + i * row + j * column, row, column}; }
  Strided transposed() const { return {data, column, row}; }
};

enum class Part { kAll, kUpper };

// c (n_rows, n_columns), one of whose strides is 1, += sign a (n_rows, n_inner) diag(weight) b (n_inner, n_columns).
// Entries of a are multiplied by the weights first. With kUpper, what is below the diagonal of c is undefined.
template <class T>
struct DenseProduct {
  Index n_rows, n_columns, n_inner;
  Strided<const T> a, b;
  const T* weight;  // (n_inner,) or null
  T sign;
  Strided<T> c;
  Part part;
  Sum sum;  // of each 256 places
};

template <class T>
void add_product(const DenseProduct<T>& p, int n_threads);

// The upper triangle of a (n, n), row by row, becomes R with A = RᵀR, and zeros below it. Returns the number of pivots
// before the first that is not positive and finite; the factor is undefined from there.
template <class T>
Index factorise(Index n, T* a, Index row, int n_threads);

// The upper factor R of A = RᵀR (n, n), row by row, becomes A⁻¹ on and above the diagonal; what is below it is zero or
// undefined. lower (n, n), of the same stride from row to row: becomes R⁻ᵀ on and below the diagonal.
template <class T>
void invert_factored(Index n, T* factor, T* lower, Index row, int n_threads);

// x (n, m), one of whose strides is 1, ← L⁻¹x for the lower triangle of l (n, n).
template <class T>
void solve_lower(Index n, Index m, const Strided<const T>& l, const Strided<T>& x, int n_threads);

}  // namespace pydirect
