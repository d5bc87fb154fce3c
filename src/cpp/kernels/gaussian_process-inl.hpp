// Rows of a Gaussian process' covariance and of its gradient. Rows are padded to whole packs by the caller, so that
// there is one loop and no tail; what stands in the padding is never used.

PYDIRECT_INLINE PackD distance_squared(const PackD& product, const PackD& norm, double own_norm) {
  return max(broadcast(own_norm) + norm - broadcast(2.0) * product, broadcast(0.0));
}

// A Matérn function of t = √(2ν) r is a polynomial in t times e = exp(−t); its derivative in r² likewise.
struct Matern {
  static PYDIRECT_INLINE PackD of_square(const PackD& square) { return sqrt(square); }
};

struct Matern12 : Matern {
  static constexpr double root = 1.0;
  static PYDIRECT_INLINE PackD value(const PackD&, const PackD& e) { return e; }
  // Infinite at distance zero, where it is multiplied by zero: distances below rounding count as one of its size.
  static PYDIRECT_INLINE PackD slope(const PackD& t, const PackD& e) {
    return broadcast(0.5) * e / max(t, broadcast(1e-6));
  }
};

struct Matern32 : Matern {
  static constexpr double root = 1.7320508075688772935;
  static PYDIRECT_INLINE PackD value(const PackD& t, const PackD& e) { return (broadcast(1.0) + t) * e; }
  static PYDIRECT_INLINE PackD slope(const PackD&, const PackD& e) { return broadcast(1.5) * e; }
};

struct Matern52 : Matern {
  static constexpr double root = 2.2360679774997896964;
  static PYDIRECT_INLINE PackD value(const PackD& t, const PackD& e) {
    return (broadcast(1.0) + t + broadcast(1.0 / 3.0) * t * t) * e;
  }
  static PYDIRECT_INLINE PackD slope(const PackD& t, const PackD& e) {
    return broadcast(5.0 / 6.0) * (broadcast(1.0) + t) * e;
  }
};

// Their limit, exp(−t) of t = ½ r².
struct SquaredExponential {
  static constexpr double root = 0.5;
  static PYDIRECT_INLINE PackD of_square(const PackD& square) { return square; }
  static PYDIRECT_INLINE PackD value(const PackD&, const PackD& e) { return e; }
  static PYDIRECT_INLINE PackD slope(const PackD&, const PackD& e) { return broadcast(0.5) * e; }
};

template <class Radial, SecondPart second>
void covariance_row(const CovarianceRow& p) {
  const PackD root = broadcast(Radial::root), zero = broadcast(0.0);
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    const PackD t = root * Radial::of_square(distance_squared(load(p.ard + k), load(p.ard_norm + k), p.own_ard_norm));
    const PackD e = broadcast(p.ard_amplitude) * exp(zero - t);
    const PackD r = second == kOfDistance ? broadcast(p.rate) * load(p.distance + k) : load(p.second + k);
    const PackD rough = broadcast(p.second_amplitude) * (second == kOfPairs ? r : exp(zero - r));
    store(p.ard + k, Radial::slope(t, e));
    store(p.second + k, rough);
    store(p.covariance + k, Radial::value(t, e) + rough + broadcast(p.linear_amplitude) * load(p.linear + k) +
                                broadcast(p.constant));
  }
}

PYDIRECT_INLINE PackD axis_distance(const AxesRow& p, Index j, Index k) {
  const double* axis = p.axes + j * p.stride;
  return abs(load(axis + k) - broadcast(axis[p.own]));
}

void product_row(const AxesRow& p) {
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    PackD sum = broadcast(0.0);
    for (Index j = 0; j < p.n_axes; ++j) sum = sum + axis_distance(p, j, k);
    store(p.distance + k, sum);
  }
}

// Twice the sum over pairs is the square of the sum over axes less the sum of squares.
void pairs_row(const AxesRow& p) {
  const PackD zero = broadcast(0.0), share = broadcast(1.0 / (double(p.n_axes) * double(p.n_axes - 1)));
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    PackD sum = zero, squares = zero;
    for (Index j = 0; j < p.n_axes; ++j) {
      const PackD t = axis_distance(p, j, k), value = Matern52::value(t, exp(zero - t));
      sum = sum + value;
      squares = squares + value * value;
    }
    store(p.distance + k, share * (sum * sum - squares));
  }
}

