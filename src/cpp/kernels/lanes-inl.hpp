// Coordinate ascent for several models of the same A at once: eight models to a pack of doubles, sixteen to a pack of
// floats. Lanes never mix, so that a model's bits do not depend on its company.

struct LaneTilt {
  PackD mean, second, top, mass;
};

// Moments of q(w) ∝ p(w) exp(eta w − kappa w²) for eight models; levels and log_prior are (n_levels, stride).
PYDIRECT_INLINE LaneTilt lane_tilt_one(Index n_levels, Index stride, const double* levels, const double* log_prior,
                                       const PackD& eta, const PackD& kappa) {
  const auto logit = [&](Index k, const PackD& w) __attribute__((always_inline)) {
    return load(log_prior + k * stride) + (eta - kappa * w) * w;
  };
  PackD top = logit(0, load(levels));
  for (Index k = 1; k < n_levels; ++k) top = max(top, logit(k, load(levels + k * stride)));
  PackD mass = broadcast(0.0), first = mass, second = mass;
  for (Index k = 0; k < n_levels; ++k) {
    const PackD w = load(levels + k * stride);
    const PackD e = exp(logit(k, w) - top);
    const PackD ew = e * w;
    mass = mass + e;
    first = first + ew;
    second = second + ew * w;
  }
  return {first / mass, second / mass, top, mass};
}

// E[log p − log q] = log Z − eta s + kappa v, with log Z = top + log(mass).
PYDIRECT_INLINE PackD lane_gain(const LaneTilt& t, const PackD& eta, const PackD& kappa) {
  double log_mass[PackD::lanes];
  store(log_mass, t.mass);
  for (double& m : log_mass) m = std::log(m);
  return t.top + load(log_mass) - eta * t.mean + kappa * t.second;
}

PYDIRECT_INLINE LaneTilt lane_tilt_at(const LaneFamily& f, Index j, Index lane, const PackD& eta, const PackD& kappa) {
  return lane_tilt_one(f.n_levels, f.stride, f.levels + j * f.level_stride + lane,
                       f.log_prior + j * f.prior_stride + lane, eta, kappa);
}

// Sets eight models' q_j.
PYDIRECT_INLINE LaneTilt lane_set(const LaneFamily& f, const LaneMoments& m, Index j, Index lane, const PackD& eta,
                                  const PackD& kappa) {
  const LaneTilt t = lane_tilt_at(f, j, lane, eta, kappa);
  const Index at = j * f.stride + lane;
  store(m.mean + at, t.mean);
  store(m.second + at, t.second);
  store(m.gain + at, lane_gain(t, eta, kappa));
  return t;
}

void lane_tilt(const LaneFamily& f, const LaneMoments& m, Index begin, Index end, Index first, Index count) {
  for (Index j = begin; j < end; ++j)
    for (Index lane = first; lane < first + count; lane += PackD::lanes)
      lane_set(f, m, j, lane, load(m.eta + j * f.stride + lane), load(m.kappa + j * f.stride + lane));
}

// y (R × width vectors) += Σ_m a[r lda + index_m] x_m, in the order of m; without an index the columns are 0, 1, ….
template <int R, int width, bool indexed>
PYDIRECT_INLINE void lane_tile(Index n_inner, const float* a, Index lda, const Index* index, const float* x,
                               Index x_stride, float* y, Index y_stride) {
  typedef PackF::vector vector;
  typedef vector unaligned __attribute__((aligned(sizeof(float)), may_alias));
  constexpr int lanes = PackF::lanes / PackF::parts;
  vector sum[R][width];
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      sum[r][w] = *reinterpret_cast<const unaligned*>(y + r * y_stride + w * lanes);
  }
  _Pragma("GCC unroll 1") for (Index m = 0; m < n_inner; ++m) {
    const float* am = a + (indexed ? index[m] : m);
    vector xw[width];
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      xw[w] = *reinterpret_cast<const unaligned*>(x + m * x_stride + w * lanes);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const vector ar = am[r * lda] - vector{};
      PYDIRECT_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = sum[r][w] + ar * xw[w];
    }
  }
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      *reinterpret_cast<unaligned*>(y + r * y_stride + w * lanes) = sum[r][w];
  }
}

