// Quantised models: basis functions in fixed point and sums by level, as the Python package defines them in
// quantized/program. Rows stand side by side, so that one weight acts on all of them; sums of integers have one value
// in any order.

typedef int I32 __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
typedef unsigned U32 __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));

template <class V, class T>
PYDIRECT_INLINE V load_vector(const T* src) {
  typedef V unaligned __attribute__((aligned(1), may_alias));
  return *reinterpret_cast<const unaligned*>(src);
}

template <class V, class T>
PYDIRECT_INLINE void store_vector(T* dst, const V& v) {
  typedef V unaligned __attribute__((aligned(1), may_alias));
  *reinterpret_cast<unaligned*>(dst) = v;
}

PYDIRECT_INLINE I32 load_widened(const short* src) {
#if defined(__AVX512F__)
  return reinterpret_cast<I32>(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src))));
#elif defined(__AVX2__)
  return reinterpret_cast<I32>(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src))));
#elif defined(__SSE2__)
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src));
  return reinterpret_cast<I32>(_mm_srai_epi32(_mm_unpacklo_epi16(x, x), 16));
#else
  I32 wide;
  for (int i = 0; i < PYDIRECT_VECTOR_BYTES / 4; ++i) wide[i] = src[i];
  return wide;
#endif
}

// Step 2. Phases of all rows at one frequency, in 2^-32 turns.
template <Index parts>
PYDIRECT_INLINE void phases(const IntegerFourier& p, Index f, U32 (&phase)[parts]) {
  constexpr Index lanes = PYDIRECT_VECTOR_BYTES / 4;
  PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) phase[k] = U32{};
  const unsigned* w = p.frequencies + f * p.n_inputs;
  for (Index i = 0; i < p.n_inputs; ++i) {
    const U32 wi = w[i] - U32{};
    PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k)
      phase[k] += wi * load_vector<U32>(p.q + i * kIntegerRows + k * lanes);
  }
}

#if defined(__AVX2__)
// Sines of eight phases as 32-bit integers: one gather brings an entry of the quarter wave with the next one.
PYDIRECT_INLINE __m256i interpolated_sine(const short* quarter, __m256i at) {
  const __m256i odd = _mm256_srai_epi32(_mm256_add_epi32(at, at), 31);
  const __m256i p = _mm256_and_si256(_mm256_xor_si256(at, odd), _mm256_set1_epi32(0x3FFFFFFF));
  const __m256i pair =
      _mm256_i32gather_epi32(reinterpret_cast<const int*>(quarter), _mm256_srli_epi32(p, 24), sizeof(short));
  const __m256i low = _mm256_and_si256(pair, _mm256_set1_epi32(0xFFFF));
  const __m256i slope = _mm256_sub_epi32(_mm256_srli_epi32(pair, 16), low);
  const __m256i fraction = _mm256_and_si256(_mm256_srli_epi32(p, 9), _mm256_set1_epi32(0x7FFF));
  // Both factors are below 2^15 and not negative: the other halves of the pairs are zero.
  const __m256i rise = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_madd_epi16(slope, fraction), _mm256_set1_epi32(16384)), 15);
  const __m256i negative = _mm256_srai_epi32(at, 31);
  return _mm256_sub_epi32(_mm256_xor_si256(_mm256_add_epi32(low, rise), negative), negative);
}

PYDIRECT_INLINE void store_sines(const short* quarter, const unsigned* at, unsigned turn, short* out) {
  const __m256i offset = _mm256_set1_epi32(int(turn));
  for (Index l = 0; l < kIntegerRows; l += 16) {
    const __m256i* phase = reinterpret_cast<const __m256i*>(at + l);
    const __m256i a = interpolated_sine(quarter, _mm256_add_epi32(_mm256_loadu_si256(phase), offset));
    const __m256i b = interpolated_sine(quarter, _mm256_add_epi32(_mm256_loadu_si256(phase + 1), offset));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + l), packed);
  }
}
#else
PYDIRECT_INLINE void store_sines(const short* quarter, const unsigned* at, unsigned turn, short* out) {
  for (Index l = 0; l < kIntegerRows; ++l) {
    const unsigned phase = at[l] + turn;
    const int p = int(((phase >> 30) & 1 ? ~phase : phase) & 0x3FFFFFFF), i = p >> 24;
    const int low = quarter[i];
    const int value = low + (((quarter[i + 1] - low) * ((p >> 9) & 0x7FFF) + 16384) >> 15);
    out[l] = short(phase >> 31 ? -value : value);
  }
}
#endif

