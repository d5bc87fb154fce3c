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

// Sines of phases in units of 2^-15: a polynomial of the position in a quarter wave.
PYDIRECT_INLINE U32 turn_sine(U32 phase) {
  const U32 turn = (phase + 0x8000u) >> 16;
  const U32 odd = U32{} - ((turn >> 14) & 1u), negative = U32{} - (turn >> 15);
  const U32 p = (((turn & 0x3FFFu) ^ odd) - odd) + (odd & 0x4000u);
  const U32 z = (p * p) >> 12;
  const U32 ratio = 51455u - ((z * (21035u - ((z * 2347u) >> 16))) >> 16);
  const U32 value = (p * ratio + 0x2000u) >> 14;
  return (value ^ negative) - negative;
}

// Cosine and sine rows of every frequency.
inline void integer_fourier(const IntegerFourier& p) {
  constexpr Index lanes = PYDIRECT_VECTOR_BYTES / 4, parts = kIntegerRows / lanes;
  short* out = p.out;
  for (Index f = 0; f < p.n_frequencies; ++f, out += 2 * kIntegerRows) {
    U32 phase[parts];
    phases(p, f, phase);
    unsigned both[2 * kIntegerRows];
    PYDIRECT_UNROLL for (Index k = 0; k < parts; ++k) {
      store_vector(both + k * lanes, turn_sine(phase[k] + 0x40000000u));
      store_vector(both + kIntegerRows + k * lanes, turn_sine(phase[k]));
    }
    for (Index l = 0; l < 2 * kIntegerRows; ++l) out[l] = short(both[l]);
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

// Step 3: Σ_k level_k Σ_{j: code k} φ_j. Basis functions are added; a level costs one multiplication for all of them.
void integer_level_sums(const LevelSums& p) {
  const int* start = p.start;
  for (Index c = 0; c < p.n_columns; ++c) {
    int* out = p.out + c * kIntegerRows;
    for (Index l = 0; l < kIntegerRows; ++l) out[l] = 0;
    for (Index k = 0; k < p.n_levels; ++k, ++start) {
      if (start[0] == start[1]) continue;
      int sum[kIntegerRows];
      sum_rows(p.phi, p.index + start[0], start[1] - start[0], sum);
      for (Index l = 0; l < kIntegerRows; ++l) out[l] += p.levels[k] * sum[l];
    }
  }
}

constexpr void fill(QuantizedKernels& k) {
  k.fourier = integer_fourier;
  k.sums = integer_level_sums;
}
