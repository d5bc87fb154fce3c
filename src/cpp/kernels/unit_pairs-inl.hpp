// What two units of a layer share: the bivariate normal integral and its derivatives; notation of unit_moments-inl.hpp.

constexpr double kInvTwoPi = 0.15915494309189533577, kLog2E = 1.4426950408889634074;
// √(1 − r²) of pairs that are one unit up to rounding, in derivatives.
constexpr double kLeastRoot = 0x1p-26;

// 2^x for x ≤ 0, no less than 2⁻¹⁰⁰⁰: two thirds of exp's work, for sums in which what is smaller does not count.
PYDIRECT_INLINE PackD power_of_two(const PackD& x_in) {
  const PackD x = max(x_in, broadcast(-1000.0));
  const PackD shift = broadcast(rounding_shift<double>()), shifted = x + shift;
  PackD power = polynomial(kPowerOfTwo, x - (shifted - shift));
  // n into the exponent bits, as in exp.
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Native<double>::ivector bits;
    __builtin_memcpy(&bits, &shifted.v[i], sizeof bits);
    bits = (bits + 1023) << 52;
    PackD::vector scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    power.v[i] = power.v[i] * scale;
  }
  return power;
}

// What pairs need of the units, in scratch; padded so that a pack from any unit on may be loaded.
struct UnitTable {
  Index stride;
  double *mu, *s, *inverse_s, *density, *cdf, *complement, *sr, *sr_minus;  // sr = SR(μ), sr_minus = SR(−μ)
  double *mean_bar, *variance_bar;  // halves of what pairs add
};

PYDIRECT_INLINE UnitTable unit_table(Index d, double* scratch) {
  const Index stride = unit_table_stride(d);
  double* row[kUnitTableRows];
  for (int i = 0; i < kUnitTableRows; ++i) row[i] = scratch + i * stride;
  return {stride, row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9]};
}

// Fills the table and calls then(unit, mean, variance, j, n) for every pack of units.
template <class Then>
PYDIRECT_INLINE void fill_units(const UnitTable& t, Index d, const double* mean, const double* S, const Then& then) {
  const PackD zero = broadcast(0.0);
  for (Index j = 0; j < t.stride; j += PackD::lanes) {
    double variance[PackD::lanes] = {};
    const Index n = d - j < PackD::lanes ? d - j : PackD::lanes;
    for (Index i = 0; i < n; ++i) variance[i] = S[(j + i) * (d + 1)];
    const PackD m = n > 0 ? load_some(mean + j, n) : zero, V = load(variance);
    const Unit u = unit(m, V);
    store(t.mu + j, u.mu);
    store(t.s + j, u.s);
    store(t.inverse_s + j, u.inverse_s);
    store(t.density + j, u.density);
    store(t.cdf + j, u.cdf);
    store(t.complement + j, u.complement);
    store(t.sr + j, max(u.mu, zero) + u.first_tail);
    store(t.sr_minus + j, max(zero - u.mu, zero) + u.first_tail);
    if (n > 0) then(u, m, V, j, n);
  }
}

// Columns of the units j .. j + 7, or the one unit j in every lane.
struct PairUnit {
  PackD mu, s, inverse_s, density, cdf, complement, sr, sr_minus;
};

PYDIRECT_INLINE PairUnit units_from(const UnitTable& t, Index j) {
  return {load(t.mu + j),  load(t.s + j),          load(t.inverse_s + j), load(t.density + j),
          load(t.cdf + j), load(t.complement + j), load(t.sr + j),        load(t.sr_minus + j)};
}

PYDIRECT_INLINE PairUnit unit_everywhere(const UnitTable& t, Index j) {
  return {broadcast(t.mu[j]),  broadcast(t.s[j]),          broadcast(t.inverse_s[j]), broadcast(t.density[j]),
          broadcast(t.cdf[j]), broadcast(t.complement[j]), broadcast(t.sr[j]),        broadcast(t.sr_minus[j])};
}

// r > 0 after the sign of r < 0 has gone to the second unit: T(μ_j, μ_l, −r) = −T(μ_j, −μ_l, r), R = R(μ_j, −μ_l, r).
struct Correlation {
  PackD r, root;  // |r| ≤ 1, √(1 − r²)
  Mask<double> negative;
};

PYDIRECT_INLINE Correlation correlation(const PackD& S, const PairUnit& j, const PairUnit& l) {
  const PackD one = broadcast(1.0), signed_r = S * j.inverse_s * l.inverse_s;
  Correlation c;
  c.negative = less(signed_r, broadcast(0.0));
  c.r = min(abs(signed_r), one);
  c.root = sqrt((one - c.r) * (one + c.r));
  return c;
}

