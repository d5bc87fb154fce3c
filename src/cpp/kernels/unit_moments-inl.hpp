// Moments of ReLU and Heaviside units of Gaussian pre-activations, one by one, with their adjoints.
// SR(x) = φ(x) + x Φ(x); μ = mean / s, s = √variance; M, G and H are the tails' factors beside φ, in unit_tables.

constexpr double kInvSqrtTwoPi = 0.39894228040143267794;
// φ is zero in double precision beyond, as is all that a pair of units shares.
constexpr double kFarthest = 40.0;
// Variances up to here count as zero in derivatives and correlations, where 1/variance would leave double precision.
constexpr double kNoVariance = 0x1p-960;

template <int n>
PYDIRECT_INLINE PackD polynomial(const double (&c)[n], const PackD& y) {
  const PackD y2 = y * y;
  constexpr int top_even = (n - 1) / 2 * 2, top_odd = (n - 2) / 2 * 2 + 1;
  PackD even = broadcast(c[top_even]), odd = broadcast(c[top_odd]);
  PYDIRECT_UNROLL for (int k = top_even - 2; k >= 0; k -= 2) even = even * y2 + broadcast(c[k]);
  PYDIRECT_UNROLL for (int k = top_odd - 2; k >= 0; k -= 2) odd = odd * y2 + broadcast(c[k]);
  return even + odd * y;
}

// φ(x) for 0 ≤ x ≤ 40 to a few ulp: x² is split, as its rounding alone would be hundreds of ulp in the tail.
PYDIRECT_INLINE PackD normal_density(const PackD& x) {
  const PackD shift = broadcast(0x1.8p32);  // to multiples of 2⁻²⁰, whose squares are exact
  const PackD z = (x + shift) - shift;
  const PackD rest = broadcast(0.5) * (z - x) * (z + x);
  const PackD correction =
      broadcast(1.0) + rest * (broadcast(1.0) + rest * (broadcast(0.5) + rest * broadcast(1.0 / 6)));
  return exp(broadcast(-0.5) * z * z) * correction * broadcast(kInvSqrtTwoPi);
}

// One unit in every lane. A unit of variance zero has μ = ±40, or 0 at mean zero; 1/s = 0 up to kNoVariance.
struct Unit {
  PackD s, inverse_s, mu, density;
  PackD first_tail, second_tail;  // φ G and φ H at |μ|: SR and E relu² on the far side
  PackD cdf, complement;          // Φ(μ) and Φ(−μ)
  Mask<double> negative;
};

PYDIRECT_INLINE Unit unit(const PackD& mean, const PackD& variance) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0), farthest = broadcast(kFarthest);
  Unit u;
  u.s = sqrt(variance);
  u.negative = less(mean, zero);
  const Mask<double> random = less(zero, variance);
  const PackD divisor = select(random, u.s, one);
  u.inverse_s = select(less(broadcast(kNoVariance), variance), one / divisor, zero);
  const PackD size = abs(mean);
  const PackD x = min(select(random, size / divisor, select(less(zero, size), farthest, zero)), farthest);
  u.mu = select(u.negative, zero - x, x);
  u.density = normal_density(x);
  // H from its series; M = (x + H)/(1 + x²) and G = (1 − x H)/(1 + x²) follow without cancellation: x H < 0.33.
  const PackD shifted = x + broadcast(4.0), square = one + x * x;
  const PackD inverse = one / (shifted * square);  // of both denominators
  const PackD w = square * inverse, density_over_square = u.density * (shifted * inverse);
  const PackD H = w * w * w * polynomial(kSecondTail, (x - broadcast(4.0)) * w);
  const PackD tail = density_over_square * (x + H);
  u.first_tail = density_over_square * (one - x * H);
  u.second_tail = u.density * H;
  u.cdf = select(u.negative, tail, one - tail);
  u.complement = select(u.negative, one - tail, tail);
  return u;
}

// E relu(a); exact where the unit is on or off for certain.
PYDIRECT_INLINE PackD relu_mean(const Unit& u, const PackD& mean) {
  return max(mean, broadcast(0.0)) + u.s * u.first_tail;
}

