// Covariance between rows and others. Squared distances are sums of squared differences, which serve both parts of the
// covariance and keep their digits for rows that are near each other; a row is at distance zero from itself. Each is
// summed in the order of the inputs, hence the same bits however rows and columns are grouped.

constexpr double kLog2 = 6.93147180559945286227e-01;

// 2^−y for y ≥ 0, or 2^−1020 if that is larger. Near-minimax polynomial on [−½, ½]: 1.5 ulp beside the rounding of y.
PYDIRECT_INLINE PackD exp2_of_minus(const PackD& y_in) {
  const PackD y = min(y_in, broadcast(1020.0));
  const PackD shift = broadcast(rounding_shift<double>());
  const PackD shifted = y + shift;
  const PackD f = (shifted - shift) - y, f2 = f * f, f4 = f2 * f2, f8 = f4 * f4;
  const double terms[] = {1.0,
                          0.69314718055995,
                          0.24022650695910158,
                          0.05550410866444768,
                          0.009618129107587253,
                          0.0013333558230170627,
                          0.00015403530463727982,
                          1.5252657257186041e-05,
                          1.3215432534254118e-06,
                          1.020869083593037e-07};
  // In pairs, and pairs of pairs: chains of Horner's rule would be waited for.
  PackD pair[5];
  PYDIRECT_UNROLL for (int k = 0; k < 5; ++k) pair[k] = broadcast(terms[2 * k]) + broadcast(terms[2 * k + 1]) * f;
  PackD e = (pair[0] + pair[1] * f2) +
            ((pair[2] + pair[3] * f2) * f4 + (pair[4] + broadcast(7.074194562613105e-09) * f2) * f8);
  // The low bits of `shifted` hold the integer next to y.
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Native<double>::ivector bits, scale;
    __builtin_memcpy(&bits, &shifted.v[i], sizeof bits);
    scale = (1023 - bits) << 52;
    PackD::vector power;
    __builtin_memcpy(&power, &scale, sizeof scale);
    e.v[i] = e.v[i] * power;
  }
  return e;
}

// Inputs in which some of R rows and of a panel's others differ, in order; without marks, all.
template <int R>
PYDIRECT_INLINE Index moving_inputs(const CrossCovariance& p, Index i, Index panel) {
  if (p.moving_rows == nullptr) return p.n_inputs;
  Index n = 0;
  for (Index word = 0; word < p.n_words; ++word) {
    std::uint64_t own = p.moving_others[panel * p.n_words + word];
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) own |= p.moving_rows[(i + r) * p.n_words + word];
    for (; own != 0; own &= own - 1) p.inputs[n++] = 64 * word + __builtin_ctzll(own);
  }
  return n;
}

// Strips of R rows: distances of the Matérn part, squared ones (of a product, distances), and inner products of the
// linear part. The square roots of the first go on while the next panel is summed.
template <int R, class Radial, RoughPart rough>
PYDIRECT_INLINE void fill_strips(const CrossCovariance& p, Index i, Index first_panel, Index n_panels) {
  const Index d = p.n_inputs;
  const double* z = p.others + first_panel * (d + p.n_linear) * PackD::lanes;
  const double *x = p.x + i * d, *x_linear = p.x_linear + i * p.n_linear;
  for (Index panel = 0; panel < n_panels; ++panel, z += (d + p.n_linear) * PackD::lanes) {
    PackD matern[R], isotropic[R], linear[R], squares[R];
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) matern[r] = isotropic[r] = squares[r] = broadcast(0.0);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) linear[r] = broadcast(p.rest_sum);
    const auto add_distance = [&](Index k) {
      const PackD zk = load(z + k * PackD::lanes), weight = broadcast(p.weights[k]);
      PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
        const PackD difference = broadcast(x[r * d + k]) - zk, square = difference * difference;
        matern[r] = matern[r] + weight * square;
        if (rough == kIsotropicPart) isotropic[r] = isotropic[r] + square;
        if (rough == kProductPart) isotropic[r] = isotropic[r] + broadcast(p.product_weights[k]) * abs(difference);
      }
      if (rough == kPairsPart && p.product_weights[k] > 0.0) {
        for (int r = 0; r < R; ++r) {
          const PackD y = broadcast(p.product_weights[k]) * abs(broadcast(x[r * d + k]) - zk);
          const PackD axis = Matern52::value(broadcast(kLog2) * y, exp2_of_minus(y));
          isotropic[r] = isotropic[r] + axis;
          squares[r] = squares[r] + axis * axis;
        }
      }
    };
    const auto product = [&](int r, Index k) {
      return broadcast(x_linear[r * p.n_linear + k]) * load(z + (d + k) * PackD::lanes);
    };
    // Not unrolled: GCC would move all loads to the front and keep the sums in memory.
    if (p.inputs == nullptr) {
      _Pragma("GCC unroll 1") for (Index k = 0; k < d; ++k) add_distance(k);
      _Pragma("GCC unroll 1") for (Index k = 0; k < p.n_linear; ++k) {
        PYDIRECT_UNROLL for (int r = 0; r < R; ++r) linear[r] = linear[r] + product(r, k);
      }
    } else {
      const Index n_moving = moving_inputs<R>(p, i, first_panel + panel);
      _Pragma("GCC unroll 1") for (Index c = 0; c < n_moving; ++c) add_distance(p.inputs[c]);
      _Pragma("GCC unroll 1") for (Index c = 0; c < n_moving && p.inputs[c] < p.n_linear; ++c) {
        const PackD rest = broadcast(p.rest[p.inputs[c]]);
        PYDIRECT_UNROLL for (int r = 0; r < R; ++r) linear[r] = linear[r] + (product(r, p.inputs[c]) - rest);
      }
    }
    double* strip = p.strips + panel * PackD::lanes;
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      store(strip + r * kStripColumns, Radial::of_square(matern[r]));
      if (rough == kPairsPart)  // twice the sum over pairs is the square of the sum less that of squares
        isotropic[r] = broadcast(p.per_pair) * (isotropic[r] * isotropic[r] - squares[r]);
      if (rough != kNoRoughPart) store(strip + (R + r) * kStripColumns, isotropic[r]);
      store(strip + (2 * R + r) * kStripColumns, linear[r]);
    }
  }
}