// Interpolated between the entries of the quarter wave.
inline void integer_fourier(const IntegerFourier& p) {
  constexpr Index lanes = PYDIRECT_VECTOR_BYTES / 4, parts = kIntegerRows / lanes;
  short* out = p.out;
  for (Index f = 0; f < p.n_frequencies; ++f, out += 2 * kIntegerRows) {
    U32 phase[parts];
    phases(p, f, phase);
    unsigned at[kIntegerRows];
    PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) store_vector(at + k * lanes, phase[k]);
    store_sines(p.quarter, at, 0x40000000u, out);
    store_sines(p.quarter, at, 0, out + kIntegerRows);
  }
}

PYDIRECT_INLINE void sum_rows(const short* phi, const int* index, Index count, int* sum) {
  constexpr Index lanes = PYDIRECT_VECTOR_BYTES / 4, parts = kIntegerRows / lanes;
  I32 s[parts];
  PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) s[k] = I32{};
  for (Index n = 0; n < count; ++n) {
    const short* row = phi + Index(index[n]) * kIntegerRows;
    PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) s[k] += load_widened(row + k * lanes);
  }
  PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) store_vector(sum + k * lanes, s[k]);
}

// Step 3: Σ_k level_k Σ_{j: code k} φ_j. Basis functions are added; a level costs one multiplication for all of them,
// or a shift.
void integer_level_sums(const LevelSums<short, int>& p) {
  const int* start = p.start;
  for (Index c = 0; c < p.n_columns; ++c) {
    int* out = p.out + c * kIntegerRows;
    for (Index l = 0; l < kIntegerRows; ++l) out[l] = 0;
    for (Index k = 0; k < p.n_levels; ++k, ++start) {
      if (start[0] == start[1]) continue;
      int sum[kIntegerRows];
      sum_rows(p.phi, p.index + start[0], start[1] - start[0], sum);
      const int level = p.levels[k];
      if (p.shifts == nullptr) {
        for (Index l = 0; l < kIntegerRows; ++l) out[l] += level * sum[l];
      } else {
        // Through unsigned numbers, in which a shift of a negative one is defined.
        const int shift = p.shifts[k];
        const unsigned sign = level < 0 ? ~0u : 0u;
        for (Index l = 0; l < kIntegerRows; ++l) {
          const unsigned term = ((unsigned(sum[l]) << shift) ^ sign) - sign;
          out[l] = int(unsigned(out[l]) + term);
        }
      }
    }
  }
}

// The same in floating point, the basis functions of a level added in the order of their indices.
void float_level_sums(const LevelSums<double, double>& p) {
  using P = PackD;
  constexpr Index parts = kFloatRows / P::lanes;
  const int* start = p.start;
  for (Index c = 0; c < p.n_columns; ++c) {
    P out[parts];
    PYDIRECT_UNROLL for (Index r = 0; r < parts; ++r) out[r] = broadcast(0.0);
    for (Index k = 0; k < p.n_levels; ++k, ++start) {
      P sum[parts];
      PYDIRECT_UNROLL for (Index r = 0; r < parts; ++r) sum[r] = broadcast(0.0);
      for (Index n = start[0]; n < start[1]; ++n) {
        const double* row = p.phi + Index(p.index[n]) * kFloatRows;
        PYDIRECT_UNROLL for (Index r = 0; r < parts; ++r) sum[r] = sum[r] + load(row + r * P::lanes);
      }
      const P level = broadcast(p.levels[k]);
      PYDIRECT_UNROLL for (Index r = 0; r < parts; ++r) out[r] = out[r] + level * sum[r];
    }
    PYDIRECT_UNROLL for (Index r = 0; r < parts; ++r) store(p.out + c * kFloatRows + r * P::lanes, out[r]);
  }
}

constexpr void fill(QuantizedKernels& k) {
  k.fourier = integer_fourier;
  k.sums_int = integer_level_sums;
  k.sums_double = float_level_sums;
}
