// One of the two files with fused multiply-adds (see simd.hpp): each entry of a product is a chain of them in the order of
// the inner axis. Vectors run over columns only.

constexpr Index kRowChunk = 1024;  // entries of a row that stay in the first-level cache

template <class T>
struct Tile {
  typedef T vector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  typedef vector unaligned __attribute__((aligned(sizeof(T)), may_alias));
  static constexpr int lanes = PYDIRECT_VECTOR_BYTES / int(sizeof(T));
  // As many accumulators as the registers hold beside a row of b and an entry of a.
#if defined(__AVX512F__)
  static constexpr int height = 8, parts = 3;
#elif defined(__AVX__)
  static constexpr int height = 4, parts = 3;
#else
  static constexpr int height = 4, parts = 6;
#endif
  static constexpr int width = lanes * parts;

  static PYDIRECT_INLINE vector load(const T* from) { return *reinterpret_cast<const unaligned*>(from); }
  static PYDIRECT_INLINE void store(T* to, vector v) { *reinterpret_cast<unaligned*>(to) = v; }
};

template <class T, Sum kind>
PYDIRECT_INLINE void tile(Index n_inner, const T* a, const T* b, T* c, Index c_row) {
  using S = Tile<T>;
  typename S::vector sum[S::height][S::parts];
  PYDIRECT_UNROLL for (int r = 0; r < S::height; ++r)
    PYDIRECT_UNROLL for (int w = 0; w < S::parts; ++w) {
      T* at = c + r * c_row + w * S::lanes;
      if constexpr (kind == Sum::kGoesOn) {
        sum[r][w] = S::load(at);
      } else {
        __builtin_prefetch(at);
        sum[r][w] = typename S::vector{};
      }
    }
  _Pragma("GCC unroll 4") for (Index k = 0; k < n_inner; ++k, a += S::height, b += S::width) {
    typename S::vector bw[S::parts];
    PYDIRECT_UNROLL for (int w = 0; w < S::parts; ++w) bw[w] = S::load(b + w * S::lanes);
    PYDIRECT_UNROLL for (int r = 0; r < S::height; ++r) {
      const typename S::vector ar = a[r] - typename S::vector{};
      PYDIRECT_UNROLL for (int w = 0; w < S::parts; ++w) sum[r][w] = fused<T>(ar, bw[w], sum[r][w]);
    }
  }
  PYDIRECT_UNROLL for (int r = 0; r < S::height; ++r)
    PYDIRECT_UNROLL for (int w = 0; w < S::parts; ++w) {
      T* at = c + r * c_row + w * S::lanes;
      S::store(at, kind == Sum::kGoesOn ? sum[r][w] : S::load(at) + sum[r][w]);
    }
}

// Tiles that reach over the edge of c.
template <class T, Sum kind>
PYDIRECT_OUT_OF_LINE void tile_at_edge(Index n_inner, const T* a, const T* b, T* c, Index c_row, Index n_rows,
                                       Index n_columns) {
  using S = Tile<T>;
  T whole[S::height * S::width] = {};
  for (Index r = 0; r < n_rows; ++r)
    for (Index q = 0; q < n_columns; ++q) whole[r * S::width + q] = c[r * c_row + q];
  tile<T, kind>(n_inner, a, b, whole, S::width);
  for (Index r = 0; r < n_rows; ++r)
    for (Index q = 0; q < n_columns; ++q) c[r * c_row + q] = whole[r * S::width + q];
}

template <class T, Sum kind>
void multiply_tiles(const TileBlock<T>& p) {
  using S = Tile<T>;
  for (Index column = 0; column < p.n_columns; column += S::width) {
    const T* b = p.b + column / S::width * p.b_panel;
    const Index n_columns = p.n_columns - column < S::width ? p.n_columns - column : Index(S::width);
    const Index last = column + n_columns + p.diagonal < p.n_rows ? column + n_columns + p.diagonal : p.n_rows;
    for (Index row = 0; row < last; row += S::height) {
      const T* a = p.a + row * p.n_inner;
      T* c = p.c + row * p.c_row + column;
      const Index n_rows = p.n_rows - row < S::height ? p.n_rows - row : Index(S::height);
      if (n_rows == S::height && n_columns == S::width)
        tile<T, kind>(p.n_inner, a, b, c, p.c_row);
      else
        tile_at_edge<T, kind>(p.n_inner, a, b, c, p.c_row, n_rows, n_columns);
    }
  }
}

template <class T>
void multiply(const TileBlock<T>& p) {
  if (p.sum == Sum::kGoesOn)
    multiply_tiles<T, Sum::kGoesOn>(p);
  else
    multiply_tiles<T, Sum::kIsAdded>(p);
}

template <class T, int width>
void pack_panels(const Packing<T>& p, T* out) {
  for (Index first = 0; first < p.n; first += width) {
    const T* from = p.data + first * p.stride;
    const Index n = p.n - first < width ? p.n - first : Index(width);
    for (Index k = 0; k < p.n_inner; ++k, from += p.inner_stride, out += width) {
      const T factor = p.factor == nullptr ? p.sign : p.sign * p.factor[k];
      if (n == width && p.stride == 1) {
        PYDIRECT_UNROLL for (int r = 0; r < width; r += Tile<T>::lanes < width ? Tile<T>::lanes : width) {
          if constexpr (width % Tile<T>::lanes == 0)
            Tile<T>::store(out + r, Tile<T>::load(from + r) * factor);
          else
            for (int q = 0; q < width; ++q) out[q] = from[q] * factor;
        }
      } else if (n == width) {
        PYDIRECT_UNROLL for (int r = 0; r < width; ++r) out[r] = from[r * p.stride] * factor;
      } else {
        for (Index r = 0; r < width; ++r) out[r] = r < n ? from[r * p.stride] * factor : T(0);
      }
    }
  }
}

