// Products of matrices stored in any way whose columns lie in runs of eight: row by row, or in panels of eight columns.
// Each entry is summed in the order of the contraction, hence the same bits on every level.

// c (R × 8) = a (R × n_inner) b (n_inner × 8), `width` native vectors at a time, as in product-inl.hpp.
template <int R, int width>
PYDIRECT_INLINE void matrix_tile(const MatrixProduct& p, const double* a, const double* b, double* c, Index c_row) {
  typedef PackD::vector vector;
  typedef vector unaligned __attribute__((aligned(sizeof(double)), may_alias));
  constexpr int lanes = PackD::lanes / PackD::parts;
  vector sum[R][width];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      sum[r][w] = p.accumulate ? *reinterpret_cast<const unaligned*>(c + r * c_row + w * lanes) : vector{};
  }
  const auto step = [&](const double* ak, const double* bk) __attribute__((always_inline)) {
    vector bw[width];
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w) bw[w] = *reinterpret_cast<const unaligned*>(bk + w * lanes);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const vector ar = ak[r * p.a_row] - vector{};
      PYDIRECT_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = sum[r][w] + ar * bw[w];
    }
  };
  Index k = 0;
  for (; k + PackD::lanes <= p.n_inner; k += PackD::lanes, a += p.a_block) {
    _Pragma("GCC unroll 1") for (int q = 0; q < PackD::lanes; ++q, b += p.b_inner) step(a + q * p.a_inner, b);
  }
  for (; k < p.n_inner; ++k, a += p.a_inner, b += p.b_inner) step(a, b);
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      *reinterpret_cast<unaligned*>(c + r * c_row + w * lanes) = sum[r][w];
  }
}

template <int R>
void matrix_rows(const MatrixProduct& p, const double* a, const double* b, double* c, Index n_columns) {
  constexpr int width = PackD::parts < 2 ? 1 : 2;
  constexpr int lanes = PackD::lanes / PackD::parts;
  double padded[R * PackD::lanes] = {};
  const bool whole = n_columns >= PackD::lanes;
  if (!whole && p.accumulate)
    for (int r = 0; r < R; ++r)
      for (Index q = 0; q < n_columns; ++q) padded[r * PackD::lanes + q] = c[r * p.c_row + q];
  if (!whole && n_columns <= lanes) {
    matrix_tile<R, 1>(p, a, b, padded, PackD::lanes);
  } else {
    for (int part = 0; part < PackD::parts; part += width) {
      double* out = (whole ? c : padded) + part * lanes;
      matrix_tile<R, width>(p, a, b + part * lanes, out, whole ? p.c_row : Index(PackD::lanes));
    }
  }
  if (whole) return;
  for (int r = 0; r < R; ++r)
    for (Index q = 0; q < n_columns; ++q) c[r * p.c_row + q] = padded[r * PackD::lanes + q];
}

// Rows are split into tiles of nearly equal heights, six at most.
void matrix_product(const MatrixProduct& p) {
  constexpr Index highest = 6;
  const Index n_tiles = (p.n_rows + highest - 1) / highest;
  // As many rows of a at once as the second-level cache holds beside the panels of b.
  const Index kept = 192 * 1024 / Index(sizeof(double));
  const Index per_pass = kept / (highest * (p.n_inner + 1)) + 1;
  for (Index first = 0; first < n_tiles; first += per_pass) {
    const Index last = first + per_pass < n_tiles ? first + per_pass : n_tiles;
    for (Index column = 0; column < p.n_columns; column += PackD::lanes) {
      const Index panel = column / PackD::lanes;
      const double* b = p.b + panel * p.b_panel;
      for (Index t = first; t < last; ++t) {
        const Index begin = t * p.n_rows / n_tiles, end = (t + 1) * p.n_rows / n_tiles;
        if (p.upper_only && begin >= column + PackD::lanes) break;
        const double* a = p.a + begin * p.a_row;
        double* c = p.c + panel * p.c_panel + begin * p.c_row;
        const Index n_columns = p.n_columns - column;
        switch (end - begin) {
          case 1: matrix_rows<1>(p, a, b, c, n_columns); break;
          case 2: matrix_rows<2>(p, a, b, c, n_columns); break;
          case 3: matrix_rows<3>(p, a, b, c, n_columns); break;
          case 4: matrix_rows<4>(p, a, b, c, n_columns); break;
          case 5: matrix_rows<5>(p, a, b, c, n_columns); break;
          case 6: matrix_rows<6>(p, a, b, c, n_columns); break;
        }
      }
    }
  }
}
