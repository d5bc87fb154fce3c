// Rows of a Gaussian process' covariance and of its gradient. Rows are padded to whole packs by the caller, so that
// there is one loop and no tail; what stands in the padding is never used.

PYDIRECT_INLINE PackD distance_squared(const PackD& product, const PackD& norm, double own_norm) {
  return max(broadcast(own_norm) + norm - broadcast(2.0) * product, broadcast(0.0));
}

void covariance_row(const CovarianceRow& p) {
  const PackD root3 = broadcast(1.7320508075688772935), zero = broadcast(0.0), one = broadcast(1.0);
  for (Index k = 0; k < p.n; k += PackD::lanes) {
    const PackD t = root3 * sqrt(distance_squared(load(p.ard + k), load(p.ard_norm + k), p.own_ard_norm));
    const PackD e = broadcast(p.ard_amplitude) * exp(zero - t);
    const PackD r = sqrt(distance_squared(load(p.isotropic + k), load(p.isotropic_norm + k), p.own_isotropic_norm));
    const PackD rough = broadcast(p.isotropic_amplitude) * exp(zero - r);
    store(p.ard + k, e);
    store(p.isotropic + k, r);
    store(p.covariance + k, (one + t) * e + rough + broadcast(p.linear_amplitude) * load(p.linear + k) +
                                broadcast(p.constant));
  }
}

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
    store(p.distance_weight + k, broadcast(-1.5) * m * load(p.ard + k));
    sums[0] = sums[0] + rough;
    sums[1] = sums[1] + rough * r;
    sums[2] = sums[2] + m * load(p.linear + k);
    sums[3] = sums[3] + m;
  }
  for (int i = 0; i < 4; ++i) p.sums[i] = sum_lanes(sums[i]);
}

constexpr void fill(GaussianProcessKernels& k) {
  k.covariance_row = covariance_row;
  k.gradient_row = covariance_gradient_row;
}
