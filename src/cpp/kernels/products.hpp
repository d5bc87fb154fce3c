// Products of matrices whose columns lie in runs of eight: arguments and kernels of products-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// c = a b, or increased by it, for any n_rows, n_inner and n_columns. Every b and every c holds its columns in runs of
// eight (8 of panel stride: row by row); b may be read, but is not used, up to the end of its last run.
struct MatrixProduct {
  Index n_rows, n_inner, n_columns;
  const double* a;
  Index a_row, a_inner, a_block;  // entry (i, k) stands at i a_row + ⌊k/8⌋ a_block + (k mod 8) a_inner
  const double* b;
  Index b_inner, b_panel;
  double* c;
  Index c_row, c_panel;
  bool accumulate;
  bool upper_only;  // entries below the diagonal may or may not be computed
};

struct ProductKernels {
  void (*matrix)(const MatrixProduct&);
  // The same between matrices in panels: a_row, b_inner and c_row are 8, a_inner is 1, n_columns a multiple of 8.
  void (*panels)(const MatrixProduct&);
  // out = inᵀ, [⌈n_units/8⌉][8 n_panels][8], zero where there is no unit.
  void (*transpose_panels)(Index n_units, Index n_panels, const double* in, Index stride, double* out);
};

}  // namespace pydirect