template <class T>
void solve_panel(Index n, const T* triangle, T* x) {
  using S = Tile<T>;
  for (Index first = 0; first < n; first += S::height) {
    const Index n_rows = n - first < S::height ? n - first : Index(S::height);
    T* own = x + first * S::width;
    if (n_rows == S::height)
      tile<T, Sum::kGoesOn>(first, triangle, x, own, S::width);
    else
      tile_at_edge<T, Sum::kGoesOn>(first, triangle, x, own, S::width, n_rows, S::width);
    triangle += first * S::height;
    for (Index r = 0; r < n_rows; ++r) {
      PYDIRECT_UNROLL for (int w = 0; w < S::parts; ++w) {
        typename S::vector v = S::load(own + r * S::width + w * S::lanes);
        for (Index m = 0; m < r; ++m)
          v = fused<T>(triangle[m * S::height + r] - typename S::vector{}, S::load(own + m * S::width + w * S::lanes), v);
        S::store(own + r * S::width + w * S::lanes, v / -triangle[r * S::height + r]);
      }
    }
    triangle += n_rows * S::height;
  }
}

template <class T>
Index factorise_block(Index n, T* a, Index stride) {
  using S = Tile<T>;
  constexpr Index most = kSmallBlock;
  T block[most * most] = {};
  for (Index i = 0; i < n; ++i)
    for (Index j = i; j < n; ++j) block[i * most + j] = a[i * stride + j];
  for (Index k = 0; k < n; ++k) {
    T* row = block + k * most;
    if (!(row[k] > T(0) && row[k] < T(INFINITY))) return k;
    const T root = std::sqrt(row[k]);
    const Index begin = k / S::lanes * S::lanes;
    for (Index j = begin; j < n; j += S::lanes) S::store(row + j, S::load(row + j) / root);
    row[k] = root;
    for (Index i = k + 1; i < n; ++i) {
      const typename S::vector r = -row[i] - typename S::vector{};
      for (Index j = i / S::lanes * S::lanes; j < n; j += S::lanes)
        S::store(block + i * most + j, fused<T>(r, S::load(row + j), S::load(block + i * most + j)));
    }
  }
  for (Index i = 0; i < n; ++i)
    for (Index j = i; j < n; ++j) a[i * stride + j] = block[i * most + j];
  return n;
}

// Entries of y whose columns of a are contiguous: R rows of columns at a time, read from their beginning to their end.
template <class T, int R>
PYDIRECT_INLINE void add_rows(const RowProduct<T>& p, Index k, Index n, const T* a, T* sum) {
  using S = Tile<T>;
  typename S::vector x[R];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) x[r] = p.sign * p.x[(k + r) * p.x_stride] - typename S::vector{};
  a += k * p.a_inner;
  for (Index j = 0; j < n; j += S::lanes) {
    typename S::vector v = S::load(sum + j);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) v = fused<T>(S::load(a + r * p.a_inner + j), x[r], v);
    S::store(sum + j, v);
  }
}

template <class T>
void row_product_along(const RowProduct<T>& p, Index begin, Index n) {
  T sum[kRowChunk];
  const bool goes_on = p.sum == Sum::kGoesOn;
  T* y = p.y + begin;
  for (Index j = 0; j < n; ++j) sum[j] = goes_on ? y[j] : T(0);
  Index k = 0;
  for (; k + 4 <= p.n_inner; k += 4) add_rows<T, 4>(p, k, n, p.a + begin, sum);
  for (; k < p.n_inner; ++k) add_rows<T, 1>(p, k, n, p.a + begin, sum);
  for (Index j = 0; j < n; ++j) y[j] = goes_on ? sum[j] : y[j] + sum[j];
}

// R entries of y side by side, in as many chains.
template <class T, int R>
PYDIRECT_INLINE void row_product_across(const RowProduct<T>& p, const T* a, T* y) {
  T sum[R];
  const bool goes_on = p.sum == Sum::kGoesOn;
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) sum[r] = goes_on ? y[r * p.y_stride] : T(0);
  for (Index k = 0; k < p.n_inner; ++k, a += p.a_inner) {
    const T xk = p.sign * p.x[k * p.x_stride];
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) sum[r] = std::fma(a[r * p.a_row], xk, sum[r]);
  }
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    T& at = y[r * p.y_stride];
    at = goes_on ? sum[r] : at + sum[r];
  }
}

template <class T>
void row_product(const RowProduct<T>& p) {
  constexpr int lanes = Tile<T>::lanes, chains = 8;
  Index i = 0;
  if (p.a_row == 1 && p.y_stride == 1)
    for (Index n; (n = (p.n_rows - i) / lanes * lanes) > 0; i += n)
      row_product_along<T>(p, i, n = n < kRowChunk ? n : kRowChunk);
  for (; i + chains <= p.n_rows; i += chains) row_product_across<T, chains>(p, p.a + i * p.a_row, p.y + i * p.y_stride);
  for (; i < p.n_rows; ++i) row_product_across<T, 1>(p, p.a + i * p.a_row, p.y + i * p.y_stride);
}

template <class T>
constexpr void fill(TileKernels<T>& k) {
  k.shape = [](Index* height, Index* width) {
    *height = Tile<T>::height;
    *width = Tile<T>::width;
  };
  k.pack_rows = pack_panels<T, Tile<T>::height>;
  k.pack_columns = pack_panels<T, Tile<T>::width>;
  k.multiply = multiply<T>;
  k.solve = solve_panel<T>;
  k.factorise = factorise_block<T>;
  k.row_product = row_product<T>;
}
