// Fixed-width packs: 8 doubles or 16 floats, made of as many native vectors as the instruction set needs.
// Every level does the same operations on the same lanes in the same order, hence the same bits.
// Included only by level.hpp, inside its per-level namespace.

// Out of line, a pack would travel through memory.
#define PYDIRECT_INLINE inline __attribute__((always_inline))
// Except where the work inside is long: then one body serves every caller.
#define PYDIRECT_OUT_OF_LINE inline __attribute__((noinline))
// Loops over the few parts of a pack, or the few rows of a tile, must vanish for the same reason.
#define PYDIRECT_UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
#define PYDIRECT_VECTOR_BYTES 64
#elif defined(__AVX__)
#define PYDIRECT_VECTOR_BYTES 32
#else
#define PYDIRECT_VECTOR_BYTES 16
#endif

template <class T>
struct Native;
template <>
struct Native<double> {
  typedef double vector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  typedef long long ivector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  typedef unsigned long long uvector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  using integer = long long;
};
template <>
struct Native<float> {
  typedef float vector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  typedef int ivector __attribute__((vector_size(PYDIRECT_VECTOR_BYTES)));
  using integer = int;
};

template <class T>
struct Pack {
  static constexpr int lanes = 64 / static_cast<int>(sizeof(T));
  static constexpr int parts = 64 / PYDIRECT_VECTOR_BYTES;
  using vector = typename Native<T>::vector;
  vector v[parts];
};

template <class T>
struct Mask {
  typename Native<T>::ivector v[Pack<T>::parts];
};

using PackD = Pack<double>;
using PackF = Pack<float>;

template <class T>
PYDIRECT_INLINE Pack<T> broadcast(T x) {
  Pack<T> p;
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i) p.v[i] = x - typename Pack<T>::vector{};
  return p;
}

// Unaligned access, native vector by native vector: a NumPy view guarantees element alignment, no more.
template <class T>
PYDIRECT_INLINE Pack<T> load(const T* src) {
  typedef typename Pack<T>::vector unaligned __attribute__((aligned(sizeof(T)), may_alias));
  Pack<T> p;
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i)
    p.v[i] = *reinterpret_cast<const unaligned*>(src + i * (Pack<T>::lanes / Pack<T>::parts));
  return p;
}

template <class T>
PYDIRECT_INLINE void store(T* dst, const Pack<T>& p) {
  typedef typename Pack<T>::vector unaligned __attribute__((aligned(sizeof(T)), may_alias));
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i)
    *reinterpret_cast<unaligned*>(dst + i * (Pack<T>::lanes / Pack<T>::parts)) = p.v[i];
}

// Loads 8 floats and widens them.
PYDIRECT_INLINE PackD load_widened(const float* src) {
  PackD p;
#if defined(__AVX512F__)
  p.v[0] = _mm512_cvtps_pd(_mm256_loadu_ps(src));
#elif defined(__AVX__)
  p.v[0] = _mm256_cvtps_pd(_mm_loadu_ps(src));
  p.v[1] = _mm256_cvtps_pd(_mm_loadu_ps(src + 4));
#else
  double wide[PackD::lanes];
  for (int i = 0; i < PackD::lanes; ++i) wide[i] = src[i];
  p = load(wide);
#endif
  return p;
}

PYDIRECT_OUT_OF_LINE PackD load_rest(const double* src, Index n) {
  double rest[PackD::lanes] = {};
  for (Index i = 0; i < n; ++i) rest[i] = src[i];
  return load(rest);
}

PYDIRECT_OUT_OF_LINE void store_rest(double* dst, const PackD& p, Index n) {
  double rest[PackD::lanes];
  store(rest, p);
  for (Index i = 0; i < n; ++i) dst[i] = rest[i];
}

// The first n of a pack's doubles, where fewer are left; the others are loaded as zeros.
PYDIRECT_INLINE PackD load_some(const double* src, Index n) {
  return n >= PackD::lanes ? load(src) : load_rest(src, n);
}

PYDIRECT_INLINE void store_some(double* dst, const PackD& p, Index n) {
  if (n >= PackD::lanes) return store(dst, p);
  store_rest(dst, p, n);
}

