// Counter-based draws of base laws and their power sums.
// A draw is a function of (seed, epoch, purpose, weight, number of the draw) alone.

constexpr double kLargestBelowOne = 1.0 - 0x1p-53;

struct Words {
  using vector = Native<double>::uvector;
  vector v[PackD::parts];
};

// Products of 32-bit words in 64-bit lanes.
PYDIRECT_INLINE Words::vector multiply_words(const Words::vector& a, const Words::vector& b) {
#if defined(__AVX512F__)
  return (Words::vector)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Words::vector)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Words::vector)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return a * b;
#endif
}

PYDIRECT_INLINE Words broadcast_word(unsigned word) {
  Words w;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) w.v[i] = word + Words::vector{};
  return w;
}

// Philox 4x32-10 (Salmon et al. 2011), one counter per lane.
PYDIRECT_INLINE void philox(std::uint64_t seed, const Words (&counter)[4], Words (&out)[4]) {
  const Words::vector zero{}, low_word = zero + 0xFFFFFFFFULL;
  const Words::vector m0 = zero + 0xD2511F53ULL, m1 = zero + 0xCD9E8D57ULL;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Words::vector c0 = counter[0].v[i], c1 = counter[1].v[i], c2 = counter[2].v[i], c3 = counter[3].v[i];
    unsigned k0 = unsigned(seed), k1 = unsigned(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const Words::vector p0 = multiply_words(m0, c0), p1 = multiply_words(m1, c2);
      c0 = (p1 >> 32) ^ c1 ^ (zero + k0);
      c2 = (p0 >> 32) ^ c3 ^ (zero + k1);
      c1 = p1 & low_word;
      c3 = p0 & low_word;
    }
    out[0].v[i] = c0;
    out[1].v[i] = c1;
    out[2].v[i] = c2;
    out[3].v[i] = c3;
  }
}

// Counters (pair of draws, weight, epoch, use).
PYDIRECT_OUT_OF_LINE void philox(const DrawBlock& b, const Words& column, unsigned pair, unsigned use,
                                Words (&out)[4]) {
  const Words counter[4] = {broadcast_word(pair), column, broadcast_word(b.epoch), broadcast_word(use)};
  philox(b.seed, counter, out);
}

// (k + 1/2) 2⁻⁵² for 52 random bits k: never 0, never 1, as likely as its complement.
PYDIRECT_INLINE PackD uniform(const Words& low, const Words& high) {
  PackD u;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    const Words::vector bits = (((high.v[i] << 32) | low.v[i]) >> 12) | 0x3ff0000000000000ULL;
    __builtin_memcpy(&u.v[i], &bits, sizeof bits);
    u.v[i] = u.v[i] - kLargestBelowOne;
  }
  return u;
}

// Minus or plus x, by a bit that `uniform` leaves.
PYDIRECT_INLINE PackD with_random_sign(const PackD& x, const Words& low) {
  PackD r;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Words::vector bits;
    __builtin_memcpy(&bits, &x.v[i], sizeof bits);
    bits = bits ^ (low.v[i] << 63);
    __builtin_memcpy(&r.v[i], &bits, sizeof bits);
  }
  return r;
}

PYDIRECT_INLINE Mask<double> both(const Mask<double>& a, const Mask<double>& b) {
  Mask<double> m;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) m.v[i] = a.v[i] & b.v[i];
  return m;
}

PYDIRECT_INLINE bool in_all_lanes(const Mask<double>& m) {
  long long lane[PackD::lanes], all = -1;
  __builtin_memcpy(lane, m.v, sizeof lane);
  for (int i = 0; i < PackD::lanes; ++i) all &= lane[i];
  return all != 0;
}