// Derivatives of C_jl: in S_jl, and in the mean and the variance of either unit.
struct PairSlopes {
  PackD S, mean_j, mean_l, variance_j, variance_l;
};

// T = Φ₂(μ_j, μ_l; r) − Φ_j Φ_l = 1/2π ∫₀ʳ E(u)/√(1−u²) du and R = 1/2π ∫₀ʳ (r − u) E(u)/√(1−u²) du.
struct PairIntegrals {
  PackD T, R;
};

// u = 2t/(1+t²), so that du/√(1−u²) = 2dt/(1+t²): n nodes in t up to τ = r/(1+√(1−r²)).
// Out of line: a rolled loop over nodes keeps the processor busy, and one body serves every rule.
__attribute__((noinline)) PairIntegrals integrals_from_zero(const QuadratureRule& rule, const Correlation& c,
                                                            const PackD& half_squares, const PackD& product) {
  const PackD one = broadcast(1.0), tau = c.r / (one + c.root);
  PairIntegrals sum{broadcast(0.0), broadcast(0.0)};
  for (int k = 0; k < rule.n; ++k) {
    const PackD t = tau * broadcast(rule.node[k]), t2 = t * t, two_t = t + t;
    const PackD p = one + t2, m2 = (one - t2) * (one - t2);
    const PackD inverse = one / (p * m2);  // of both denominators
    const PackD inverse_p = m2 * inverse;
    const PackD exponent = (two_t * product - half_squares * p) * (p * (p * inverse));
    const PackD e = broadcast(rule.weight[k]) * inverse_p * power_of_two(exponent);
    sum.T = sum.T + e;
    sum.R = sum.R + (c.r - two_t * inverse_p) * e;
  }
  const PackD scale = tau * broadcast(kInvTwoPi);
  return {scale * sum.T, scale * sum.R};
}

// The complement from u = 1 down to r, in v with u = (1−v²)/(1+v²) up to τ = √((1−r)/(1+r)). With a ≤ b the two means,
//     T = Φ(a) Φ(−b) − U,   R = K + r Φ(a) Φ(−b) − SR(a) SR(−b):
// nothing grows where both units are on. The exponent splits into −(a²+b²)/4 − (b−a)²/(8v²) − (a+b)²v²/8; with
// y = v²/τ² and x = (b−a)/(2τ), U = e^{−(a²+b²)/4} τ/π ∫₀¹ e^{−x²/2y} F(y) d√y for F = e^{−(a+b)²τ²y/8}/(1+τ²y), K has
// (1−r)(1−y)/(1+τ²y) F in place of F, and powers of y integrate by parts: (2k+1) I_k = 1 − x² I_{k−1},
// I_0 = 1 − x M(x), times e^{−x²/2}. After n powers of y less than τ²ⁿ⁺³/π is left.
__attribute__((noinline)) PairIntegrals integrals_from_one(int n_powers, const Correlation& c, const PackD& mu_j,
                                                           const PackD& mu_l, const PackD& both_beyond,
                                                           const PackD& both_relu) {
  const PackD one = broadcast(1.0), half = broadcast(0.5);
  const PackD tau2 = (one - c.r) / (one + c.r), tau = sqrt(tau2);
  const PackD gap = abs(mu_j - mu_l), sum = mu_j + mu_l;
  const PackD x = min(half * gap / max(tau, broadcast(1e-100)), broadcast(kFarthest)), x2 = x * x;
  const PackD exponent = broadcast(-0.25) * (mu_j * mu_j + mu_l * mu_l) - half * x2;
  const PackD scale = tau * broadcast(2.0 * kInvTwoPi) * power_of_two(broadcast(kLog2E) * exponent);
  const PackD w = one / (x + broadcast(4.0));
  const PackD decay = broadcast(-0.125) * sum * sum * tau2;
  PackD integral = one - x * (w * polynomial(kMills, (x - broadcast(4.0)) * w));
  PackD power = one, of_U = one, of_K = one;  // coefficients of y^k: of the exponential, F and F/(1+τ²y)
  PackD U = integral, K = broadcast(0.0);
  for (int k = 1; k <= n_powers; ++k) {
    const PackD next = (one - x2 * integral) * broadcast(kReciprocal[2 * k + 1]);
    K = K + of_K * (integral - next);
    power = power * (decay * broadcast(kReciprocal[k]));
    of_U = power - tau2 * of_U;
    of_K = of_U - tau2 * of_K;
    U = U + of_U * next;
    integral = next;
  }
  return {both_beyond - scale * U, scale * (one - c.r) * K + (c.r * both_beyond - both_relu)};
}

