// Coordinate ascent on a mixture of factorised categoricals under the pairwise bound on its entropy (Kolchinsky &
// Tracey 2017).

// Overlap factors BC_j are kept above this, so that a product of them can be divided by one again.
constexpr double kSmallestFactor = 1e-200;
// Where q_j vanishes, the slope of its overlap is infinite: roots below this count as this.
constexpr double kSmallestRoot = 1e-150;
// A repulsion this weak is not felt; this strong is strong enough.
constexpr double kWeakestRepulsion = 1e-14, kStrongestRepulsion = 1e100;

// C_ik and what follows from it, after the pair's overlap factor at weight j has changed.
PYDIRECT_INLINE void set_factor(const ComponentSweep& p, Index j, Index i, Index k, double factor) {
  const Index r = p.n_components;
  double* factors = p.factor + j * r * r;
  const double overlap = p.overlap[i * r + k] / factors[i * r + k] * factor;
  factors[i * r + k] = factors[k * r + i] = factor;
  p.overlap[i * r + k] = p.overlap[k * r + i] = overlap;
  const Index pair[] = {i, k};
  for (const Index c : pair) {
    double total = 0.0;
    for (Index l = 0; l < r; ++l) total += p.alpha[l] * p.overlap[c * r + l];
    p.density[c] = total;
  }
}

// Σ_w √(q q') of two rows of roots.
PYDIRECT_INLINE double overlap_factor(Index m, const double* root, const double* other) {
  PackD total = broadcast(0.0);
  for (Index k = 0; k < m; k += PackD::lanes) total = total + load(root + k) * load(other + k);
  const double sum = sum_lanes(total);
  return sum > kSmallestFactor ? sum : kSmallestFactor;
}

// Slope −½ Σ_k α_k C_ik\j (1/Z_i + 1/Z_k) √(q_k/q_i) of the bound, divided by α_i: the bound's entropy term is convex
// in each q_j, so that its tangent is a lower bound and the step that follows never lowers the ELBO. False when it is
// not felt.
template <int n_packs>
PYDIRECT_INLINE bool repulsion(const ComponentSweep& p, Index m, Index j, Index i, double* push) {
  const Index r = p.n_components;
  const double* roots = p.root + j * r * m;
  const double* own = roots + i * m;
  const PackD smallest = broadcast(kSmallestRoot);
  bool felt = false;
  for (Index k = 0; k < r; ++k) {
    if (!p.close[i * r + k]) continue;
    const double without = p.overlap[i * r + k] / p.factor[(j * r + i) * r + k];
    double strength = 0.5 * p.alpha[k] * without * (1.0 / p.density[i] + 1.0 / p.density[k]);
    if (!(strength > kWeakestRepulsion)) continue;
    if (strength > kStrongestRepulsion) strength = kStrongestRepulsion;
    const PackD strength_p = broadcast(strength);
    for (Index l = 0; l < m; l += PackD::lanes) {
      const PackD ratio = load(roots + k * m + l) / max(load(own + l), smallest);
      store(push + l, (felt ? load(push + l) : broadcast(0.0)) + strength_p * ratio);
    }
    felt = true;
  }
  return felt;
}