// Lane l of step m holds the counter of the numbers 16 m + l and 16 m + 8 + l.
void uniforms(std::uint64_t seed, std::uint64_t weight, unsigned stream, Index n, double* out) {
  unsigned long long first[PackD::lanes];
  for (int l = 0; l < PackD::lanes; ++l) first[l] = unsigned(l);
  Words counter[4] = {{}, broadcast_word(unsigned(weight)), broadcast_word(unsigned(weight >> 32)),
                      broadcast_word(stream)};
  __builtin_memcpy(counter[0].v, first, sizeof first);
  for (Index i = 0; i < n; i += 2 * PackD::lanes) {
    Words w[4];
    philox(seed, counter, w);
    store(out + i, uniform(w[0], w[1]));
    store(out + i + PackD::lanes, uniform(w[2], w[3]));
    PYDIRECT_UNROLL for (int p = 0; p < PackD::parts; ++p) counter[0].v[p] += PackD::lanes;
  }
}

// x^r given log x; no more than exp can hold.
PYDIRECT_INLINE PackD power_of(const PackD& log_x, double r) {
  return exp(min(broadcast(r) * log_x, broadcast(709.0)));
}

// Two draws in every lane; log_xi for positive laws only, and only where it is asked for.
struct DrawPair {
  PackD xi[2], log_xi[2];
};

enum : unsigned { kFirstPart = 0, kSecondPart = 1, kThirdPart = 2 };

PYDIRECT_INLINE void uniform_pair(const DrawBlock& b, const Words& column, unsigned pair, unsigned use, PackD (&u)[2]) {
  Words w[4];
  philox(b, column, pair, use, w);
  u[0] = uniform(w[0], w[1]);
  u[1] = uniform(w[2], w[3]);
}

// Box and Muller.
PYDIRECT_OUT_OF_LINE void normal_pair(const DrawBlock& b, const Words& column, unsigned pair, unsigned use,
                                      PackD (&z)[2]) {
  PackD u[2], sine, cosine;
  uniform_pair(b, column, pair, use, u);
  const PackD radius = sqrt(broadcast(-2.0) * log(u[0]));
  sincos_turns(u[1], sine, cosine);
  z[0] = radius * cosine;
  z[1] = radius * sine;
}

// Marsaglia and Tsang 2000: d (1 + c z)³ is Gamma(d + 1/3) once accepted; an attempt has counters of its own.
PYDIRECT_OUT_OF_LINE void gamma_pair(const DrawBlock& b, const Words& column, unsigned pair, PackD (&xi)[2],
                                     PackD (&log_xi)[2]) {
  const PackD one = broadcast(1.0), zero = broadcast(0.0);
  const double shape = b.shape < 1.0 ? b.shape + 1.0 : b.shape;
  const PackD d = broadcast(shape - 1.0 / 3.0), c = broadcast(1.0 / (3.0 * std::sqrt(shape - 1.0 / 3.0)));
  Mask<double> done[2] = {less(one, zero), less(one, zero)};
  for (unsigned attempt = 0; !in_all_lanes(both(done[0], done[1])); ++attempt) {
    PackD z[2], u[2];
    normal_pair(b, column, pair, b.purpose | kFirstPart << 2 | attempt << 4, z);
    uniform_pair(b, column, pair, b.purpose | kSecondPart << 2 | attempt << 4, u);
    PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
      const PackD root = one + c * z[i], cube = root * root * root;
      const Mask<double> positive = less(zero, cube);
      const PackD v = select(positive, cube, one), log_v = log(v);
      const PackD limit = broadcast(0.5) * z[i] * z[i] + d * (one - v + log_v);
      const Mask<double> accepted = both(positive, less(log(u[i]), limit));
      xi[i] = select(done[i], xi[i], d * v);
      log_xi[i] = select(done[i], log_xi[i], log_v);
      PYDIRECT_UNROLL for (int p = 0; p < PackD::parts; ++p) done[i].v[p] |= accepted.v[p];
    }
  }
  PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) log_xi[i] = log_xi[i] + broadcast(std::log(shape - 1.0 / 3.0));
  if (b.shape >= 1.0) return;
  PackD u[2];  // Gamma(k) = Gamma(k + 1) U^(1/k)
  uniform_pair(b, column, pair, b.purpose | kThirdPart << 2, u);
  PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
    log_xi[i] = log_xi[i] + log(u[i]) / broadcast(b.shape);
    xi[i] = exp(log_xi[i]);
  }
}