#define PYDIRECT_PACK_OPERATOR(op)                                         \
  template <class T>                                                       \
  PYDIRECT_INLINE Pack<T> operator op(const Pack<T>& a, const Pack<T>& b) {         \
    Pack<T> r;                                                             \
    PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i) r.v[i] = a.v[i] op b.v[i];    \
    return r;                                                              \
  }
PYDIRECT_PACK_OPERATOR(+)
PYDIRECT_PACK_OPERATOR(-)
PYDIRECT_PACK_OPERATOR(*)
PYDIRECT_PACK_OPERATOR(/)
#undef PYDIRECT_PACK_OPERATOR

template <class T>
PYDIRECT_INLINE Mask<T> less(const Pack<T>& a, const Pack<T>& b) {
  Mask<T> m;
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i) m.v[i] = a.v[i] < b.v[i];
  return m;
}

template <class T>
PYDIRECT_INLINE Pack<T> select(const Mask<T>& m, const Pack<T>& a, const Pack<T>& b) {
  Pack<T> r;
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i) r.v[i] = m.v[i] ? a.v[i] : b.v[i];
  return r;
}

template <class T>
PYDIRECT_INLINE Pack<T> max(const Pack<T>& a, const Pack<T>& b) {
  return select(less(a, b), b, a);
}

PYDIRECT_INLINE PackD min(const PackD& a, const PackD& b) {
#if defined(__AVX512F__) || defined(__AVX__)  // the same choices in one instruction
  PackD r;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
#if defined(__AVX512F__)
    r.v[i] = _mm512_min_pd(b.v[i], a.v[i]);
#else
    r.v[i] = _mm256_min_pd(b.v[i], a.v[i]);
#endif
  }
  return r;
#else
  return select(less(b, a), b, a);
#endif
}

template <class T>
PYDIRECT_INLINE Pack<T> abs(const Pack<T>& a) {
  return max(a, broadcast<T>(0) - a);
}

// Correctly rounded on every level.
PYDIRECT_INLINE PackD sqrt(const PackD& a) {
  PackD r;
#if defined(__AVX512F__)
  r.v[0] = _mm512_sqrt_pd(a.v[0]);
#elif defined(__AVX__)
  r.v[0] = _mm256_sqrt_pd(a.v[0]);
  r.v[1] = _mm256_sqrt_pd(a.v[1]);
#else
  double x[PackD::lanes];
  store(x, a);
  for (int i = 0; i < PackD::lanes; ++i) x[i] = std::sqrt(x[i]);
  r = load(x);
#endif
  return r;
}

