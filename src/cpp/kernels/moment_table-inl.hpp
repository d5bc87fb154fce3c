// Between the logits of a factorised categorical and the central moments that quadratic networks need, and back.
// Rows of q and of logits are padded like the levels; a level without prior mass has no probability, whatever its
// logit.

// Σ_k term(k) over the levels of a row. n_packs as in tilt_one.
template <int n_packs, class Term>
PYDIRECT_INLINE double sum_over_levels(Index n_levels, const Term& term) {
  const Index n = n_packs > 0 ? Index(n_packs) * PackD::lanes : n_levels;
  PackD total = term(0);
  for (Index k = PackD::lanes; k < n; k += PackD::lanes) total = total + term(k);
  return sum_lanes(total);
}

template <int n_packs>
void softmax_range(const TiltFamily& family, const CategoricalRows& rows, Index begin, Index end) {
  const PackD nothing = broadcast(-HUGE_VAL);
  for (Index j = begin; j < end; ++j) {
    const double* log_prior = family.log_prior + j * family.prior_stride;
    const double* logits = rows.logits + j * family.n_levels;
    double* q = rows.q + j * family.n_levels;
    double* log_ratio = rows.log_ratio + j * family.n_levels;
    const Index n = n_packs > 0 ? Index(n_packs) * PackD::lanes : family.n_levels;

    PackD highest = nothing;
    for (Index k = 0; k < n; k += PackD::lanes) {
      const PackD logit = select(less(nothing, load(log_prior + k)), load(logits + k), nothing);
      store(q + k, logit);
      highest = max(highest, logit);
    }
    const double top = max_lanes(highest);
    PackD mass = broadcast(0.0);
    for (Index k = 0; k < n; k += PackD::lanes) {
      const PackD e = exp(load(q + k) - broadcast(top));
      store(q + k, e);
      mass = mass + e;
    }
    const double total = sum_lanes(mass);
    const PackD zero = broadcast(0.0), log_normaliser = broadcast(top + std::log(total));
    rows.divergence[j] = sum_over_levels<n_packs>(n, [&](Index k) {
      const PackD p = load(q + k) / broadcast(total);
      // 0 log 0 = 0
      const PackD ratio = select(less(zero, p), load(logits + k) - log_normaliser - load(log_prior + k), zero);
      store(q + k, p);
      store(log_ratio + k, ratio);
      return p * ratio;
    });
  }
}

// E (w − m)^r for r = first + 1 … first + group, side by side; what the first power (r = 1) gives is not used.
template <int n_packs, int group>
PYDIRECT_INLINE void powers_of_one(Index n_levels, const double* levels, const double* q, double mean, Index first,
                                   double* out, Index stride) {
  const Index n = n_packs > 0 ? Index(n_packs) * PackD::lanes : n_levels;
  PackD sums[group];
  PYDIRECT_UNROLL for (int r = 0; r < group; ++r) sums[r] = broadcast(0.0);
  for (Index k = 0; k < n; k += PackD::lanes) {
    const PackD d = load(levels + k) - broadcast(mean);
    PackD term = load(q + k);
    for (Index r = 0; r < first; ++r) term = term * d;
    PYDIRECT_UNROLL for (int r = 0; r < group; ++r) {
      term = term * d;
      sums[r] = sums[r] + term;
    }
  }
  PYDIRECT_UNROLL for (int r = 0; r < group; ++r) out[(first + r) * stride] = sum_lanes(sums[r]);
}

template <int n_packs, int group>
void central_moments_range(const TiltFamily& family, const double* q_rows, const MomentTable& table, Index begin,
                           Index end) {
  for (Index j = begin; j < end; ++j) {
    const double* levels = family.levels + j * family.level_stride;
    const double* q = q_rows + j * family.n_levels;
    const double mean =
        sum_over_levels<n_packs>(family.n_levels, [&](Index k) { return load(q + k) * load(levels + k); });
    double* out = table.moments + (j - table.first_weight);
    for (Index first = 0; first < table.n_moments; first += group)
      powers_of_one<n_packs, group>(family.n_levels, levels, q, mean, first, out, table.n_weights);
    out[0] = mean;
  }
}

