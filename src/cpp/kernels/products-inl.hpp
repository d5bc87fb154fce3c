// Products of matrices whose columns lie in runs of eight: row by row, or in panels. A (units × m) matrix in panels is
// stored as [⌈m/8⌉][units][8]: eight columns lie side by side, so that every access is a whole pack and a panel is
// contiguous whatever the size of the matrix.
// Each entry of a product is summed in the order of the contraction, hence the same bits on every level.

// c (R × 8) = a (R × n_inner) b (n_inner × 8), `width` native vectors of the eight lanes at a time: twelve accumulators
// leave the sixteen registers of AVX2 room for two vectors of b, an entry of a and a product. Between panels the
// compiler knows the strides.
template <int R, int width, bool panels>
PYDIRECT_INLINE void product_tile(const MatrixProduct& p, const double* a, const double* b, double* c, Index c_stride) {
  typedef PackD::vector vector;
  typedef vector unaligned __attribute__((aligned(sizeof(double)), may_alias));
  constexpr int lanes = PackD::lanes / PackD::parts;
  const Index n_inner = p.n_inner, a_block = p.a_block;
  const Index a_row = panels ? PackD::lanes : p.a_row, a_inner = panels ? 1 : p.a_inner;
  const Index b_inner = panels ? PackD::lanes : p.b_inner, c_row = panels ? PackD::lanes : c_stride;
  vector sum[R][width];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      sum[r][w] = p.accumulate ? *reinterpret_cast<const unaligned*>(c + r * c_row + w * lanes) : vector{};
  }
  const auto step = [&](const double* ak, const double* bk) __attribute__((always_inline)) {
    vector bw[width];
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w) bw[w] = *reinterpret_cast<const unaligned*>(bk + w * lanes);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const vector ar = ak[r * a_row] - vector{};
      PYDIRECT_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = sum[r][w] + ar * bw[w];
    }
  };
  // Not unrolled: GCC would move all loads to the front and keep the accumulators in memory.
  Index k = 0;
  for (; k + PackD::lanes <= n_inner; k += PackD::lanes, a += a_block) {
    if constexpr (panels)
      PYDIRECT_UNROLL for (int r = 0; r < R; ++r) __builtin_prefetch(a + 2 * a_block + r * a_row);
    _Pragma("GCC unroll 1") for (int q = 0; q < PackD::lanes; ++q, b += b_inner) step(a + q * a_inner, b);
  }
  for (; k < n_inner; ++k, a += a_inner, b += b_inner) step(a, b);
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      *reinterpret_cast<unaligned*>(c + r * c_row + w * lanes) = sum[r][w];
  }
}

// Columns of c beyond n_columns are not touched.
template <int R, bool panels>
void product_rows(const MatrixProduct& p, const double* a, const double* b, double* c, Index n_columns) {
  constexpr int width = PackD::parts < 2 ? 1 : 2;
  constexpr int lanes = PackD::lanes / PackD::parts;
  const auto whole_run = [&](double* out, Index out_row) __attribute__((always_inline)) {
    for (int part = 0; part < PackD::parts; part += width)
      product_tile<R, width, panels>(p, a, b + part * lanes, out + part * lanes, out_row);
  };
  if (panels || n_columns >= PackD::lanes) return whole_run(c, p.c_row);
  double padded[R * PackD::lanes] = {};
  if (p.accumulate)
    for (int r = 0; r < R; ++r)
      for (Index q = 0; q < n_columns; ++q) padded[r * PackD::lanes + q] = c[r * p.c_row + q];
  if (n_columns <= lanes)
    product_tile<R, 1, panels>(p, a, b, padded, PackD::lanes);
  else
    whole_run(padded, PackD::lanes);
  for (int r = 0; r < R; ++r)
    for (Index q = 0; q < n_columns; ++q) c[r * p.c_row + q] = padded[r * PackD::lanes + q];
}

// Rows are split into tiles of nearly equal heights, six at most.
template <bool panels>
void product(const MatrixProduct& p) {
  constexpr Index highest = 6;
  const Index n_tiles = (p.n_rows + highest - 1) / highest;
  // As many rows of a at once as the second-level cache holds beside the panels of b.
  const Index kept = 192 * 1024 / Index(sizeof(double));
  const Index per_pass = kept / (highest * (p.n_inner + 1)) + 1;
  for (Index first = 0; first < n_tiles; first += per_pass) {
    const Index last = first + per_pass < n_tiles ? first + per_pass : n_tiles;
    for (Index column = 0; column < p.n_columns; column += PackD::lanes) {
      const Index panel = column / PackD::lanes, n_columns = p.n_columns - column;
      const double* b = p.b + panel * p.b_panel;
      for (Index t = first; t < last; ++t) {
        const Index begin = t * p.n_rows / n_tiles, end = (t + 1) * p.n_rows / n_tiles;
        if (p.upper_only && begin >= column + PackD::lanes) break;
        const double* a = p.a + begin * p.a_row;
        double* c = p.c + panel * p.c_panel + begin * p.c_row;
        switch (end - begin) {
          case 1: product_rows<1, panels>(p, a, b, c, n_columns); break;
          case 2: product_rows<2, panels>(p, a, b, c, n_columns); break;
          case 3: product_rows<3, panels>(p, a, b, c, n_columns); break;
          case 4: product_rows<4, panels>(p, a, b, c, n_columns); break;
          case 5: product_rows<5, panels>(p, a, b, c, n_columns); break;
          case 6: product_rows<6, panels>(p, a, b, c, n_columns); break;
        }
      }
    }
  }
}

// out = inᵀ, both in panels; units of `in` that are missing from the last panel of `out` are zero there.
void transpose_panels(Index n_units, Index n_panels, const double* in, Index stride, double* out) {
  const Index n_rows = n_panels * PackD::lanes;
  for (Index u = 0; u < n_units; u += PackD::lanes, out += n_rows * PackD::lanes) {
    const Index n = n_units - u < PackD::lanes ? n_units - u : Index(PackD::lanes);
    for (Index j = 0; j < n_panels; ++j) {
      const double* from = in + j * stride + u * PackD::lanes;
      double* to = out + j * PackD::lanes * PackD::lanes;
      for (int r = 0; r < PackD::lanes; ++r) {
        double row[PackD::lanes] = {};
        if (n == PackD::lanes) {
          PYDIRECT_UNROLL for (int q = 0; q < PackD::lanes; ++q) row[q] = from[q * PackD::lanes + r];
        } else {
          for (Index q = 0; q < n; ++q) row[q] = from[q * PackD::lanes + r];
        }
        store(to + r * PackD::lanes, load(row));
      }
    }
  }
}

constexpr void fill(ProductKernels& k) {
  k.matrix = product<false>;
  k.panels = product<true>;
  k.transpose_panels = transpose_panels;
}
