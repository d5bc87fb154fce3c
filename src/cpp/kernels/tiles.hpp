// Dense products and triangular solves in tiles: kernels of tiles-inl.hpp. Every entry is accumulated by fused
// multiply-adds, one after another along the inner axis: vectors, tiles and threads never enter its bits.
// Panels hold `height` rows or `width` columns side by side, [⌈n/width⌉][n_inner][width], filled up with zeros.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Whether sums go on from what is there, or begin with zero and are added to it: long sums lose fewer digits so.
enum class Sum { kGoesOn, kIsAdded };

// c (n_rows, n_columns) += a b
template <class T>
struct TileBlock {
  Index n_rows, n_columns, n_inner;
  const T* a;      // panels of rows, n_inner · height apart
  const T* b;      // panels of columns, b_panel apart
  Index b_panel;
  T* c;
  Index c_row;
  Index diagonal;  // tiles whose entries all have row > column + diagonal are left out
  Sum sum;
};

// n vectors side by side, (n, n_inner), times the factor of each place of the inner axis.
template <class T>
struct Packing {
  Index n, n_inner;
  const T* data;
  Index stride, inner_stride;
  const T* factor;  // (n_inner,) or null: `sign` alone
  T sign;
};

// y_i += sign Σ_k a_ik x_k
template <class T>
struct RowProduct {
  Index n_rows, n_inner;
  const T* a;
  Index a_row, a_inner;
  const T* x;
  Index x_stride;
  T* y;
  Index y_stride;
  T sign;
  Sum sum;
};

template <class T>
struct TileKernels {
  void (*shape)(Index* height, Index* width);
  void (*pack_rows)(const Packing<T>&, T* out);
  void (*pack_columns)(const Packing<T>&, T* out);
  void (*multiply)(const TileBlock<T>&);
  // x (n, width) ← L⁻¹x. The triangle holds −L in panels of rows, the s-th s + 1 heights long.
  void (*solve)(Index n, const T* triangle, T* x);
  // The upper triangle becomes R with A = RᵀR; what is below it is undefined. Returns the number of positive, finite
  // pivots before the first that is not. n at most kSmallBlock.
  Index (*factorise)(Index n, T* a, Index stride);
  void (*row_product)(const RowProduct<T>&);
};

inline constexpr Index kSmallBlock = 32;

}  // namespace pydirect