constexpr int kLaneRows = 6;  // of a tile: twelve accumulators with two vectors each

template <int R, bool indexed>
PYDIRECT_INLINE void lane_rows(Index n_inner, const float* a, Index lda, const Index* index, const float* x,
                               Index x_stride, float* y, Index y_stride, Index count) {
  constexpr int width = PackF::parts < 2 ? 1 : 2;
  constexpr int lanes = PackF::lanes / PackF::parts;
  for (Index lane = 0; lane < count; lane += width * lanes)
    lane_tile<R, width, indexed>(n_inner, a, lda, index, x + lane, x_stride, y + lane, y_stride);
}

template <bool indexed>
void lane_range(Index begin, Index end, Index n_inner, const float* a, Index lda, const Index* index, const float* x,
                Index x_stride, float* y, Index y_stride, Index count) {
  Index i = begin;
  for (; i + kLaneRows <= end; i += kLaneRows) {
    // The rows of the next tile lie elsewhere, where no prefetcher guesses them.
    if (i + 2 * kLaneRows <= end)
      for (Index r = 0; r < kLaneRows; ++r) {
        const float* next = a + (i + kLaneRows + r) * lda + (indexed ? index[0] : 0);
        PYDIRECT_UNROLL for (int line = 0; line < 8; ++line) __builtin_prefetch(next + 16 * line);
      }
    lane_rows<kLaneRows, indexed>(n_inner, a + i * lda, lda, index, x, x_stride, y + i * y_stride, y_stride, count);
  }
  for (; i < end; ++i)
    lane_rows<1, indexed>(n_inner, a + i * lda, lda, index, x, x_stride, y + i * y_stride, y_stride, count);
}

void lane_product(Index begin, Index end, Index n_inner, const float* a, Index lda, const float* x, float* y,
                  Index stride, Index first, Index count) {
  constexpr Index step = 128;  // rows of x that the first-level cache holds
  for (Index k = 0; k < n_inner; k += step) {
    const Index n = n_inner - k < step ? n_inner - k : step;
    lane_range<false>(begin, end, n, a + k, lda, nullptr, x + k * stride + first, stride, y + first, stride, count);
  }
}

constexpr Index kLaneBlock = 64;  // weights whose moves reach the other rows of A together

// Moves eight models' weight j to its maximiser, as sweep_all does; steps (8,) and their number in each lane.
PYDIRECT_INLINE bool lane_move(const LaneFamily& f, const LaneSweep& p, Index j, Index lane, float* steps) {
  const LaneMoments& m = p.moments;
  const Index at = j * f.stride + lane;
  const PackD a = broadcast(p.diagonal[j]), tau = load(p.tau + lane), threshold = load(p.threshold + lane);
  const PackD mean = load(m.mean + at), kappa_old = load(m.kappa + at);
  const PackD eta = tau * (load(p.residual + at) + load_widened(p.drift + at) + a * mean);
  const PackD kappa = broadcast(0.5) * tau * a;
  const LaneTilt t = lane_tilt_at(f, j, lane, eta, kappa);
  const PackD step = t.mean - mean;
  const PackD size = step * step * (tau * a + load(p.prior_precision + at));
  const PackD zero = broadcast(0.0), one = broadcast(1.0);
  const PackD wider = select(less(threshold * kappa, abs(kappa - kappa_old)), one, zero);
  const PackD moves = select(less(threshold * threshold, size), one, wider);
  if (sum_lanes(moves) == 0.0) {
    for (int l = 0; l < PackD::lanes; ++l) steps[l] = 0.0f;
    return false;
  }
  const Mask<double> moved = less(zero, moves);
  store(m.eta + at, select(moved, eta, load(m.eta + at)));
  store(m.kappa + at, select(moved, kappa, kappa_old));
  store(m.mean + at, select(moved, t.mean, mean));
  store(m.second + at, select(moved, t.second, load(m.second + at)));
  store(m.gain + at, select(moved, lane_gain(t, eta, kappa), load(m.gain + at)));
  store(p.moved + lane, load(p.moved + lane) + moves);
  double taken[PackD::lanes];
  store(taken, select(moved, zero - step, zero));
  for (int l = 0; l < PackD::lanes; ++l) steps[l] = float(taken[l]);
  return true;
}

