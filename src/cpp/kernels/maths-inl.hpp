// Element-wise maths on arrays.

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

constexpr void fill(MathsKernels& k) {
  k.exp = exp_array;
  k.log = log_array;
}