template <class Radial, RoughPart rough>
PYDIRECT_INLINE void covariance_of_strip(const CrossCovariance& p, const double* matern, const double* isotropic,
                                         const double* linear, Index n, double* out) {
  for (Index k = 0; k < n; k += PackD::lanes) {
    PackD r;
    if (rough == kIsotropicPart) r = sqrt(broadcast(p.isotropic_weight) * load(isotropic + k));
    if (rough == kProductPart) r = load(isotropic + k);
    const PackD y = load(matern + k), t = broadcast(kLog2) * y;
    PackD sum = broadcast(p.linear_amplitude) * load(linear + k) + broadcast(p.constant);
    sum = sum + broadcast(p.ard_amplitude) * Radial::value(t, exp2_of_minus(y));
    if (rough == kPairsPart) sum = sum + broadcast(p.isotropic_amplitude) * load(isotropic + k);
    else if (rough != kNoRoughPart) sum = sum + broadcast(p.isotropic_amplitude) * exp2_of_minus(r);
    store_some(out + k, sum, n - k);
  }
}

template <int R, class Radial, RoughPart rough>
void covariance_of_rows(const CrossCovariance& p, Index i, Index column, Index n_columns) {
  fill_strips<R, Radial, rough>(p, i, column / PackD::lanes, (n_columns + PackD::lanes - 1) / PackD::lanes);
  for (int r = 0; r < R; ++r) {
    const double* strip = p.strips + r * kStripColumns;
    covariance_of_strip<Radial, rough>(p, strip, strip + R * kStripColumns, strip + 2 * R * kStripColumns, n_columns,
                                       p.out + (i + r) * p.n_others + column);
  }
}

// As many columns at a time as the second-level cache holds of the others.
template <class Radial, RoughPart rough>
void cross_covariance(const CrossCovariance& p) {
  constexpr int R = kRowsTogether / PackD::parts;  // as many as there are registers for
  const Index panel_bytes = (p.n_inputs + p.n_linear + 1) * PackD::lanes * Index(sizeof(double));
  const Index kept = (1 + 128 * 1024 / panel_bytes) * PackD::lanes, width = kept < kStripColumns ? kept : kStripColumns;
  for (Index column = 0; column < p.n_others; column += width) {
    const Index n_columns = p.n_others - column < width ? p.n_others - column : width;
    Index i = 0;
    for (; i + R <= p.n_rows; i += R) covariance_of_rows<R, Radial, rough>(p, i, column, n_columns);
    for (; i < p.n_rows; ++i) covariance_of_rows<1, Radial, rough>(p, i, column, n_columns);
  }
}

template <class Radial>
constexpr void fill_smoothness(void (*(&of_rows)[kRoughParts])(const CrossCovariance&)) {
  of_rows[kNoRoughPart] = cross_covariance<Radial, kNoRoughPart>;
  of_rows[kIsotropicPart] = cross_covariance<Radial, kIsotropicPart>;
  of_rows[kProductPart] = cross_covariance<Radial, kProductPart>;
  of_rows[kPairsPart] = cross_covariance<Radial, kPairsPart>;
}

constexpr void fill(CrossCovarianceKernels& k) {
  fill_smoothness<Matern12>(k.of_rows[0]);
  fill_smoothness<Matern32>(k.of_rows[1]);
  fill_smoothness<Matern52>(k.of_rows[2]);
  fill_smoothness<SquaredExponential>(k.of_rows[3]);
}