// Maximiser of weight j of component i given all else; returns the step of its mean, 0 when it stays as it is.
template <int n_packs>
PYDIRECT_INLINE double update_component(const ComponentSweep& p, Index j, Index i, Index& moved) {
  const TiltFamily& family = p.families[i];
  const Index m = n_packs > 0 ? Index(n_packs) * PackD::lanes : family.n_levels;
  const Index at = i * p.n_weights + j;
  const double* levels = family.levels + j * family.level_stride;
  const double* log_prior = family.log_prior + j * family.prior_stride;
  const double a = p.diagonal[j];
  const double eta = p.tau * (p.residual[at] + double(p.drift[at]) + a * p.mean[at]);
  const double kappa = 0.5 * p.tau * a;

  double push[kMostLevels], e[kMostLevels];
  const bool repelled = repulsion<n_packs>(p, m, j, i, push);
  const PackD eta_p = broadcast(eta), kappa_p = broadcast(kappa);
  PackD highest = broadcast(-HUGE_VAL);
  for (Index k = 0; k < m; k += PackD::lanes) {
    const PackD w = load(levels + k);
    PackD logit = load(log_prior + k) + (eta_p - kappa_p * w) * w;
    if (repelled) logit = logit - load(push + k);
    store(e + k, logit);
    highest = max(highest, logit);
  }
  const double top = max_lanes(highest);
  PackD mass = broadcast(0.0), first = mass, second = mass, pushed = mass;
  for (Index k = 0; k < m; k += PackD::lanes) {
    const PackD w = load(levels + k), ek = exp(load(e + k) - broadcast(top));
    store(e + k, ek);
    mass = mass + ek;
    first = first + ek * w;
    second = second + ek * w * w;
    if (repelled) pushed = pushed + ek * load(push + k);
  }
  const double z = sum_lanes(mass), mean = sum_lanes(first) / z;
  const double step = mean - p.mean[at];
  const bool still = step * step * (p.tau * a + p.prior_precision[j]) <= p.threshold * p.threshold &&
                     std::fabs(kappa - p.kappa[at]) <= p.threshold * kappa;
  if (still && !repelled) return 0.0;
  double* own = p.root + (j * p.n_components + i) * m;
  const PackD z_p = broadcast(z);
  PackD kept = broadcast(0.0);
  for (Index k = 0; k < m; k += PackD::lanes) {
    const PackD root = sqrt(load(e + k) / z_p);
    kept = kept + root * load(own + k);
    store(e + k, root);
  }
  // Under repulsion q may change its shape where its mean stays.
  if (still && 1.0 - sum_lanes(kept) <= p.threshold * p.threshold) return 0.0;
  ++moved;
  for (Index k = 0; k < m; k += PackD::lanes) store(own + k, load(e + k));
  p.kappa[at] = kappa;
  p.mean[at] = mean;
  p.second[at] = sum_lanes(second) / z;
  p.gain[at] = top + std::log(z) - eta * mean + kappa * p.second[at] + (repelled ? sum_lanes(pushed) / z : 0.0);
  for (Index k = 0; k < p.n_components; ++k)
    if (p.close[i * p.n_components + k]) {
      const double* other = p.root + (j * p.n_components + k) * m;
      set_factor(p, j, i, k, overlap_factor(m, own, other));
    }
  return step;
}

// drift_i -= step_i x for every component whose mean moved: one read of x for all.
void subtract_scaled_all(Index n, Index n_moved, const float* steps, const float* x, float* const* drifts) {
  Index k = 0;
  for (; k + PackF::lanes <= n; k += PackF::lanes) {
    const PackF xk = load(x + k);
    for (Index c = 0; c < n_moved; ++c) store(drifts[c] + k, load(drifts[c] + k) - broadcast(steps[c]) * xk);
  }
  for (; k < n; ++k)
    for (Index c = 0; c < n_moved; ++c) drifts[c][k] -= steps[c] * x[k];
}

template <int n_packs>
Index sweep_components_all(const ComponentSweep& p) {
  Index moved = 0;
  float steps[kMostComponents];
  float* drifts[kMostComponents];
  for (Index j = 0; j < p.n_weights; ++j) {
    Index n_moved = 0;
    for (Index i = 0; i < p.n_components; ++i) {
      const float step = float(update_component<n_packs>(p, j, i, moved));
      if (step == 0.0f) continue;
      steps[n_moved] = step;
      drifts[n_moved++] = p.drift + i * p.n_weights;
    }
    if (n_moved > 0) subtract_scaled_all(p.n_weights, n_moved, steps, p.a + j * p.n_weights, drifts);
  }
  return moved;
}

Index sweep_components(const ComponentSweep& p) {
  return with_packs(p.families[0].n_levels, [&](auto n) { return sweep_components_all<n.value>(p); });
}

// Overlap factors of all pairs at weights begin..end.
void overlap_factors(Index n_components, Index m, const double* root, double* factor, Index begin, Index end) {
  const Index r = n_components;
  for (Index j = begin; j < end; ++j)
    for (Index i = 0; i < r; ++i) {
      factor[(j * r + i) * r + i] = 1.0;
      for (Index k = 0; k < i; ++k)
        factor[(j * r + i) * r + k] = factor[(j * r + k) * r + i] =
            overlap_factor(m, root + (j * r + i) * m, root + (j * r + k) * m);
    }
}

constexpr void fill(MixtureKernels& k) {
  k.sweep = sweep_components;
  k.overlap_factors = overlap_factors;
}