// ∂R/∂q(w) as a polynomial in d = w − m. Since ∂m/∂q(w) = w, the central moment c_r has the derivative
// d^r − r c_{r−1} w with c_1 = 0; replacing w by d there changes it by a constant, which the simplex does not see.
struct SlopePolynomial {
  double mean, linear;
  const double* gradient;  // of R in the weight's moments, n_weights apart
  Index n_moments, stride;

  PYDIRECT_INLINE SlopePolynomial(const MomentTable& table, const double* layer_gradient, Index j)
      : gradient(layer_gradient + (j - table.first_weight)), n_moments(table.n_moments), stride(table.n_weights) {
    const double* c = table.moments + (j - table.first_weight);
    mean = c[0];
    linear = gradient[0];
    for (Index r = 3; r <= n_moments; ++r) linear -= double(r) * c[(r - 2) * stride] * gradient[(r - 1) * stride];
  }

  PYDIRECT_INLINE PackD operator()(const PackD& w) const {
    const PackD d = w - broadcast(mean);
    PackD value = broadcast(gradient[(n_moments - 1) * stride]);
    for (Index r = n_moments - 1; r > 1; --r) value = value * d + broadcast(gradient[(r - 1) * stride]);
    return (value * d + broadcast(linear)) * d;
  }
};

void moment_slopes(const TiltFamily& family, const MomentTable& table, const double* gradient, double* out, Index begin,
                   Index end) {
  for (Index j = begin; j < end; ++j) {
    const SlopePolynomial slope(table, gradient, j);
    for (Index k = 0; k < family.n_levels; k += PackD::lanes)
      store(out + j * family.n_levels + k, slope(load(family.levels + j * family.level_stride + k)));
  }
}

// The gradient of factor·R + KL in the logits: q (g − qᵀg) with g = factor ∂R/∂q + log q − log p.
template <int n_packs>
void logit_gradient_range(const TiltFamily& family, const CategoricalRows& rows, const MomentTable& table,
                          const double* gradient, double factor, double* out_rows, Index begin, Index end) {
  for (Index j = begin; j < end; ++j) {
    const SlopePolynomial slope(table, gradient, j);
    const double* levels = family.levels + j * family.level_stride;
    const double* q = rows.q + j * family.n_levels;
    const double* log_ratio = rows.log_ratio + j * family.n_levels;
    double* out = out_rows + j * family.n_levels;
    const Index n = n_packs > 0 ? Index(n_packs) * PackD::lanes : family.n_levels;
    const double average = sum_over_levels<n_packs>(n, [&](Index k) {
      const PackD g = broadcast(factor) * slope(load(levels + k)) + load(log_ratio + k);
      store(out + k, g);
      return load(q + k) * g;
    });
    for (Index k = 0; k < n; k += PackD::lanes)
      store(out + k, load(q + k) * (load(out + k) - broadcast(average)));
  }
}

void softmax(const TiltFamily& family, const CategoricalRows& rows, Index begin, Index end) {
  with_packs(family.n_levels, [&](auto n) { softmax_range<n.value>(family, rows, begin, end); });
}

// Orders of moments in groups that stay in registers.
void central_moments(const TiltFamily& family, const double* q, const MomentTable& table, Index begin, Index end) {
  with_packs(family.n_levels, [&](auto n) {
    switch (table.n_moments) {
      case 2: return central_moments_range<n.value, 2>(family, q, table, begin, end);
      case 4: return central_moments_range<n.value, 4>(family, q, table, begin, end);
      default: return central_moments_range<n.value, 8>(family, q, table, begin, end);  // 8, 16, 32 …
    }
  });
}

void logit_gradient(const TiltFamily& family, const CategoricalRows& rows, const MomentTable& table,
                    const double* gradient, double factor, double* out, Index begin, Index end) {
  with_packs(family.n_levels, [&](auto n) {
    logit_gradient_range<n.value>(family, rows, table, gradient, factor, out, begin, end);
  });
}

constexpr void fill(MomentTableKernels& k) {
  k.softmax = softmax;
  k.central_moments = central_moments;
  k.slopes = moment_slopes;
  k.logit_gradient = logit_gradient;
}
