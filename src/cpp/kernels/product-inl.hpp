// Products of matrices in panels. A (units × m) matrix in panels is stored as [⌈m/8⌉][units][8]: eight columns lie side
// by side, so that every access is a whole pack and a panel is contiguous whatever the size of the matrix.
// Each entry of a product is summed in the order of the contraction, hence the same bits on every level.

// c (R × 8) = a (R × n_inner) b (n_inner × 8), `width` native vectors of the eight lanes at a time: twelve accumulators
// leave the sixteen registers of AVX2 room for two vectors of b, an entry of a and a product.
template <int R, int width>
PYDIRECT_INLINE void product_tile(Index n_inner, const double* a, Index a_stride, const double* b, double* c,
                                  bool accumulate) {
  typedef PackD::vector vector;
  typedef vector unaligned __attribute__((aligned(sizeof(double)), may_alias));
  constexpr int lanes = PackD::lanes / PackD::parts;
  vector sum[R][width];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      sum[r][w] = accumulate ? *reinterpret_cast<const unaligned*>(c + r * PackD::lanes + w * lanes) : vector{};
  }
  const auto step = [&](const double* ak, const double* bk) __attribute__((always_inline)) {
    vector bw[width];
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w) bw[w] = *reinterpret_cast<const unaligned*>(bk + w * lanes);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const vector ar = ak[r * PackD::lanes] - vector{};
      PYDIRECT_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = sum[r][w] + ar * bw[w];
    }
  };
  // Not unrolled: GCC would move all loads to the front and keep the accumulators in memory.
  Index k = 0;
  for (; k + PackD::lanes <= n_inner; k += PackD::lanes, a += a_stride, b += PackD::lanes * PackD::lanes) {
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) __builtin_prefetch(a + 2 * a_stride + r * PackD::lanes);
    _Pragma("GCC unroll 1") for (int q = 0; q < PackD::lanes; ++q) step(a + q, b + q * PackD::lanes);
  }
  for (int q = 0; k < n_inner; ++k, ++q) step(a + q, b + q * PackD::lanes);
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      *reinterpret_cast<unaligned*>(c + r * PackD::lanes + w * lanes) = sum[r][w];
  }
}

template <int R>
void product_rows(Index n_inner, const double* a, Index a_stride, const double* b, double* c, bool accumulate) {
  constexpr int width = PackD::parts < 2 ? 1 : 2;
  constexpr int lanes = PackD::lanes / PackD::parts;
  for (int part = 0; part < PackD::parts; part += width)
    product_tile<R, width>(n_inner, a, a_stride, b + part * lanes, c + part * lanes, accumulate);
}

// Rows are split into tiles of nearly equal heights, six at most.
void panel_product(const PanelProduct& p) {
  constexpr Index highest = 6;
  const Index n_tiles = (p.n_rows + highest - 1) / highest;
  // As many rows of a at once as the second-level cache holds beside the panels of b.
  const Index kept = 192 * 1024 / Index(sizeof(double));
  const Index per_pass = kept / (highest * (p.n_inner + 1)) + 1;
  for (Index first = 0; first < n_tiles; first += per_pass) {
    const Index last = first + per_pass < n_tiles ? first + per_pass : n_tiles;
    for (Index j = 0; j < p.n_panels; ++j) {
      const double* b = p.b + j * p.b_stride;
      for (Index t = first; t < last; ++t) {
        const Index begin = t * p.n_rows / n_tiles, end = (t + 1) * p.n_rows / n_tiles;
        const double* a = p.a + begin * PackD::lanes;
        double* c = p.c + j * p.c_stride + begin * PackD::lanes;
        switch (end - begin) {
          case 1: product_rows<1>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
          case 2: product_rows<2>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
          case 3: product_rows<3>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
          case 4: product_rows<4>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
          case 5: product_rows<5>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
          case 6: product_rows<6>(p.n_inner, a, p.a_stride, b, c, p.accumulate); break;
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
