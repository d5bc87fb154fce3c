// Dense loops on rows: kernels of dense-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

struct DenseKernels {
  // y = A x for symmetric A, reading the lower triangle only.
  void (*symv)(Index n, const float* a, Index lda, const float* x, float* y);
  double (*dot)(Index n, const double* x, const double* y);
  // mean_i = phi_i^T weight, variance_i = (phi_i²)^T spread for rows of phi.
  void (*row_moments)(Index n_rows, Index n_columns, const double* rows, Index stride, const double* weight,
                      const double* spread, double* mean, double* variance);
  // Element-wise, with defined edges.
  void (*exp)(Index n, const double* x, double* out);
  void (*log)(Index n, const double* x, double* out);  // positive normal numbers
};

// Rows of T, sums in double.
template <class T>
struct RowKernels {
  // y = rows of A times x.
  void (*gemv)(Index begin, Index end, Index n, const T* a, Index lda, const double* x, double* y);
  // out += rowsᵀ y over a block of rows.
  void (*add_transposed)(Index n_rows, Index n_columns, const T* rows, Index stride, const double* y, double* out);
  // out += in
  void (*add)(Index n, const T* in, double* out);
  // out += in + factor shift
  void (*add_shifted)(Index n, const T* in, double factor, const double* shift, double* out);
};

}  // namespace pydirect
