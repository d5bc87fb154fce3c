// Klein's sampler (2000): each weight is drawn given those drawn before, a run of draws in the lanes of a pack.

// What a run has drawn at one position, and the logs of its normaliser and of its probability.
template <class T>
struct Drawn {
  Pack<T> excess, code, top, mass, logit;
};

// The first level whose cumulative mass reaches the threshold, or the most probable one. A level without prior mass has
// logit −inf and leaves the cumulative mass as it was, so that it is never the first. Without any mass, or with NaN, the
// normaliser is −inf or NaN.
template <class T, bool nearest>
PYDIRECT_INLINE Drawn<T> draw_level(Index n_levels, const T* offset, const T* scaled, const T* tilt,
                                    const Pack<T>& pull, const Pack<T>& uniform) {
  const Pack<T> half = broadcast(T(0.5));
  const auto logit_of = [&](Index k) __attribute__((always_inline)) {
    const Pack<T> z = broadcast(scaled[k]) + pull;
    return broadcast(tilt[k]) - half * z * z;
  };
  Pack<T> logit[kMostDrawLevels], cumulative[kMostDrawLevels];
  Drawn<T> d;
  d.top = logit[0] = logit_of(0);
  for (Index k = 1; k < n_levels; ++k) d.top = max(d.top, logit[k] = logit_of(k));
  d.mass = broadcast(T(0));
  for (Index k = 0; k < n_levels; ++k) {
    d.mass = d.mass + exp(logit[k] - d.top);
    cumulative[k] = d.mass;
  }
  const Pack<T> threshold = uniform * d.mass;
  d.excess = broadcast(offset[0]);
  d.code = broadcast(T(0));
  d.logit = logit[0];
  for (Index k = 1; k < n_levels; ++k) {
    const Mask<T> passed = nearest ? less(d.logit, logit[k]) : less(cumulative[k - 1], threshold);
    d.excess = select(passed, broadcast(offset[k]), d.excess);
    d.code = select(passed, broadcast(T(k)), d.code);
    d.logit = select(passed, logit[k], d.logit);
  }
  return d;
}

template <class T>
PYDIRECT_INLINE void keep(const Drawn<T>& d, const SequentialRun<T>& r, Index j) {
  constexpr Index run = kDrawRun<T>;
  T code[run], top[run], mass[run], logit[run];
  store(r.excess + j * run, d.excess);
  store(code, d.code);
  store(top, d.top);
  store(mass, d.mass);
  store(logit, d.logit);
  for (Index i = 0; i < run; ++i) r.code[j * r.code_stride + i] = std::uint8_t(code[i]);
  for (Index i = 0; i < run; i += PackD::lanes) {
    const PackD log_normaliser = load_as_double(top + i) + log(load_as_double(mass + i));
    store(r.log_normaliser + i, load(r.log_normaliser + i) + log_normaliser);
    store(r.log_q + i, load(r.log_q + i) + (load_as_double(logit + i) - log_normaliser));
  }
}

// pull (R × run) = factor (R × n_inner) excess (n_inner × run), `width` native vectors of the run at a time.
template <int R, int width, class T>
PYDIRECT_INLINE void pull_tile(Index n_inner, const T* factor, Index stride, const T* excess, T* pull) {
  typedef typename Pack<T>::vector vector;
  typedef vector unaligned __attribute__((aligned(sizeof(T)), may_alias));
  constexpr Index run = kDrawRun<T>;
  constexpr int lanes = Pack<T>::lanes / Pack<T>::parts;
  vector sum[R][width] = {};
  _Pragma("GCC unroll 1") for (Index k = 0; k < n_inner; ++k) {
    vector x[width];
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      x[w] = *reinterpret_cast<const unaligned*>(excess + k * run + w * lanes);
    PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
      const vector a = factor[r * stride + k] - vector{};
      PYDIRECT_UNROLL for (int w = 0; w < width; ++w) sum[r][w] = sum[r][w] + a * x[w];
    }
  }
  PYDIRECT_UNROLL for (int r = 0; r < R; ++r) {
    PYDIRECT_UNROLL for (int w = 0; w < width; ++w)
      *reinterpret_cast<unaligned*>(pull + r * run + w * lanes) = sum[r][w];
  }
}

template <int R, class T>
PYDIRECT_INLINE void pull_rows(Index n_inner, const T* factor, Index stride, const T* excess, T* pull) {
  constexpr int parts = Pack<T>::parts, width = parts < 2 ? 1 : 2, lanes = Pack<T>::lanes / parts;
  for (int w = 0; w < parts; w += width)
    pull_tile<R, width>(n_inner, factor, stride, excess + w * lanes, pull + w * lanes);
}

// Σ r_ji excess_i over the positions after the panel.
template <class T>
PYDIRECT_INLINE void pull_of_later(const SequentialPanel<T>& p, const T* excess, T* pull) {
  constexpr Index R = 6, run = kDrawRun<T>;
  const T *factor = p.factor + p.n_positions, *later = excess + p.n_positions * run;
  Index j = 0;
  for (; j + R <= p.n_positions; j += R)
    pull_rows<R>(p.n_later, factor + j * p.stride, p.stride, later, pull + j * run);
  for (; j < p.n_positions; ++j) pull_rows<1>(p.n_later, factor + j * p.stride, p.stride, later, pull + j * run);
}

template <class T, bool nearest>
void draw_positions(const SequentialPanel<T>& p, const SequentialRun<T>& r) {
  constexpr Index run = kDrawRun<T>;
  T pulls[kDrawPanel * run];
  pull_of_later(p, r.excess, pulls);
  for (Index j = p.n_positions - 1; j >= 0; --j) {
    Pack<T> pull = load(pulls + j * run);
    for (Index i = j + 1; i < p.n_positions; ++i)
      pull = pull + broadcast(p.factor[j * p.stride + i]) * load(r.excess + i * run);
    T uniform[run] = {};
    if constexpr (!nearest)
      for (Index i = 0; i < run; ++i) uniform[i] = T(r.uniforms[j * r.uniform_stride + i]);
    const Index at = j * p.n_levels;
    keep(draw_level<T, nearest>(p.n_levels, p.offset + at, p.scaled + at, p.tilt + at, pull, load(uniform)), r, j);
  }
}

template <class T>
void draw_panel(const SequentialPanel<T>& p, const SequentialRun<T>& r) {
  r.uniforms == nullptr ? draw_positions<T, true>(p, r) : draw_positions<T, false>(p, r);
}

template <class T>
constexpr void fill(SequentialKernels<T>& k) {
  k.draw = draw_panel<T>;
}