void lane_sweep(const LaneFamily& f, const LaneSweep& p, Index first, Index count) {
  float steps[kLaneBlock * kMostLanes];
  Index moved[kLaneBlock];
  const Index n = p.n_weights, stride = f.stride;
  float* drift = p.drift + first;
  for (Index lane = first; lane < first + count; ++lane) p.moved[lane] = 0.0;
  for (Index begin = 0; begin < n; begin += kLaneBlock) {
    const Index end = begin + kLaneBlock < n ? begin + kLaneBlock : n;
    Index n_moved = 0;
    for (Index j = begin; j < end; ++j) {
      float* own = steps + n_moved * count;
      bool any = false;
      for (Index lane = 0; lane < count; lane += PackD::lanes) any |= lane_move(f, p, j, first + lane, own + lane);
      if (!any) continue;
      moved[n_moved++] = j;
      for (Index i = begin; i < end; ++i) {
        const PackF a = broadcast(p.a[j * n + i]);
        for (Index lane = 0; lane < count; lane += PackF::lanes)
          store(drift + i * stride + lane, load(drift + i * stride + lane) + a * load(own + lane));
      }
    }
    if (n_moved == 0) continue;
    lane_range<true>(0, begin, n_moved, p.a, n, moved, steps, count, drift, stride, count);
    lane_range<true>(end, n, n_moved, p.a, n, moved, steps, count, drift, stride, count);
  }
}

void lane_lattice(const LaneFamily& f, const LaneLattice& p, Index first, Index count) {
  const Index n = p.n_weights, stride = f.stride;
  const LaneMoments& m = p.moments;
  for (Index end = n; end > 0; end -= (end - 1) % kLaneBlock + 1) {
    const Index begin = end - ((end - 1) % kLaneBlock + 1);
    lane_product(begin, end, n - end, p.factor + end, n, p.excess + end * stride, p.pull, stride, first, count);
    for (Index j = end - 1; j >= begin; --j) {
      const float* row = p.factor + j * n;
      float* pull = p.pull + j * stride;
      for (Index lane = first; lane < first + count; lane += PackF::lanes) {
        PackF sum = load(pull + lane);
        for (Index k = j + 1; k < end; ++k) sum = sum + broadcast(row[k]) * load(p.excess + k * stride + lane);
        store(pull + lane, sum);
      }
      const PackD a = broadcast(p.diagonal[j]);
      for (Index lane = first; lane < first + count; lane += PackD::lanes) {
        const Index at = j * stride + lane;
        const PackD ridge = load(p.ridge + at), tau = load(p.tau + lane);
        const PackD centre = ridge - load_widened(pull + lane) / broadcast(double(row[j]));
        const PackD eta = centre * (tau * a + load(p.prior_precision + at));
        const PackD kappa = broadcast(0.5) * tau * a;
        store(m.eta + at, eta);
        store(m.kappa + at, kappa);
        double excess[PackD::lanes];
        store(excess, lane_set(f, m, j, lane, eta, kappa).mean - ridge);
        for (int l = 0; l < PackD::lanes; ++l) p.excess[at + l] = float(excess[l]);
      }
    }
  }
}

constexpr void fill(LaneKernels& k) {
  k.tilt = lane_tilt;
  k.sweep = lane_sweep;
  k.lattice = lane_lattice;
  k.product = lane_product;
}
