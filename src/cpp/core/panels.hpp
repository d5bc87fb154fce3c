// Matrices in panels of eight columns, [⌈columns/8⌉][rows][8], as the kernels of products.hpp take them.
#pragma once

#include <algorithm>

#include "pydirect/types.hpp"

namespace pydirect {

inline constexpr Index kLanes = 8;

inline Index n_panels(Index n) { return (n + kLanes - 1) / kLanes; }
inline Index padded(Index n) { return n_panels(n) * kLanes; }

// out, in panels, = in (n_rows, n_columns) of a stride from row to row; lanes beyond the last column are zero.
inline void pack(Index n_rows, Index n_columns, const double* in, Index stride, double* out) {
  for (Index column = 0; column < n_columns; column += kLanes) {
    const Index n = std::min(kLanes, n_columns - column);
    for (Index i = 0; i < n_rows; ++i, out += kLanes) {
      const double* from = in + i * stride + column;
      if (n == kLanes) {  // a length known to the compiler: moves of vectors instead of a call
        std::copy_n(from, kLanes, out);
      } else {
        for (Index q = 0; q < kLanes; ++q) out[q] = q < n ? from[q] : 0.0;
      }
    }
  }
}

// The same of the transpose (n_columns, n_rows).
inline void pack_transposed(Index n_rows, Index n_columns, const double* in, Index stride, double* out) {
  for (Index row = 0; row < n_rows; row += kLanes) {
    const Index n = std::min(kLanes, n_rows - row);
    for (Index k = 0; k < n_columns; ++k, out += kLanes)
      for (Index q = 0; q < kLanes; ++q) out[q] = q < n ? in[(row + q) * stride + k] : 0.0;
  }
}

inline void unpack(Index n_rows, Index n_columns, const double* in, double* out) {
  for (Index k = 0; k < n_columns; k += kLanes, in += n_rows * kLanes) {
    const Index n = std::min(kLanes, n_columns - k);
    for (Index i = 0; i < n_rows; ++i) {
      if (n == kLanes)
        std::copy_n(in + i * kLanes, kLanes, out + i * n_columns + k);
      else
        std::copy_n(in + i * kLanes, n, out + i * n_columns + k);
    }
  }
}

}  // namespace pydirect