template <BaseLaw law>
PYDIRECT_INLINE DrawPair draw_pair(const DrawBlock& b, const Words& column, unsigned pair) {
  const PackD one = broadcast(1.0), zero = broadcast(0.0);
  const unsigned first = b.purpose | kFirstPart << 2, second = b.purpose | kSecondPart << 2;
  const bool with_logs = b.log_xi != nullptr;
  DrawPair r;
  if constexpr (law == BaseLaw::kNormal) {
    normal_pair(b, column, pair, first, r.xi);
  } else if constexpr (law == BaseLaw::kHorseshoe) {
    PackD u[2], sine, cosine;
    normal_pair(b, column, pair, first, r.xi);
    uniform_pair(b, column, pair, second, u);
    PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
      sincos_turns(broadcast(0.25) * u[i], sine, cosine);
      r.xi[i] = r.xi[i] * (sine / cosine);
    }
  } else if constexpr (law == BaseLaw::kWald) {  // Michael, Schucany and Haas 1976; the roots' product is 1
    PackD u[2];
    normal_pair(b, column, pair, first, r.xi);
    uniform_pair(b, column, pair, second, u);
    const PackD shape = broadcast(b.shape), half = broadcast(0.5) / shape;
    PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
      const PackD y = r.xi[i] * r.xi[i];
      const PackD large = one + half * (y + sqrt(y * (y + broadcast(4.0) * shape))), small = one / large;
      r.xi[i] = select(less(u[i] * (one + small), one), small, large);
      if (with_logs) r.log_xi[i] = log(r.xi[i]);
    }
  } else if constexpr (law == BaseLaw::kGamma || law == BaseLaw::kInverseGamma) {
    gamma_pair(b, column, pair, r.xi, r.log_xi);
    if constexpr (law == BaseLaw::kInverseGamma)
      PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
        r.xi[i] = one / r.xi[i];
        r.log_xi[i] = zero - r.log_xi[i];
      }
  } else {  // by inversion
    Words w[4];
    philox(b, column, pair, first, w);
    PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
      const PackD u = uniform(w[2 * i], w[2 * i + 1]);
      if constexpr (law == BaseLaw::kLogistic) {
        r.xi[i] = log(u) - log(one - u);
      } else {
        const PackD e = zero - log(u);
        if constexpr (law == BaseLaw::kLaplace) r.xi[i] = with_random_sign(e, w[2 * i]);
        if constexpr (law == BaseLaw::kExponential) r.xi[i] = e;
        if constexpr (law == BaseLaw::kRayleigh) r.xi[i] = sqrt(e + e);
        if constexpr (law == BaseLaw::kWeibull) {
          r.log_xi[i] = log(e) / broadcast(b.shape);
          r.xi[i] = power_of(r.log_xi[i], 1.0);
        } else if (law != BaseLaw::kLaplace && with_logs) {
          r.log_xi[i] = log(r.xi[i]);
        }
      }
    }
  }
  return r;
}

template <BaseLaw law>
void draw_block_of(const DrawBlock& b) {
  for (Index c = 0; c < b.n_columns; c += PackD::lanes) {
    unsigned long long number[PackD::lanes];
    for (int i = 0; i < PackD::lanes; ++i) number[i] = b.first_column + unsigned(c + i);
    Words column;
    __builtin_memcpy(column.v, number, sizeof number);
    for (Index pair = 0; pair < b.n_pairs; ++pair) {
      const DrawPair draw = draw_pair<law>(b, column, b.first_pair + unsigned(pair));
      PYDIRECT_UNROLL for (int i = 0; i < 2; ++i) {
        const Index at = (2 * pair + i) * kDrawColumns + c;
        store(b.xi + at, draw.xi[i]);
        if (b.log_xi != nullptr) store(b.log_xi + at, draw.log_xi[i]);
      }
    }
  }
}