// Sum of the lanes by a fixed tree.
template <class T>
PYDIRECT_INLINE T sum_lanes(const Pack<T>& p) {
  T a[Pack<T>::lanes];
  store(a, p);
  for (int half = Pack<T>::lanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  return a[0];
}

template <class T>
PYDIRECT_INLINE T max_lanes(const Pack<T>& p) {
  T a[Pack<T>::lanes];
  store(a, p);
  for (int half = Pack<T>::lanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a[i] = a[i] < a[i + half] ? a[i + half] : a[i];
  return a[0];
}

// Adding and subtracting 1.5·2^52 (2^23) rounds to the nearest integer without SSE4.1.
template <class T>
PYDIRECT_INLINE constexpr T rounding_shift();
template <>
inline constexpr double rounding_shift<double>() { return 6755399441055744.0; }
template <>
inline constexpr float rounding_shift<float>() { return 12582912.0f; }

// a b + c rounded once, on every level: slow, yet the same, where the processor has no such instruction. Only the files of
// dense algebra (tiles, factorisation) fuse.
template <class T>
PYDIRECT_INLINE typename Pack<T>::vector fused(typename Pack<T>::vector a, typename Pack<T>::vector b,
                                               typename Pack<T>::vector c) {
  constexpr bool is_double = sizeof(T) == sizeof(double);
#if defined(__AVX512F__)
  if constexpr (is_double) return _mm512_fmadd_pd(a, b, c);
  else return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX__) && defined(__FMA__)
  if constexpr (is_double) return _mm256_fmadd_pd(a, b, c);
  else return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
  if constexpr (is_double) return vfmaq_f64(c, a, b);
  else return vfmaq_f32(c, a, b);
#else
  typename Pack<T>::vector r;
  for (int i = 0; i < PYDIRECT_VECTOR_BYTES / int(sizeof(T)); ++i) r[i] = std::fma(a[i], b[i], c[i]);
  (void)is_double;
  return r;
#endif
}

// exp for x in [-inf, 709]; below -708 the result is exactly zero. At most 2.5 ulp elsewhere; NaN gives NaN.
PYDIRECT_INLINE PackD exp(const PackD& x_in) {
  const PackD lowest = broadcast(-708.0);
  const Mask<double> underflow = less(x_in, lowest);
  const PackD x = select(underflow, lowest, x_in);
  const PackD shift = broadcast(rounding_shift<double>());
  const PackD shifted = x * broadcast(1.4426950408889634) + shift;
  const PackD n = shifted - shift;
  const PackD r = (x - n * broadcast(6.93147180369123816490e-01)) - n * broadcast(1.90821492927058770002e-10);
  // Taylor series on |r| <= ln2/2, in even and odd halves for shorter chains.
  const PackD r2 = r * r;
  PackD even = broadcast(1.0 / 479001600.0), odd = broadcast(1.0 / 6227020800.0);
  const double even_terms[] = {1.0 / 3628800.0, 1.0 / 40320.0, 1.0 / 720.0, 1.0 / 24.0, 0.5, 1.0};
  const double odd_terms[] = {1.0 / 39916800.0, 1.0 / 362880.0, 1.0 / 5040.0, 1.0 / 120.0, 1.0 / 6.0, 1.0};
  PYDIRECT_UNROLL for (int k = 0; k < 6; ++k) {
    even = even * r2 + broadcast(even_terms[k]);
    odd = odd * r2 + broadcast(odd_terms[k]);
  }
  PackD e = even + odd * r;
  // Multiply by 2^n through the exponent bits: the low bits of `shifted` hold n in two's complement.
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Native<double>::ivector bits, scale;
    __builtin_memcpy(&bits, &shifted.v[i], sizeof bits);
    scale = (bits + 1023) << 52;
    PackD::vector two_to_n;
    __builtin_memcpy(&two_to_n, &scale, sizeof scale);
    e.v[i] = e.v[i] * two_to_n;
  }
  return select(underflow, broadcast(0.0), e);
}

// The same in single precision, for x in [-inf, 88]: zero below -87, at most 2 ulp elsewhere (Cephes' polynomial).
PYDIRECT_INLINE PackF exp(const PackF& x_in) {
  const PackF lowest = broadcast(-87.0f);
  const Mask<float> underflow = less(x_in, lowest);
  const PackF x = select(underflow, lowest, x_in);
  const PackF shift = broadcast(rounding_shift<float>());
  const PackF shifted = x * broadcast(1.44269504f) + shift;
  const PackF n = shifted - shift;
  const PackF r = (x - n * broadcast(0.693359375f)) + n * broadcast(2.12194440e-4f);
  PackF p = broadcast(1.9875691500e-4f);
  const float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  PYDIRECT_UNROLL for (int k = 0; k < 5; ++k) p = p * r + broadcast(terms[k]);
  PackF e = p * (r * r) + r + broadcast(1.0f);
  PYDIRECT_UNROLL for (int i = 0; i < PackF::parts; ++i) {
    Native<float>::ivector bits, scale;
    __builtin_memcpy(&bits, &shifted.v[i], sizeof bits);
    scale = (bits + 127) << 23;
    PackF::vector two_to_n;
    __builtin_memcpy(&two_to_n, &scale, sizeof scale);
    e.v[i] = e.v[i] * two_to_n;
  }
  return select(underflow, broadcast(0.0f), e);
}

