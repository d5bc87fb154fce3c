// Divergences of weights w = μ + σ ξ from their priors, −log σ − mean log p(w), from power sums or draw by draw.

// Coefficients of p about A, p⁽ʲ⁾(A)/j!, by repeated synthetic division.
PYDIRECT_INLINE void expand_about(const PackD& A, const LogDensity& p, PackD* q) {
  for (Index j = 0; j <= p.degree; ++j) q[j] = broadcast(p.coefficients[j]);
  for (Index j = 0; j < p.degree; ++j)
    for (Index k = p.degree - 1; k >= j; --k) q[k] = q[k] + A * q[k + 1];
}

// Adds the pack's lanes below n.
PYDIRECT_INLINE PackD add_lanes(const PackD& sum, const PackD& x, Index n) {
  if (n >= PackD::lanes) return sum + x;
  double kept[PackD::lanes] = {};
  store_some(kept, x, n);
  return sum + load(kept);
}

// −log σ − mean log p(μ + σ ξ), log p a polynomial in w − centre: Σ_j σ^j P_j p⁽ʲ⁾(A)/j!.
double polynomial_divergence(const LogDensity& p, const DivergenceBlock& b) {
  const PackD one = broadcast(1.0), zero = broadcast(0.0);
  PackD total = zero, q[kMostSums + 1];
  for (Index c = 0; c < b.n_columns; c += PackD::lanes) {
    const Index n = b.n_columns - c;
    const PackD A = load_some(b.location + c, n) - broadcast(p.centre);
    const PackD sigma = n >= PackD::lanes ? load(b.scale + c) : max(load_some(b.scale + c, n), broadcast(1e-300));
    expand_about(A, p, q);
    PackD value = q[0], location_slope = p.degree > 0 ? q[1] : zero, scale_slope = zero, power = one;
    for (Index j = 1; j <= p.degree; ++j) {
      const PackD mean = load_some(b.sums + (j - 1) * b.sum_stride + c, n);
      scale_slope = scale_slope + broadcast(double(j)) * power * mean * q[j];
      power = power * sigma;
      value = value + power * mean * q[j];
      if (j < p.degree) location_slope = location_slope + broadcast(double(j + 1)) * power * mean * q[j + 1];
    }
    total = add_lanes(total, zero - log(sigma) - value, n);
    store_some(b.location_slope + c, zero - location_slope, n);
    store_some(b.scale_slope + c, zero - one / sigma - scale_slope, n);
  }
  return sum_lanes(total);
}

// −log θ − mean log p(θ ξ), log p a sum of powers, log w and (log w − m)².
double power_divergence(const LogDensity& p, const DivergenceBlock& b) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0), two = broadcast(2.0);
  PackD total = zero;
  for (Index c = 0; c < b.n_columns; c += PackD::lanes) {
    const Index n = b.n_columns - c;
    const PackD theta = n >= PackD::lanes ? load(b.scale + c) : max(load_some(b.scale + c, n), broadcast(1e-300));
    const PackD log_theta = log(theta);
    PackD value = zero, slope = zero;  // in log θ
    for (Index k = 0; k < p.n_powers; ++k) {
      const PackD term = broadcast(p.factors[k]) * power_of(log_theta, p.exponents[k]) *
                         load_some(b.sums + k * b.sum_stride + c, n);
      value = value + term;
      slope = slope + broadcast(p.exponents[k]) * term;
    }
    if (p.n_logs > 0) {
      const PackD mean_log = load_some(b.sums + p.n_powers * b.sum_stride + c, n);
      value = value + broadcast(p.log_factor) * (log_theta + mean_log);
      slope = slope + broadcast(p.log_factor);
      if (p.n_logs > 1) {
        const PackD t = log_theta - broadcast(p.log_centre), f = broadcast(p.log_square_factor);
        const PackD mean_square = load_some(b.sums + (p.n_powers + 1) * b.sum_stride + c, n);
        value = value + f * (t * t + two * t * mean_log + mean_square);
        slope = slope + two * f * (t + mean_log);
      }
    }
    total = add_lanes(total, zero - log_theta - value, n);
    store_some(b.scale_slope + c, zero - (one + slope) / theta, n);
  }
  return sum_lanes(total);
}

double divergence_from_sums(const LogDensity& p, const DivergenceBlock& b) {
  return p.kind == LogDensity::Kind::kPowers ? power_divergence(p, b) : polynomial_divergence(p, b);
}

// log p(w) and its derivative.
struct LogDensityAt {
  PackD value, slope;
};

PYDIRECT_INLINE LogDensityAt horner(const double* coefficient, Index degree, const PackD& x) {
  PackD value = broadcast(coefficient[degree]), slope = broadcast(0.0);
  for (Index k = degree - 1; k >= 0; --k) {
    slope = slope * x + value;
    value = value * x + broadcast(coefficient[k]);
  }
  return {value, slope};
}