// The extremes of |r| among eight pairs say what all of them get.
PYDIRECT_INLINE PairIntegrals integrals(bool fast, const Correlation& c, const PairUnit& j, const PairUnit& l) {
  const PackD zero = broadcast(0.0);
  const PackD mu_l = select(c.negative, zero - l.mu, l.mu);
  // In units of log 2: what the powers of two are to be raised to.
  const PackD product = broadcast(kLog2E) * j.mu * mu_l;
  const PackD half_squares = broadcast(0.5 * kLog2E) * (j.mu * j.mu + mu_l * mu_l);
  const double border = fast ? 0.9 : 0.5;
  const double largest = max_lanes(c.r);
  PairIntegrals i{zero, zero};
  if (largest <= border) {
    i = integrals_from_zero(fast || largest <= 0.3 ? kRule6 : kRule8, c, half_squares, product);
  } else {
    const double smallest = 0.0 - max_lanes(zero - c.r);
    const Mask<double> j_first = less(j.mu, mu_l);
    const PackD cdf_l = select(c.negative, l.complement, l.cdf), complement_l = select(c.negative, l.cdf, l.complement);
    const PackD sr_l = select(c.negative, l.sr_minus, l.sr), sr_minus_l = select(c.negative, l.sr, l.sr_minus);
    const PairIntegrals from_one = integrals_from_one(
        smallest >= 0.9 || fast ? 8 : smallest >= 0.7 ? 14 : 22, c, j.mu, mu_l,
        select(j_first, j.cdf * complement_l, cdf_l * j.complement),
        select(j_first, j.sr * sr_minus_l, sr_l * j.sr_minus));
    i = from_one;
    if (smallest < border) {
      const PairIntegrals from_zero = integrals_from_zero(fast ? kRule6 : kRule8, c, half_squares, product);
      const Mask<double> near_zero = less(c.r, broadcast(border));
      i = {select(near_zero, from_zero.T, i.T), select(near_zero, from_zero.R, i.R)};
    }
  }
  i.T = select(c.negative, zero - i.T, i.T);
  return i;
}

// Of c = (μ_l − r μ_j)/√(1−r²), with E = φ_j φ(c), which both units of a pair share: E M(|c|) = φ_j Φ(−|c|).
struct ConditionalTail {
  PackD cdf;   // φ_j Φ(c)
  PackD relu;  // φ_j SR(c)
};

PYDIRECT_INLINE ConditionalTail conditional_tail(const PackD& c, const PackD& E, const PackD& density) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0), x = abs(c);
  const PackD w = one / (x + broadcast(4.0));
  const PackD mills = w * polynomial(kMillsShort, (x - broadcast(4.0)) * w);
  const PackD tail = E * mills;
  return {select(less(c, zero), tail, density - tail), max(c, zero) * density + (E - x * tail)};
}

template <Activation f>
PYDIRECT_INLINE PairSlopes exact_slopes(const Correlation& c, const PackD& T, const PairUnit& j, const PairUnit& l) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0), half = broadcast(0.5), limit = broadcast(64.0);
  const PackD r = select(c.negative, zero - c.r, c.r);
  const PackD root = max(c.root, broadcast(kLeastRoot)), inverse_root = one / root;
  const PackD c_j = max(min((j.mu - r * l.mu) * inverse_root, limit), zero - limit);
  const PackD c_l = max(min((l.mu - r * j.mu) * inverse_root, limit), zero - limit);
  const PackD E = broadcast(kInvTwoPi) * exp(broadcast(-0.5) * (j.mu * j.mu + c_l * c_l));
  const ConditionalTail tail_l = conditional_tail(c_l, E, j.density), tail_j = conditional_tail(c_j, E, l.density);
  PairSlopes out;
  if constexpr (f == Activation::kRelu) {
    out.S = j.cdf * l.cdf + T;
    out.mean_j = l.s * (l.mu * T + (tail_j.cdf - l.density * j.cdf) + r * tail_l.cdf);
    out.mean_l = j.s * (j.mu * T + (tail_l.cdf - j.density * l.cdf) + r * tail_j.cdf);
    out.variance_j = half * j.inverse_s * l.s * (root * tail_l.relu - j.density * l.sr);
    out.variance_l = half * l.inverse_s * j.s * (root * tail_j.relu - l.density * j.sr);
  } else {
    const PackD density = E * inverse_root;  // of the pair at the thresholds: dT/dr
    const PackD along_j = tail_l.cdf - j.density * l.cdf, along_l = tail_j.cdf - l.density * j.cdf;
    const PackD turn = r * density;
    out.S = density * j.inverse_s * l.inverse_s;
    out.mean_j = along_j * j.inverse_s;
    out.mean_l = along_l * l.inverse_s;
    out.variance_j = broadcast(-0.5) * (j.mu * along_j + turn) * j.inverse_s * j.inverse_s;
    out.variance_l = broadcast(-0.5) * (l.mu * along_l + turn) * l.inverse_s * l.inverse_s;
  }
  return out;
}
