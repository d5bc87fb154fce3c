// Dense loops on rows: products, accumulation, predictive moments. Sums run over fixed lanes in a fixed order.

template <class T>
PYDIRECT_INLINE PackD load_as_double(const T* src);
template <>
PYDIRECT_INLINE PackD load_as_double<double>(const double* src) { return load(src); }
template <>
PYDIRECT_INLINE PackD load_as_double<float>(const float* src) { return load_widened(src); }

// y −= alpha x
template <class T>
PYDIRECT_INLINE void subtract_scaled(Index n, double alpha, const T* x, double* y) {
  const PackD alpha_p = broadcast(alpha);
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes) store(y + k, load(y + k) - alpha_p * load_as_double(x + k));
  for (; k < n; ++k) y[k] -= alpha * double(x[k]);
}

double dot(Index n, const double* x, const double* y) {
  PackD acc = broadcast(0.0);
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes) acc = acc + load(x + k) * load(y + k);
  double tail = 0.0;
  for (; k < n; ++k) tail += x[k] * y[k];
  return sum_lanes(acc) + tail;
}

// Four rows at a time: each element below the diagonal is read once and used for both halves.
void symv(Index n, const float* a, Index lda, const float* x, float* y) {
  constexpr Index R = 4;
  for (Index k = 0; k < n; ++k) y[k] = 0.0f;
  Index i = 0;
  for (; i + R <= n; i += R) {
    const float* row[R];
    PackF acc[R], xi[R];
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      row[r] = a + (i + r) * lda;
      acc[r] = broadcast(0.0f);
      xi[r] = broadcast(x[i + r]);
    }
    Index k = 0;
    for (; k + PackF::lanes <= i; k += PackF::lanes) {
      const PackF xk = load(x + k);
      PackF yk = load(y + k);
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
        const PackF ark = load(row[r] + k);
        acc[r] = acc[r] + ark * xk;
        yk = yk + ark * xi[r];
      }
      store(y + k, yk);
    }
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      float sum = sum_lanes(acc[r]);
      for (Index l = k; l < i + r; ++l) {
        sum += row[r][l] * x[l];
        y[l] += row[r][l] * x[i + r];
      }
      y[i + r] += sum + row[r][i + r] * x[i + r];
    }
  }
  for (; i < n; ++i) {
    const float* row = a + i * lda;
    float sum = 0.0f;
    for (Index l = 0; l < i; ++l) {
      sum += row[l] * x[l];
      y[l] += row[l] * x[i];
    }
    y[i] += sum + row[i] * x[i];
  }
}

// R rows of the product at once: x is read once for all of them, and R chains of additions run side by side.
template <Index R, class T>
PYDIRECT_INLINE void gemv_rows(Index n, const T* a, Index lda, const double* x, double* y) {
  PackD acc[R];
  PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) acc[r] = broadcast(0.0);
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes) {
    const PackD xk = load(x + k);
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) acc[r] = acc[r] + load_as_double(a + r * lda + k) * xk;
  }
  PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
    double tail = 0.0;
    for (Index l = k; l < n; ++l) tail += double(a[r * lda + l]) * x[l];
    y[r] = sum_lanes(acc[r]) + tail;
  }
}

template <class T>
void gemv(Index begin, Index end, Index n, const T* a, Index lda, const double* x, double* y) {
  constexpr Index R = 4;
  Index i = begin;
  for (; i + R <= end; i += R) gemv_rows<R>(n, a + i * lda, lda, x, y + i);
  for (; i < end; ++i) gemv_rows<1>(n, a + i * lda, lda, x, y + i);
}

template <class T>
void add_transposed(Index n_rows, Index n_columns, const T* rows, Index stride, const double* y, double* out) {
  constexpr Index R = 4;
  Index i = 0;
  for (; i + R <= n_rows; i += R) {
    const T* row = rows + i * stride;
    PackD yi[R];
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) yi[r] = broadcast(y[i + r]);
    Index k = 0;
    for (; k + PackD::lanes <= n_columns; k += PackD::lanes) {
      PackD acc = load(out + k);
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) acc = acc + load_as_double(row + r * stride + k) * yi[r];
      store(out + k, acc);
    }
    for (; k < n_columns; ++k)
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) out[k] += double(row[r * stride + k]) * y[i + r];
  }
  for (; i < n_rows; ++i)
    for (Index k = 0; k < n_columns; ++k) out[k] += double(rows[i * stride + k]) * y[i];
}

template <class T>
void add(Index n, const T* in, double* out) {
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes) store(out + k, load(out + k) + load_as_double(in + k));
  for (; k < n; ++k) out[k] += double(in[k]);
}

template <class T>
void add_shifted(Index n, const T* in, double factor, const double* shift, double* out) {
  const PackD f = broadcast(factor);
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes)
    store(out + k, load(out + k) + (load_as_double(in + k) + f * load(shift + k)));
  for (; k < n; ++k) out[k] += double(in[k]) + factor * shift[k];
}

void row_moments(Index n_rows, Index n_columns, const double* rows, Index stride, const double* weight,
                 const double* spread, double* mean, double* variance) {
  for (Index i = 0; i < n_rows; ++i) {
    const double* row = rows + i * stride;
    PackD m = broadcast(0.0), v = m;
    Index k = 0;
    for (; k + PackD::lanes <= n_columns; k += PackD::lanes) {
      const PackD phi = load(row + k);
      m = m + phi * load(weight + k);
      v = v + phi * phi * load(spread + k);
    }
    double m_tail = 0.0, v_tail = 0.0;
    for (; k < n_columns; ++k) {
      m_tail += row[k] * weight[k];
      v_tail += row[k] * row[k] * spread[k];
    }
    mean[i] = sum_lanes(m) + m_tail;
    variance[i] = sum_lanes(v) + v_tail;
  }
}

// Element-wise; the tail is filled up with `padding`.
template <class Function>
PYDIRECT_INLINE void for_packs(Index n, const double* x, double* out, double padding, const Function& function) {
  Index k = 0;
  for (; k + PackD::lanes <= n; k += PackD::lanes) store(out + k, function(load(x + k)));
  double rest[PackD::lanes];
  for (Index i = 0; i < PackD::lanes; ++i) rest[i] = k + i < n ? x[k + i] : padding;
  store_some(out + k, function(load(rest)), n - k);
}

void exp_array(Index n, const double* x, double* out) {
  for_packs(n, x, out, 0.0, [](const PackD& p) __attribute__((always_inline)) { return exp(p); });
}

void log_array(Index n, const double* x, double* out) {
  for_packs(n, x, out, 1.0, [](const PackD& p) __attribute__((always_inline)) { return log(p); });
}

constexpr void fill(DenseKernels& k) {
  k.symv = symv;
  k.dot = dot;
  k.row_moments = row_moments;
  k.exp = exp_array;
  k.log = log_array;
}

template <class T>
constexpr void fill(RowKernels<T>& k) {
  k.gemv = gemv<T>;
  k.add_transposed = add_transposed<T>;
  k.add = add<T>;
  k.add_shifted = add_shifted<T>;
}