void draw_block(const DrawBlock& b) {
  switch (b.law) {
    case BaseLaw::kNormal: return draw_block_of<BaseLaw::kNormal>(b);
    case BaseLaw::kLaplace: return draw_block_of<BaseLaw::kLaplace>(b);
    case BaseLaw::kLogistic: return draw_block_of<BaseLaw::kLogistic>(b);
    case BaseLaw::kExponential: return draw_block_of<BaseLaw::kExponential>(b);
    case BaseLaw::kGamma: return draw_block_of<BaseLaw::kGamma>(b);
    case BaseLaw::kWeibull: return draw_block_of<BaseLaw::kWeibull>(b);
    case BaseLaw::kRayleigh: return draw_block_of<BaseLaw::kRayleigh>(b);
    case BaseLaw::kInverseGamma: return draw_block_of<BaseLaw::kInverseGamma>(b);
    case BaseLaw::kWald: return draw_block_of<BaseLaw::kWald>(b);
    case BaseLaw::kHorseshoe: return draw_block_of<BaseLaw::kHorseshoe>(b);
  }
}

// ξ, …, ξ^K and nothing else: the sums stay in registers.
template <int K>
PYDIRECT_INLINE void add_first_powers(const PowerSums& p, Index c) {
  PackD sum[K];
  PYDIRECT_UNROLL for (int k = 0; k < K; ++k) sum[k] = broadcast(0.0);
  for (Index i = 0; i < p.n_draws; ++i) {
    const PackD xi = load(p.xi + i * kDrawColumns + c);
    PackD power = xi;
    PYDIRECT_UNROLL for (int k = 0; k < K; ++k) {
      sum[k] = sum[k] + power;
      if (k + 1 < K) power = power * xi;
    }
  }
  PYDIRECT_UNROLL for (int k = 0; k < K; ++k) {
    double* out = p.sums + k * kDrawColumns + c;
    store(out, load(out) + sum[k]);
  }
}

PYDIRECT_INLINE void add_any_powers(const PowerSums& p, Index c) {
  PackD sum[kMostSums];
  const Index n_sums = p.n_exponents + p.n_logs;
  for (Index k = 0; k < n_sums; ++k) sum[k] = broadcast(0.0);
  for (Index i = 0; i < p.n_draws; ++i) {
    const Index at = i * kDrawColumns + c;
    const PackD xi = load(p.xi + at), log_xi = p.log_xi ? load(p.log_xi + at) : xi;
    PackD power = broadcast(1.0);
    double reached = 0.0;
    for (Index k = 0; k < p.n_exponents; ++k) {  // positive integers come first, ascending
      const double r = p.exponents[k];
      if (r == -1.0) {
        sum[k] = sum[k] + broadcast(1.0) / xi;
      } else if (k < p.n_integers) {
        for (; reached < r; reached += 1.0) power = power * xi;
        sum[k] = sum[k] + power;
      } else {
        sum[k] = sum[k] + power_of(log_xi, r);
      }
    }
    if (p.n_logs > 0) sum[p.n_exponents] = sum[p.n_exponents] + log_xi;
    if (p.n_logs > 1) sum[p.n_exponents + 1] = sum[p.n_exponents + 1] + log_xi * log_xi;
  }
  for (Index k = 0; k < n_sums; ++k) {
    double* out = p.sums + k * kDrawColumns + c;
    store(out, load(out) + sum[k]);
  }
}

void add_power_sums(const PowerSums& p) {
  for (Index c = 0; c < p.n_columns; c += PackD::lanes) {
    if (p.n_logs == 0 && p.n_integers == p.n_exponents && p.exponents[p.n_exponents - 1] == double(p.n_exponents)) {
      if (p.n_exponents == 1) { add_first_powers<1>(p, c); continue; }
      if (p.n_exponents == 2) { add_first_powers<2>(p, c); continue; }
      if (p.n_exponents == 4) { add_first_powers<4>(p, c); continue; }
    }
    add_any_powers(p, c);
  }
}

// Rows of a block, each times a factor of its own.
void scale_rows(Index n_columns, Index n_rows, const double* factor, double* rows) {
  for (Index i = 0; i < n_rows; ++i)
    for (Index c = 0; c < n_columns; c += PackD::lanes) {
      double* at = rows + i * kDrawColumns + c;
      store(at, load(at) * broadcast(factor[i]));
    }
}

constexpr void fill(DrawKernels& k) {
  k.draw = draw_block;
  k.uniforms = uniforms;
  k.add_power_sums = add_power_sums;
  k.scale_rows = scale_rows;
}
