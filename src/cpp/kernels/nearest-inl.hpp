// Conditional densities of eight targets at a time, each with its own small covariance matrix: lanes are targets, so
// that factors, solutions and sums over pairs are plain loops over packs. Matérn functions are those of
// gaussian_process-inl.hpp.

PYDIRECT_INLINE const double* at(const double* p, Index i) { return p + i * PackD::lanes; }
PYDIRECT_INLINE double* at(double* p, Index i) { return p + i * PackD::lanes; }

void nearest_pairs(const double* x, Index n_rows, Index n_inputs, double* out) {
  for (Index c = 0; c < n_inputs; c += kInputsTogether) {
    for (Index j = 1; j < n_rows; ++j) {
      PackD own[kInputsTogether];
      PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) own[i] = load(at(x, (c + i) * n_rows + j));
      for (Index l = 0; l < j; ++l) {
        double* const pair = at(out, j * (j - 1) / 2 + l);
        PackD sum = c == 0 ? broadcast(0.0) : load(pair);
        PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) {
          const PackD delta = own[i] - load(at(x, (c + i) * n_rows + l));
          sum = sum + delta * delta;
        }
        store(pair, sum);
      }
    }
  }
}

// The covariance in `triangle`, packed with its diagonal, and what the gradient needs of it.
template <class Radial>
void nearest_covariance(const NearestGroup& p) {
  const Index n_rows = p.n_neighbours + 1;
  const PackD zero = broadcast(0.0), root = broadcast(Radial::root), shrink = broadcast(-1 / p.isotropic_length_scale);
  const PackD own = broadcast(p.ard_amplitude + p.isotropic_amplitude);
  nearest_pairs(p.x, n_rows, p.n_inputs, p.slope);
  for (Index j = 0; j < n_rows; ++j) {
    const PackD present = load(at(p.present, j));
    for (Index l = 0; l < j; ++l) {
      const Index pair = j * (j - 1) / 2 + l;
      const PackD t = root * Radial::of_square(load(at(p.slope, pair)));
      const PackD e = broadcast(p.ard_amplitude) * exp(zero - t);
      const PackD rough = broadcast(p.isotropic_amplitude) * exp(shrink * load(at(p.isotropic, pair)));
      store(at(p.slope, pair), Radial::slope(t, e));
      store(at(p.rough, pair), rough);
      store(at(p.triangle, pair + j), present * load(at(p.present, l)) * (Radial::value(t, e) + rough));
    }
    store(at(p.triangle, j * (j + 1) / 2 + j), own + load(at(p.noise, j)));
  }
}

// Cholesky's factor in place of the triangle; returns whether there is one.
PYDIRECT_INLINE bool nearest_factor(double* triangle, Index n_rows) {
  PackD least = broadcast(1.0);
  for (Index q = 0; q < n_rows; ++q) {
    double* const diagonal = at(triangle, q * (q + 1) / 2 + q);
    const PackD pivot = load(diagonal);
    least = min(least, pivot);
    const PackD root = sqrt(pivot), inverse = broadcast(1.0) / root;
    store(diagonal, root);
    for (Index j = q + 1; j < n_rows; ++j) {
      double* const entry = at(triangle, j * (j + 1) / 2 + q);
      store(entry, load(entry) * inverse);
    }
    for (Index j = q + 1; j < n_rows; ++j) {
      const PackD factor = load(at(triangle, j * (j + 1) / 2 + q));
      for (Index l = q + 1; l <= j; ++l) {
        double* const entry = at(triangle, j * (j + 1) / 2 + l);
        store(entry, load(entry) - factor * load(at(triangle, l * (l + 1) / 2 + q)));
      }
    }
  }
  double lanes[PackD::lanes];
  store(lanes, least);
  bool positive = true;
  for (int i = 0; i < PackD::lanes; ++i) positive = positive && lanes[i] > 0.0;
  return positive;
}

// Lᵀ z = z in place, of the first n rows of a packed factor.
PYDIRECT_INLINE void nearest_back(const double* triangle, Index n, double* z) {
  for (Index j = n; j-- > 0;) {
    const PackD solved = load(at(z, j)) / load(at(triangle, j * (j + 1) / 2 + j));
    store(at(z, j), solved);
    for (Index l = 0; l < j; ++l) {
      double* const entry = at(z, l);
      store(entry, load(entry) - solved * load(at(triangle, j * (j + 1) / 2 + l)));
    }
  }
}

