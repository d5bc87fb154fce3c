// The tilted categorical family q(w) ∝ p(w) exp(eta w − kappa w²) and coordinate ascent on it.

template <int n>
struct Number {
  static constexpr int value = n;
};

// Calls body(Number<n_packs>) with the number of packs of a row of levels: known to the compiler for the usual sizes,
// so that everything stays in registers; 0 means any number, given at run time.
template <class Body>
PYDIRECT_INLINE auto with_packs(Index n_levels, const Body& body) {
  switch (n_levels / PackD::lanes) {
    case 1: return body(Number<1>{});
    case 2: return body(Number<2>{});
    case 4: return body(Number<4>{});
    default: return body(Number<0>{});
  }
}

struct Tilt {
  double mean, second;  // E w, E w²
  double top, mass;     // log of the normaliser = top + log(mass)

  // E[log p − log q] = log Z − eta s + kappa v, by the definition of q.
  PYDIRECT_INLINE double gain(double eta, double kappa) const {
    return top + std::log(mass) - eta * mean + kappa * second;
  }
};

// Moments of one weight.
template <int n_packs>
PYDIRECT_INLINE Tilt tilt_one(Index n_levels, const double* levels, const double* log_prior, double eta, double kappa) {
  const PackD eta_p = broadcast(eta), kappa_p = broadcast(kappa);
  const auto logit = [&](Index k, const PackD& w) { return load(log_prior + k) + (eta_p - kappa_p * w) * w; };
  const Index n = n_packs > 0 ? Index(n_packs) * PackD::lanes : n_levels;
  constexpr int kept = n_packs > 0 ? n_packs : 1;

  PackD kept_logits[kept];
  PackD highest = kept_logits[0] = logit(0, load(levels));
  for (Index k = PackD::lanes; k < n; k += PackD::lanes) {
    const PackD l = logit(k, load(levels + k));
    if (n_packs > 0) kept_logits[k / PackD::lanes] = l;
    highest = max(highest, l);
  }
  const double top = max_lanes(highest);
  const PackD top_p = broadcast(top);

  PackD mass = broadcast(0.0), first = mass, second = mass;
  for (Index k = 0; k < n; k += PackD::lanes) {
    const PackD w = load(levels + k);
    const PackD e = exp((n_packs > 0 ? kept_logits[k / PackD::lanes] : logit(k, w)) - top_p);
    const PackD ew = e * w;
    mass = mass + e;
    first = first + ew;
    second = second + ew * w;
  }
  const double z = sum_lanes(mass);
  return {sum_lanes(first) / z, sum_lanes(second) / z, top, z};
}

template <int n_packs>
void tilt_range(const TiltFamily& family, const TiltMoments& m, Index begin, Index end) {
  for (Index j = begin; j < end; ++j) {
    const Tilt t = tilt_one<n_packs>(family.n_levels, family.levels + j * family.level_stride,
                                     family.log_prior + j * family.prior_stride, m.eta[j], m.kappa[j]);
    m.mean[j] = t.mean;
    m.second[j] = t.second;
    m.gain[j] = t.gain(m.eta[j], m.kappa[j]);
  }
}

void tilt(const TiltFamily& family, const TiltMoments& m, Index begin, Index end) {
  with_packs(family.n_levels, [&](auto n) { tilt_range<n.value>(family, m, begin, end); });
}

void tilt_probabilities(const TiltFamily& family, const double* eta, const double* kappa, double* q, Index begin,
                        Index end) {
  for (Index j = begin; j < end; ++j) {
    const double* levels = family.levels + j * family.level_stride;
    const double* log_prior = family.log_prior + j * family.prior_stride;
    double* row = q + j * family.n_levels;
    double top = -HUGE_VAL;
    for (Index k = 0; k < family.n_levels; ++k) {
      row[k] = log_prior[k] + (eta[j] - kappa[j] * levels[k]) * levels[k];
      top = row[k] > top ? row[k] : top;
    }
    PackD mass = broadcast(0.0);
    for (Index k = 0; k < family.n_levels; k += PackD::lanes) {
      const PackD e = exp(load(row + k) - broadcast(top));
      store(row + k, e);
      mass = mass + e;
    }
    const PackD total = broadcast(sum_lanes(mass));
    for (Index k = 0; k < family.n_levels; k += PackD::lanes) store(row + k, load(row + k) / total);
  }
}

// For each weight in turn the exact maximiser of the ELBO given the others (the fixed point of Theorem 1's
// gradient). A weight that hardly moves keeps its q, and costs no read of A.
template <int n_packs, class T>
Index sweep_all(const TiltFamily& family, const Sweep<T>& p) {
  Index moved = 0;
  for (Index i = 0; i < p.n_weights; ++i) {
    const Index j = p.order[i];
    const double a = p.diagonal[j];
    const double eta = p.tau * (p.residual[j] + a * p.mean[j]);
    const double kappa = 0.5 * p.tau * a;
    const Tilt t = tilt_one<n_packs>(family.n_levels, family.levels + j * family.level_stride,
                                     family.log_prior + j * family.prior_stride, eta, kappa);
    const double step = t.mean - p.mean[j];
    const bool still = step * step * (p.tau * a + p.prior_precision[j]) <= p.threshold * p.threshold;
    // A mean that stays may still have to change its width: with a new tau, or away from a start at the prior.
    if (still && std::fabs(kappa - p.kappa[j]) <= p.threshold * kappa) continue;
    ++moved;
    p.eta[j] = eta;
    p.kappa[j] = kappa;
    p.mean[j] = t.mean;
    p.second[j] = t.second;
    p.gain[j] = t.gain(eta, kappa);
    if (step != 0.0) subtract_scaled(p.n_weights, step, p.a + j * p.lda, p.residual);
  }
  return moved;
}

template <class T>
Index sweep(const TiltFamily& family, const Sweep<T>& p) {
  return with_packs(family.n_levels, [&](auto n) { return sweep_all<n.value>(family, p); });
}

constexpr void fill(TiltKernels& k) {
  k.moments = tilt;
  k.probabilities = tilt_probabilities;
  k.sweep = sweep<float>;
  k.exact_sweep = sweep<double>;
}