template <SecondPart second>
void covariance_gradient_row(CovarianceGradientRow& p) {
  const PackD zero = broadcast(0.0), half = broadcast(0.5), own = broadcast(p.alpha[p.own]);
  PackD sums[5] = {zero, zero, zero, zero, zero};
  double edge[PackD::lanes];
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    PackD m = half * (load(p.inverse + k) - own * load(p.alpha + k));
    if (k == 0 || k + PackD::lanes > p.n) {  // what stands beside the triangle counts for nothing
      store(edge, m);
      for (Index i = 0; i < PackD::lanes; ++i)
        if (k + i < p.own || k + i >= p.n) edge[i] = 0.0;
      m = load(edge);
    }
    const PackD rough = m * load(p.second + k), weight = zero - m * load(p.ard + k);
    if (second != kOfDistance) store(p.second + k, second == kOfPairs ? m * broadcast(p.second_amplitude) : rough);
    store(p.distance_weight + k, weight);
    store(p.column_sums + k, load(p.column_sums + k) + weight);
    sums[0] = sums[0] + rough;
    if (second == kOfDistance) sums[1] = sums[1] + rough * (broadcast(p.rate) * load(p.distance + k));
    sums[2] = sums[2] + m * load(p.linear + k);
    sums[3] = sums[3] + m;
    sums[4] = sums[4] + weight;
  }
  for (int i = 0; i < 5; ++i) p.sums[i] = sum_lanes(sums[i]);
}

void product_gradient_row(const AxesGradientRow& p) {
  for (Index j = 0; j < p.rows.n_axes; ++j) {
    PackD sum = broadcast(0.0);
    for (Index k = 0; k < p.rows.n; k += PackD::lanes)
      sum = sum + load(p.rows.distance + k) * axis_distance(p.rows, j, k);
    p.sums[j] = sum_lanes(sum);
  }
}

void pairs_gradient_row(const AxesGradientRow& p) {
  const Index n = p.rows.n_axes, width = PackD::lanes;
  double *const sums = p.scratch, *const values = sums + n * width, *const slopes = values + n * width;
  const PackD zero = broadcast(0.0), third = broadcast(1.0 / 3.0), one = broadcast(1.0);
  const PackD share = broadcast(2.0 / (double(n) * double(n - 1)));
  for (Index j = 0; j < n; ++j) store(sums + j * width, zero);
  for (Index k = 0; k < p.rows.n; k += width) {
    PackD all = zero;
    for (Index j = 0; j < n; ++j) {
      const PackD t = axis_distance(p.rows, j, k), e = exp(zero - t), value = Matern52::value(t, e);
      store(values + j * width, value);
      store(slopes + j * width, third * t * t * (one + t) * e);
      all = all + value;
    }
    const PackD weight = share * load(p.rows.distance + k);
    for (Index j = 0; j < n; ++j) {
      double* const sum = sums + j * width;
      store(sum, load(sum) + weight * (all - load(values + j * width)) * load(slopes + j * width));
    }
  }
  for (Index j = 0; j < n; ++j) p.sums[j] = sum_lanes(load(sums + j * width));
}

template <class Radial>
constexpr void fill_smoothness(void (*(&of_row)[kSecondParts])(const CovarianceRow&)) {
  of_row[kOfDistance] = covariance_row<Radial, kOfDistance>;
  of_row[kOfAxes] = covariance_row<Radial, kOfAxes>;
  of_row[kOfPairs] = covariance_row<Radial, kOfPairs>;
}

constexpr void fill(GaussianProcessKernels& k) {
  fill_smoothness<Matern12>(k.covariance_row[0]);
  fill_smoothness<Matern32>(k.covariance_row[1]);
  fill_smoothness<Matern52>(k.covariance_row[2]);
  fill_smoothness<SquaredExponential>(k.covariance_row[3]);
  k.gradient_row[kOfDistance] = covariance_gradient_row<kOfDistance>;
  k.gradient_row[kOfAxes] = covariance_gradient_row<kOfAxes>;
  k.gradient_row[kOfPairs] = covariance_gradient_row<kOfPairs>;
  k.axes_row[0] = product_row;
  k.axes_row[1] = pairs_row;
  k.axes_gradient_row[0] = product_gradient_row;
  k.axes_gradient_row[1] = pairs_gradient_row;
}