// Var relu(a) = S (Φ(μ) − SR(μ) SR(−μ)), without cancellation on either side.
PYDIRECT_INLINE PackD relu_variance(const Unit& u, const PackD& variance) {
  const PackD g = u.first_tail, x = abs(u.mu), tail = min(u.cdf, u.complement);
  const PackD off = u.second_tail - g * g;
  const PackD on = broadcast(1.0) - (tail + g * (x + g));
  return variance * select(u.negative, off, on);
}

template <Activation f>
PYDIRECT_INLINE PackD unit_variance(const Unit& u, const PackD& variance) {
  if constexpr (f == Activation::kRelu)
    return relu_variance(u, variance);
  else
    return u.cdf * u.complement;
}

template <Activation f>
void moments_of_units(Index d, const double* mean, const double* variance, const UnitMoments out) {
  for (Index j = 0; j < d; j += PackD::lanes) {
    const Index n = d - j;
    const PackD m = load_some(mean + j, n), S = load_some(variance + j, n);
    const Unit u = unit(m, S);
    store_some(out.hv + j, unit_variance<f>(u, S), n);
    if (out.cdf) {
      store_some(out.cdf + j, u.cdf, n);
      store_some(out.density + j, u.density * u.inverse_s, n);
    }
    if constexpr (f == Activation::kRelu) {
      const PackD far = S * u.second_tail;
      store_some(out.hm + j, relu_mean(u, m), n);
      store_some(out.v + j, select(u.negative, far, m * m + (S - far)), n);
    } else {
      store_some(out.hm + j, u.cdf, n);
      store_some(out.v + j, u.cdf, n);
    }
  }
}

struct UnitSlopes {
  PackD mean, variance;
};

// dL/dmean and dL/dvariance of a unit from those of E h, E h² and Var h. h is h² for Heaviside.
template <Activation f>
PYDIRECT_INLINE UnitSlopes unit_slopes(const Unit& u, const PackD& mean, const PackD& hm_bar, const PackD& v_bar,
                                       const PackD& hv_bar) {
  const PackD half = broadcast(0.5), two = broadcast(2.0);
  if constexpr (f == Activation::kRelu) {
    const PackD hm = relu_mean(u, mean), sr = max(u.mu, broadcast(0.0)) + u.first_tail;
    return {hm_bar * u.cdf + two * hm * (v_bar + hv_bar * u.complement),
            half * hm_bar * u.density * u.inverse_s + v_bar * u.cdf + hv_bar * (u.cdf - sr * u.density)};
  } else {
    const PackD slope = (hm_bar + v_bar + hv_bar * (u.complement - u.cdf)) * u.density * u.inverse_s;
    return {slope, broadcast(-0.5) * slope * u.mu * u.inverse_s};
  }
}

template <Activation f>
void adjoint_of_units(Index d, const double* mean, const double* variance, const double* hm_bar, const double* v_bar,
                      const double* hv_bar, double* mean_bar, double* variance_bar) {
  for (Index j = 0; j < d; j += PackD::lanes) {
    const Index n = d - j;
    const PackD m = load_some(mean + j, n), S = load_some(variance + j, n);
    const UnitSlopes slopes = unit_slopes<f>(unit(m, S), m, load_some(hm_bar + j, n), load_some(v_bar + j, n),
                                             load_some(hv_bar + j, n));
    store_some(mean_bar + j, load_some(mean_bar + j, n) + slopes.mean, n);
    store_some(variance_bar + j, load_some(variance_bar + j, n) + slopes.variance, n);
  }
}

void unit_moments(Activation f, Index d, const double* mean, const double* variance, const UnitMoments& out) {
  const auto run = f == Activation::kRelu ? moments_of_units<Activation::kRelu>
                                          : moments_of_units<Activation::kHeaviside>;
  run(d, mean, variance, out);
}

void unit_moments_adjoint(Activation f, Index d, const double* mean, const double* variance, const double* hm_bar,
                          const double* v_bar, const double* hv_bar, double* mean_bar, double* variance_bar) {
  const auto run = f == Activation::kRelu ? adjoint_of_units<Activation::kRelu>
                                          : adjoint_of_units<Activation::kHeaviside>;
  run(d, mean, variance, hm_bar, v_bar, hv_bar, mean_bar, variance_bar);
}

constexpr void fill(UnitMomentKernels& k) {
  k.moments = unit_moments;
  k.adjoint = unit_moments_adjoint;
}