// log x of positive normal numbers, below 1 ulp: fdlibm's series in s = f/(2 + f), 1 + f = x 2⁻ⁿ between √½ and √2.
PYDIRECT_INLINE PackD log(const PackD& x) {
  PackD n, m;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    Native<double>::uvector bits, exponent;
    __builtin_memcpy(&bits, &x.v[i], sizeof bits);
    // n + 1.5·2⁵² has n in its low bits.
    exponent = (bits >> 52) + (0x4338000000000000ULL - 1023);
    __builtin_memcpy(&n.v[i], &exponent, sizeof exponent);
    n.v[i] = n.v[i] - rounding_shift<double>();
    bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
    __builtin_memcpy(&m.v[i], &bits, sizeof bits);
  }
  const Mask<double> above = less(broadcast(1.41421356237309504880), m);
  n = select(above, n + broadcast(1.0), n);
  const PackD f = select(above, m * broadcast(0.5), m) - broadcast(1.0);
  const PackD s = f / (broadcast(2.0) + f), z = s * s, w = z * z;
  const PackD odd = w * (broadcast(3.999999999940941908e-01) +
                         w * (broadcast(2.222219843214978396e-01) + w * broadcast(1.531383769920937332e-01)));
  const PackD even =
      z * (broadcast(6.666666666666735130e-01) +
           w * (broadcast(2.857142874366239149e-01) +
                w * (broadcast(1.818357216161805012e-01) + w * broadcast(1.479819860511658591e-01))));
  const PackD half_square = broadcast(0.5) * f * f;
  return n * broadcast(6.93147180369123816490e-01) -
         ((half_square - (s * (half_square + (odd + even)) + n * broadcast(1.90821492927058770002e-10))) - f);
}

// sin and cos of 2 pi t for a phase t in turns. The reduction t - round(4t)/4 is exact, so there is no loss for
// large phases beyond that of t itself; where t has next to no fractional part left
// (|t| from 786,432 turns on in single, 4.2e14 in double precision), or is not finite, the angle is taken as zero.
template <class T>
struct SinCosSeries;
template <>
struct SinCosSeries<double> {
  static constexpr int terms = 9;  // (pi/4)^18/18! < 1e-17
};
template <>
struct SinCosSeries<float> {
  static constexpr int terms = 5;  // (pi/4)^10/10! < 1e-7 / 4
};

template <class T>
PYDIRECT_INLINE void sincos_turns(const Pack<T>& t_in, Pack<T>& sine, Pack<T>& cosine) {
  using integer = typename Native<T>::integer;
  const Pack<T> shift = broadcast(rounding_shift<T>());
  const Pack<T> zero = broadcast<T>(0);
  const Mask<T> has_fraction = less(abs(t_in), broadcast<T>(rounding_shift<T>() / 16));
  const Pack<T> t = select(has_fraction, t_in, zero);
  const Pack<T> shifted = t * broadcast<T>(4) + shift;
  const Pack<T> r = (t - (shifted - shift) * broadcast<T>(T(0.25))) * broadcast<T>(T(6.283185307179586477));
  const Pack<T> r2 = zero - r * r;
  // Horner from the highest term: sin r = r (1 - r^2/(2·3) (1 - r^2/(4·5) (...))), cos likewise.
  Pack<T> s = broadcast<T>(1), c = broadcast<T>(1);
  PYDIRECT_UNROLL for (int k = SinCosSeries<T>::terms - 1; k > 0; --k) {
    s = broadcast<T>(1) + s * (r2 * broadcast<T>(T(1) / T(2 * k * (2 * k + 1))));
    c = broadcast<T>(1) + c * (r2 * broadcast<T>(T(1) / T((2 * k - 1) * 2 * k)));
  }
  s = s * r;
  PYDIRECT_UNROLL for (int i = 0; i < Pack<T>::parts; ++i) {
    typename Native<T>::ivector quadrant, bits;
    __builtin_memcpy(&quadrant, &shifted.v[i], sizeof quadrant);
    const auto swap = (quadrant & integer(1)) != 0;
    typename Pack<T>::vector si = swap ? c.v[i] : s.v[i];
    typename Pack<T>::vector co = swap ? s.v[i] : c.v[i];
    // Sign bits: sine changes sign in quadrants 2 and 3, cosine in 1 and 2.
    constexpr int sign_shift = int(sizeof(T)) * 8 - 2;
    const auto sine_sign = (quadrant & integer(2)) << sign_shift;
    const auto cosine_sign = ((quadrant + integer(1)) & integer(2)) << sign_shift;
    __builtin_memcpy(&bits, &si, sizeof bits);
    bits = bits ^ sine_sign;
    __builtin_memcpy(&sine.v[i], &bits, sizeof bits);
    __builtin_memcpy(&bits, &co, sizeof bits);
    bits = bits ^ cosine_sign;
    __builtin_memcpy(&cosine.v[i], &bits, sizeof bits);
  }
}
