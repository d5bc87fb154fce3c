// Triangular factorisations of matrices in panels of eight columns, [⌈columns/8⌉][rows][8]: kernels of
// factorisation-inl.hpp. A "group" is eight columns side by side.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// The next row of a factor in pivoted order: row ← (row − Σ_m coefficient_m earlier_m) / pivot.
struct PivotedRow {
  Index n_earlier;  // rows of the panel that are finished
  const double* coefficient;
  double* panel;  // groups; the new row follows the earlier ones
  Index group_stride;
  double* row;  // of the matrix; the last group may be cut off
  Index n_columns;
  double inverse_pivot;
  double* diagonal;  // Schur complement: less the squares of the new row; beyond n_columns infinite, times the sign
  double sign;       // ±1: of the next pivot, the least diagonal times it
};

struct FactorisationKernels {
  // c −= aᵀb for eight columns a (n_inner × 8) and n_groups groups of b.
  void (*subtract_product)(Index n_inner, const double* a, Index n_groups, const double* b, Index b_group, double* c,
                           Index c_row, Index c_group);
  // Eight rows x ← R⁻ᵀx; r (8 × 8) upper, its diagonal given by its inverses.
  void (*solve)(const double* r, const double* inverse_diagonal, Index n_groups, double* x, Index x_group);
  // Returns the smallest entry of the new diagonal.
  double (*pivoted_row)(const PivotedRow&);
  // out (8) += squared norms of eight columns
  void (*add_squared_norms)(Index n_rows, const double* columns, double* out);
};

}  // namespace pydirect
