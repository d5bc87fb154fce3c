// The tilted categorical family q(w) ∝ p(w) exp(eta w − kappa w²) and coordinate ascent on it.

struct TiltResult {
  double mean, second, gain;
};

// Moments of one weight. gain = E[log p − log q] = log Z − eta s + kappa v, by the definition of q.
inline TiltResult tilt_one(Index n_levels, const double* levels, const double* log_prior, double eta, double kappa) {
  const PackD eta_p = broadcast(eta), kappa_p = broadcast(kappa);
  const auto logit = [&](Index k, const PackD& w) { return load(log_prior + k) + (eta_p - kappa_p * w) * w; };

  PackD highest = logit(0, load(levels));
  for (Index k = PackD::lanes; k < n_levels; k += PackD::lanes) highest = max(highest, logit(k, load(levels + k)));
  const double top = max_lanes(highest);
  const PackD top_p = broadcast(top);

  PackD mass = broadcast(0.0), first = mass, second = mass;
  for (Index k = 0; k < n_levels; k += PackD::lanes) {
    const PackD w = load(levels + k);
    const PackD e = exp(logit(k, w) - top_p);
    const PackD ew = e * w;
    mass = mass + e;
    first = first + ew;
    second = second + ew * w;
  }
  const double z = sum_lanes(mass);
  const double s = sum_lanes(first) / z, v = sum_lanes(second) / z;
  return {s, v, top + std::log(z) - eta * s + kappa * v};
}

void tilt(const TiltFamily& family, const TiltMoments& m, Index begin, Index end) {
  for (Index j = begin; j < end; ++j) {
    const TiltResult t = tilt_one(family.n_levels, family.levels + j * family.level_stride,
                                  family.log_prior + j * family.prior_stride, m.eta[j], m.kappa[j]);
    m.mean[j] = t.mean;
    m.second[j] = t.second;
    m.gain[j] = t.gain;
  }
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

void subtract_scaled(Index n, float alpha, const float* x, float* y);

// For each weight in turn the exact maximiser of the ELBO given the others (the fixed point of Theorem 1's
// gradient). A weight that hardly moves keeps its q, and costs no read of A.
Index sweep(const TiltFamily& family, const Sweep& p) {
  Index moved = 0;
  for (Index j = 0; j < p.n_weights; ++j) {
    const double a = p.diagonal[j];
    const double eta = p.tau * (p.residual[j] + double(p.drift[j]) + a * p.mean[j]);
    const double kappa = 0.5 * p.tau * a;
    const TiltResult t = tilt_one(family.n_levels, family.levels + j * family.level_stride,
                                  family.log_prior + j * family.prior_stride, eta, kappa);
    const double step = t.mean - p.mean[j];
    if (std::fabs(step) * std::sqrt(p.tau * a + 1.0) <= p.threshold) continue;
    ++moved;
    p.eta[j] = eta;
    p.kappa[j] = kappa;
    p.mean[j] = t.mean;
    p.second[j] = t.second;
    p.gain[j] = t.gain;
    subtract_scaled(p.n_weights, float(step), p.a + j * p.lda, p.drift);
  }
  return moved;
}

void exp_array(Index n, const double* x, double* out) {
  double buffer[PackD::lanes];
  for (Index k = 0; k < n; k += PackD::lanes) {
    const Index count = n - k < PackD::lanes ? n - k : Index(PackD::lanes);
    for (Index i = 0; i < PackD::lanes; ++i) buffer[i] = i < count ? x[k + i] : 0.0;
    store(buffer, exp(load(buffer)));
    for (Index i = 0; i < count; ++i) out[k + i] = buffer[i];
  }
}
