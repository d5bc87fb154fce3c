// Rows of a Gaussian process' covariance and of its gradient. Rows are padded to whole packs by the caller, so that
// there is one loop and no tail; what stands in the padding is never used.

PYDIRECT_INLINE PackD distance_squared(const PackD& product, const PackD& norm, double own_norm) {
  return max(broadcast(own_norm) + norm - broadcast(2.0) * product, broadcast(0.0));
}

// A Matérn function of t = √(2ν) r is a polynomial in t times e = exp(−t); its derivative in r² likewise.
struct Matern12 {
  static constexpr double root = 1.0;
  static PYDIRECT_INLINE PackD value(const PackD&, const PackD& e) { return e; }
  // Infinite at distance zero, where it is multiplied by zero: distances below rounding count as one of its size.
  static PYDIRECT_INLINE PackD slope(const PackD& t, const PackD& e) {
    return broadcast(0.5) * e / max(t, broadcast(1e-6));
  }
};

struct Matern32 {
  static constexpr double root = 1.7320508075688772935;
  static PYDIRECT_INLINE PackD value(const PackD& t, const PackD& e) { return (broadcast(1.0) + t) * e; }
  static PYDIRECT_INLINE PackD slope(const PackD&, const PackD& e) { return broadcast(1.5) * e; }
};

struct Matern52 {
  static constexpr double root = 2.2360679774997896964;
  static PYDIRECT_INLINE PackD value(const PackD& t, const PackD& e) {
    return (broadcast(1.0) + t + broadcast(1.0 / 3.0) * t * t) * e;
  }
  static PYDIRECT_INLINE PackD slope(const PackD& t, const PackD& e) {
    return broadcast(5.0 / 6.0) * (broadcast(1.0) + t) * e;
  }
};

template <class Matern, bool product>
void covariance_row(const CovarianceRow& p) {
  const PackD root = broadcast(Matern::root), zero = broadcast(0.0);
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    const PackD t = root * sqrt(distance_squared(load(p.ard + k), load(p.ard_norm + k), p.own_ard_norm));
    const PackD e = broadcast(p.ard_amplitude) * exp(zero - t);
    PackD r = load(p.isotropic + k);
    if (!product) r = sqrt(distance_squared(r, load(p.isotropic_norm + k), p.own_isotropic_norm));
    const PackD rough = broadcast(p.isotropic_amplitude) * exp(zero - r);
    store(p.ard + k, Matern::slope(t, e));
    if (!product) store(p.isotropic + k, r);
    store(p.covariance + k, Matern::value(t, e) + rough + broadcast(p.linear_amplitude) * load(p.linear + k) +
                                broadcast(p.constant));
  }
}

void product_distance_row(const ProductDistanceRow& p) {
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    PackD sum = broadcast(0.0);
    for (Index j = 0; j < p.n_axes; ++j) {
      const double* axis = p.axes + j * p.stride;
      sum = sum + abs(load(axis + k) - broadcast(axis[p.own]));
    }
    store(p.distance + k, sum);
  }
}

template <bool product>
void covariance_gradient_row(CovarianceGradientRow& p) {
  PackD sums[4] = {broadcast(0.0), broadcast(0.0), broadcast(0.0), broadcast(0.0)};
  double last[PackD::lanes];
  const PackD half = broadcast(0.5), own = broadcast(p.own_alpha), zero = broadcast(0.0);
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    PackD m = half * (load(p.inverse + k) - own * load(p.alpha + k));
    if (k + PackD::lanes > p.n) {  // the padding of the last pack counts for nothing
      store(last, m);
      for (Index i = p.n - k; i < PackD::lanes; ++i) last[i] = 0.0;
      m = load(last);
    }
    const PackD r = load(p.isotropic + k);
    const PackD rough = m * broadcast(p.isotropic_amplitude) * exp(zero - r);
    if (product) store(p.isotropic + k, rough);
    store(p.distance_weight + k, zero - m * load(p.ard + k));
    sums[0] = sums[0] + rough;
    sums[1] = sums[1] + rough * r;
    sums[2] = sums[2] + m * load(p.linear + k);
    sums[3] = sums[3] + m;
  }
  for (int i = 0; i < 4; ++i) p.sums[i] = sum_lanes(sums[i]);
}

void product_gradient_row(const ProductGradientRow& p) {
  for (Index j = 0; j < p.rows.n_axes; ++j) {
    const double* axis = p.rows.axes + j * p.rows.stride;
    PackD sum = broadcast(0.0);
    for (Index k = 0; k < p.rows.n; k += PackD::lanes)
      sum = sum + load(p.rows.distance + k) * abs(load(axis + k) - broadcast(axis[p.rows.own]));
    p.sums[j] = sum_lanes(sum);
  }
}

constexpr void fill(GaussianProcessKernels& k) {
  k.covariance_row[0][0] = covariance_row<Matern12, false>;
  k.covariance_row[0][1] = covariance_row<Matern12, true>;
  k.covariance_row[1][0] = covariance_row<Matern32, false>;
  k.covariance_row[1][1] = covariance_row<Matern32, true>;
  k.covariance_row[2][0] = covariance_row<Matern52, false>;
  k.covariance_row[2][1] = covariance_row<Matern52, true>;
  k.gradient_row[0] = covariance_gradient_row<false>;
  k.gradient_row[1] = covariance_gradient_row<true>;
  k.product_distance_row = product_distance_row;
  k.product_gradient_row = product_gradient_row;
}