template <LogDensity::Kind kind>
PYDIRECT_INLINE LogDensityAt log_density(const LogDensity& p, const PackD& w) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0), two = broadcast(2.0);
  if constexpr (kind == LogDensity::Kind::kLogistic) {  // −|x| − 2 log(1 + exp −|x|) − log s
    const PackD x = (w - broadcast(p.centre)) / broadcast(p.scale), size = abs(x);
    const PackD tail = exp(zero - size), t = tail / (one + tail);
    const PackD slope = two * t - one;
    return {zero - size - two * log(one + tail) - broadcast(p.log_scale),
            select(less(x, zero), zero - slope, slope) / broadcast(p.scale)};
  } else {
    const PackD x = w - broadcast(p.centre);
    LogDensityAt r = horner(p.coefficients, p.degree, x);
    for (Index k = 0; k < p.n_knots; ++k) {
      const LogDensityAt next = horner(p.coefficients + (k + 1) * (p.degree + 1), p.degree, x);
      const Mask<double> beyond = less(broadcast(p.knots[k]), x);
      r = {select(beyond, next.value, r.value), select(beyond, next.slope, r.slope)};
    }
    return r;
  }
}

// Σ factor w^r + log_factor log w + log_square_factor (log w − m)² and its derivative in log w.
PYDIRECT_INLINE LogDensityAt log_density_in_logs(const LogDensity& p, const PackD& log_w) {
  PackD value = broadcast(p.log_factor) * log_w, slope = broadcast(p.log_factor);
  for (Index k = 0; k < p.n_powers; ++k) {
    const PackD term = broadcast(p.factors[k]) * power_of(log_w, p.exponents[k]);
    value = value + term;
    slope = slope + broadcast(p.exponents[k]) * term;
  }
  const PackD t = log_w - broadcast(p.log_centre), f = broadcast(p.log_square_factor);
  return {value + f * t * t, slope + broadcast(2.0) * f * t};
}

template <LogDensity::Kind kind>
void add_log_densities_of(const LogDensity& p, const DirectSums& b) {
  for (Index c = 0; c < b.n_columns; c += PackD::lanes) {
    const PackD mu = load(b.location + c), sigma = load(b.scale + c), zero = broadcast(0.0);
    PackD value = zero, slope = zero, scale_slope = zero;
    for (Index i = 0; i < b.n_draws; ++i) {
      const PackD xi = load(b.xi + i * kDrawColumns + c);
      const PackD v = mu + sigma * xi, w = b.exponential ? power_of(v, 1.0) : v;
      LogDensityAt at = log_density<kind>(p, w);
      if (b.exponential) at = {at.value + v, at.slope * w + broadcast(1.0)};  // the density of v = log w
      value = value + at.value;
      slope = slope + at.slope;
      scale_slope = scale_slope + at.slope * xi;
    }
    store(b.value + c, load(b.value + c) + value);
    store(b.slope + c, load(b.slope + c) + slope);
    store(b.scale_slope + c, load(b.scale_slope + c) + scale_slope);
  }
}

// By log w, which is known where w itself underflows: v of exponentials, log σ + log ξ of positive laws.
template <>
void add_log_densities_of<LogDensity::Kind::kPowers>(const LogDensity& p, const DirectSums& b) {
  const PackD zero = broadcast(0.0), one = broadcast(1.0);
  for (Index c = 0; c < b.n_columns; c += PackD::lanes) {
    const PackD mu = load(b.location + c), sigma = load(b.scale + c), log_sigma = log(sigma);
    PackD value = zero, slope = zero, scale_slope = zero;
    for (Index i = 0; i < b.n_draws; ++i) {
      const Index row = i * kDrawColumns + c;
      if (b.exponential) {
        const PackD xi = load(b.xi + row), v = mu + sigma * xi;
        const LogDensityAt at = log_density_in_logs(p, v);
        value = value + at.value + v;  // the density of v = log w
        slope = slope + at.slope + one;
        scale_slope = scale_slope + (at.slope + one) * xi;
      } else {
        const LogDensityAt at = log_density_in_logs(p, log_sigma + load(b.log_xi + row));
        value = value + at.value;
        scale_slope = scale_slope + at.slope / sigma;
      }
    }
    store(b.value + c, load(b.value + c) + value);
    store(b.slope + c, load(b.slope + c) + slope);
    store(b.scale_slope + c, load(b.scale_slope + c) + scale_slope);
  }
}

void add_log_densities(const LogDensity& p, const DirectSums& b) {
  switch (p.kind) {
    case LogDensity::Kind::kPolynomial: return add_log_densities_of<LogDensity::Kind::kPolynomial>(p, b);
    case LogDensity::Kind::kPowers: return add_log_densities_of<LogDensity::Kind::kPowers>(p, b);
    case LogDensity::Kind::kLogistic: return add_log_densities_of<LogDensity::Kind::kLogistic>(p, b);
  }
}

constexpr void fill(DivergenceKernels& k) {
  k.from_sums = divergence_from_sums;
  k.add_log_densities = add_log_densities;
}
