// One of the two files with fused multiply-adds (see simd.hpp), as LAPACK has them.

PYDIRECT_INLINE PackD multiply_add(const PackD& a, const PackD& b, const PackD& c) {
  PackD r;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) r.v[i] = fused<double>(a.v[i], b.v[i], c.v[i]);
  return r;
}

// R columns of a times `groups` groups of b: eight accumulators at least, as many as hide the latency of the additions.
template <int R, int groups>
PYDIRECT_INLINE void subtract_tile(Index n_inner, const double* a, const double* b, Index b_group, double* c,
                                   Index c_row, Index c_group) {
  PackD sum[R][groups];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r)
    PYDIRECT_UNROLL for (int w = 0; w < groups; ++w) {
      sum[r][w] = broadcast(0.0);
      __builtin_prefetch(c + r * c_row + w * c_group);
      __builtin_prefetch(c + r * c_row + w * c_group + PackD::lanes - 1);
    }
  _Pragma("GCC unroll 4") for (Index k = 0; k < n_inner; ++k, a += PackD::lanes, b += PackD::lanes) {
    PackD bw[groups];
    PYDIRECT_UNROLL for (int w = 0; w < groups; ++w) bw[w] = load(b + w * b_group);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const PackD::vector ar = a[r] - PackD::vector{};
      PYDIRECT_UNROLL for (int w = 0; w < groups; ++w)
        PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i)
          sum[r][w].v[i] = fused<double>(ar, bw[w].v[i], sum[r][w].v[i]);
    }
  }
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r)
    PYDIRECT_UNROLL for (int w = 0; w < groups; ++w) {
      double* out = c + r * c_row + w * c_group;
      store(out, load(out) - sum[r][w]);
    }
}

void subtract_product(Index n_inner, const double* a, Index n_groups, const double* b, Index b_group, double* c,
                      Index c_row, Index c_group) {
  constexpr int R = 8 / PackD::parts, together = PackD::parts == 1 ? 3 : 1;
  Index w = 0;
  for (; w + together <= n_groups; w += together)
    for (int r = 0; r < PackD::lanes; r += R)
      subtract_tile<R, together>(n_inner, a + r, b + w * b_group, b_group, c + r * c_row + w * c_group, c_row, c_group);
  for (; w < n_groups; ++w)
    for (int r = 0; r < PackD::lanes; r += R)
      subtract_tile<R, 1>(n_inner, a + r, b + w * b_group, b_group, c + r * c_row + w * c_group, c_row, c_group);
}

void solve(const double* r, const double* inverse_diagonal, Index n_groups, double* x, Index x_group) {
  for (Index w = 0; w < n_groups; ++w, x += x_group) {
    PackD row[PackD::lanes];
    PYDIRECT_UNROLL for (int i = 0; i < PackD::lanes; ++i) {
      row[i] = load(x + i * PackD::lanes);
      PYDIRECT_UNROLL for (int m = 0; m < i; ++m)
        row[i] = multiply_add(broadcast(-r[m * PackD::lanes + i]), row[m], row[i]);
      row[i] = row[i] * broadcast(inverse_diagonal[i]);
      store(x + i * PackD::lanes, row[i]);
    }
  }
}

// `groups` groups of the row, whose last has n columns.
template <int groups>
PYDIRECT_INLINE PackD pivoted_groups(const PivotedRow& p, Index first, Index n, PackD smallest) {
  double* panel = p.panel + first * p.group_stride;
  double *row = p.row + first * PackD::lanes, *diagonal = p.diagonal + first * PackD::lanes;
  PackD sum[groups];
  PYDIRECT_UNROLL for (int w = 0; w < groups; ++w) sum[w] = broadcast(0.0);
  for (Index m = 0; m < p.n_earlier; ++m) {
    const PackD coefficient = broadcast(p.coefficient[m]);
    PYDIRECT_UNROLL for (int w = 0; w < groups; ++w)
      sum[w] = multiply_add(coefficient, load(panel + w * p.group_stride + m * PackD::lanes), sum[w]);
  }
  PYDIRECT_UNROLL for (int w = 0; w < groups; ++w) {
    const Index n_columns = w + 1 < groups ? Index(PackD::lanes) : n;
    const PackD x = (load_some(row + w * PackD::lanes, n_columns) - sum[w]) * broadcast(p.inverse_pivot);
    store_some(row + w * PackD::lanes, x, n_columns);
    store(panel + w * p.group_stride + p.n_earlier * PackD::lanes, x);
    const PackD d = load(diagonal + w * PackD::lanes) - x * x;
    store(diagonal + w * PackD::lanes, d);
    smallest = min(smallest, broadcast(p.sign) * d);
  }
  return smallest;
}

double pivoted_row(const PivotedRow& p) {
  constexpr int together = 4;
  PackD smallest = broadcast(double(INFINITY));
  const Index n_whole = p.n_columns / PackD::lanes, rest = p.n_columns % PackD::lanes;
  Index w = 0;
  for (; w + together <= n_whole; w += together) smallest = pivoted_groups<together>(p, w, PackD::lanes, smallest);
  for (; w < n_whole; ++w) smallest = pivoted_groups<1>(p, w, PackD::lanes, smallest);
  if (rest > 0) smallest = pivoted_groups<1>(p, w, rest, smallest);
  return -max_lanes(broadcast(0.0) - smallest);
}

void add_squared_norms(Index n_rows, const double* columns, double* out) {
  PackD sum[4] = {load(out), broadcast(0.0), broadcast(0.0), broadcast(0.0)};
  for (Index i = 0; i + 4 <= n_rows; i += 4, columns += 4 * PackD::lanes)
    PYDIRECT_UNROLL for (int r = 0; r < 4; ++r) {
      const PackD x = load(columns + r * PackD::lanes);
      sum[r] = multiply_add(x, x, sum[r]);
    }
  store(out, (sum[0] + sum[1]) + (sum[2] + sum[3]));
}

constexpr void fill(FactorisationKernels& k) {
  k.subtract_product = subtract_product;
  k.solve = solve;
  k.pivoted_row = pivoted_row;
  k.add_squared_norms = add_squared_norms;
}