template <class Radial>
void nearest_evidence(NearestGroup& p) {
  const Index k = p.n_neighbours, n_rows = k + 1;
  nearest_covariance<Radial>(p);
  p.is_valid = nearest_factor(p.triangle, n_rows);
  if (!p.is_valid) return;
  const double* const last = at(p.triangle, k * (k + 1) / 2);
  const PackD counts = load(at(p.present, k)), zero = broadcast(0.0), half = broadcast(0.5);
  const PackD variance = load(at(last, k)) * load(at(last, k));
  store(p.variance, variance);
  for (Index j = 0; j < k; ++j) store(at(p.b, j), load(at(last, j)));
  nearest_back(p.triangle, k, p.b);
  store(at(p.b, k), broadcast(-1.0));
  PackD squares = zero;
  for (Index o = 0; o < p.n_outputs; ++o) {
    const double* const residual = at(p.residual, o * n_rows);
    double* const alpha = at(p.alpha, o * n_rows);
    PackD error = load(at(residual, k));
    for (Index j = 0; j < k; ++j) {
      PackD rest = load(at(residual, j));
      for (Index l = 0; l < j; ++l) rest = rest - load(at(p.triangle, j * (j + 1) / 2 + l)) * load(at(alpha, l));
      rest = rest / load(at(p.triangle, j * (j + 1) / 2 + j));
      store(at(alpha, j), rest);
      error = error - rest * load(at(last, j));
    }
    nearest_back(p.triangle, k, alpha);
    // ½ e/v times α: what W below is made of
    const PackD pull = half * counts * error / variance;
    for (Index j = 0; j < k; ++j) store(at(alpha, j), pull * load(at(alpha, j)));
    store(at(alpha, k), zero);
    squares = squares + error * error;
  }
  const PackD n_outputs = broadcast(double(p.n_outputs));
  const PackD misfit = squares / variance;
  p.sums[0] = sum_lanes(half * counts * (n_outputs * (broadcast(kLog2Pi) + log(variance)) + misfit));
  if (p.gradient == nullptr) return;
  // W_jl = g b_j b_l + ½ h (b_j α_l + b_l α_j) is the derivative in entry (j, l); every pair stands for two of them.
  const PackD own = half * counts * (n_outputs - misfit), g = own / variance, two = broadcast(2.0);
  PackD noise = zero, rough = zero, distance = zero;
  for (Index j = 0; j < n_rows; ++j) {
    const PackD b = load(at(p.b, j)), gb = g * b;
    for (Index l = 0; l < j; ++l) {
      const Index pair = j * (j - 1) / 2 + l;
      PackD w = gb * load(at(p.b, l));
      for (Index o = 0; o < p.n_outputs; ++o) {
        const double* const alpha = at(p.alpha, o * n_rows);
        w = w + b * load(at(alpha, l)) + load(at(p.b, l)) * load(at(alpha, j));
      }
      w = two * w;
      const PackD part = w * load(at(p.rough, pair));
      rough = rough + part;
      distance = distance + part * load(at(p.isotropic, pair));
      store(at(p.slope, pair), two * w * load(at(p.slope, pair)));
    }
    PackD w = gb * b;
    for (Index o = 0; o < p.n_outputs; ++o) w = w + two * b * load(at(p.alpha, o * n_rows + j));
    noise = noise + w * load(at(p.noise, j));
    rough = rough + w * broadcast(p.isotropic_amplitude);
  }
  p.sums[1] = sum_lanes(noise);
  p.sums[3] = sum_lanes(rough);
  p.sums[2] = sum_lanes(own) - p.sums[1] - p.sums[3];  // Σ W C = g v over all parts
  p.distance = sum_lanes(distance) / p.isotropic_length_scale;
  for (Index c = 0; c < p.n_inputs; c += kInputsTogether) {
    PackD sums[kInputsTogether];
    PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) sums[i] = zero;
    for (Index j = 1; j < n_rows; ++j) {
      PackD x[kInputsTogether];
      PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) x[i] = load(at(p.x, (c + i) * n_rows + j));
      for (Index l = 0; l < j; ++l) {
        const PackD weight = load(at(p.slope, j * (j - 1) / 2 + l));
        PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) {
          const PackD delta = x[i] - load(at(p.x, (c + i) * n_rows + l));
          sums[i] = sums[i] + weight * (delta * delta);
        }
      }
    }
    PYDIRECT_UNROLL for (int i = 0; i < kInputsTogether; ++i) store(at(p.gradient, c + i), sums[i]);
  }
}

void nearest_scan(const NearestScan& p) {
  for (Index l = 0; l < p.count; l += PackF::lanes) {
    PackF sum = p.start == nullptr ? broadcast(0.0f) : load(p.start + l);
    for (Index k = 0; k < p.n_moved; ++k) {
      const float* const x = p.x + p.moved[k] * p.stride;
      const PackF delta = load(x + l) - broadcast(p.own[p.moved[k]]), away = load(x + l) - broadcast(x[0]);
      sum = sum + (delta * delta - away * away);
    }
    for (Index k = 0; k < p.n_dense; ++k) {
      const PackF delta = load(p.x + p.dense[k] * p.stride + l) - broadcast(p.own[p.dense[k]]);
      sum = sum + delta * delta;
    }
    store(p.out + l, sum);
  }
}

constexpr void fill(NearestKernels& k) {
  k.evidence[0] = nearest_evidence<Matern12>;
  k.evidence[1] = nearest_evidence<Matern32>;
  k.evidence[2] = nearest_evidence<Matern52>;
  k.evidence[3] = nearest_evidence<SquaredExponential>;
  k.pairs = nearest_pairs;
  k.scan = nearest_scan;
}
