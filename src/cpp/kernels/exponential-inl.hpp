// log E exp(x·w) of independent discrete weights for rows x, and what its gradient adds up: products over thousands of
// factors, kept as mantissas and exponents.

// Exponents, biased by 1023, taken off positive normal numbers and added up.
struct ExponentSum {
  using vector = Native<double>::uvector;
  vector v[PackD::parts];
};

// Returns the mantissas, 1 ≤ mantissa < 2.
PYDIRECT_INLINE PackD take_exponent(const PackD& x, ExponentSum& sum) {
  PackD mantissa;
  PYDIRECT_UNROLL for (int i = 0; i < PackD::parts; ++i) {
    ExponentSum::vector bits;
    __builtin_memcpy(&bits, &x.v[i], sizeof bits);
    sum.v[i] = sum.v[i] + (bits >> 52);
    bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
    __builtin_memcpy(&mantissa.v[i], &bits, sizeof bits);
  }
  return mantissa;
}

PYDIRECT_INLINE double log_of_product(const PackD& mantissa, const ExponentSum& sum, Index n_packs) {
  double m[PackD::lanes];
  store(m, mantissa);
  long long e[PackD::lanes];
  __builtin_memcpy(e, sum.v, sizeof e);
  double product = 1.0;
  long long exponent = -1023LL * n_packs * PackD::lanes;
  for (int i = 0; i < PackD::lanes; ++i) {
    product *= m[i];
    exponent += e[i];
  }
  return std::log(product) + double(exponent) * 6.93147180559945286227e-01;
}

// E exp(x (w − w_0)): a polynomial in exp(x spacing) where levels are evenly spaced.
template <bool even>
PYDIRECT_INLINE PackD power_of(const ExponentialRows& p, const PackD& x, Index j, Index k) {
  return even ? exp(x * load(p.offsets + p.padded + j)) : exp(x * load(p.offsets + k * p.padded + j));
}

// R rows at once, so that a pack of probabilities is loaded once for all of them.
template <Index R, bool even>
PYDIRECT_INLINE void exponential_rows(const ExponentialRows& p, Index i) {
  const Index m = p.n_levels, n_packs = p.padded / PackD::lanes;
  PackD product[R], linear[R];
  ExponentSum exponent[R] = {};
  PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
    product[r] = broadcast(1.0);
    linear[r] = broadcast(0.0);
  }
  for (Index j = 0; j < p.padded; j += PackD::lanes) {
    PackD x[R], f[R];
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      const double* row = p.phi + (i + r) * p.stride + j;
      if (j + PackD::lanes <= p.n_weights) {
        x[r] = load(row);
      } else {
        double rest[PackD::lanes] = {};
        for (Index l = 0; l < p.n_weights - j; ++l) rest[l] = row[l];
        x[r] = load(rest);
      }
      x[r] = x[r] * broadcast(p.factor[i + r]);
      linear[r] = linear[r] + x[r] * load(p.first + j);
    }
    if (even) {  // Horner; one level has no spacing
      const PackD last = load(p.q + (m - 1) * p.padded + j);
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
        f[r] = last;
        if (m > 1) x[r] = power_of<even>(p, x[r], j, 1);
      }
      for (Index k = m - 2; k >= 0; --k) {
        const PackD qk = load(p.q + k * p.padded + j);
        PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) f[r] = f[r] * x[r] + qk;
      }
    } else {
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) f[r] = broadcast(0.0);
      for (Index k = 0; k < m; ++k) {
        const PackD qk = load(p.q + k * p.padded + j);
        PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) f[r] = f[r] + qk * power_of<even>(p, x[r], j, k);
      }
    }
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      product[r] = take_exponent(product[r] * f[r], exponent[r]);
      if (p.gradient != nullptr) {
        store(p.scratch + 2 * r * p.padded + j, x[r]);
        store(p.scratch + (2 * r + 1) * p.padded + j, f[r]);
      }
    }
  }
  PYDIRECT_UNROLL for (Index r = 0; r < R; ++r)
    p.log_terms[i + r] = sum_lanes(linear[r]) + log_of_product(product[r], exponent[r], n_packs);
  if (p.gradient == nullptr) return;

  // ∂/∂q_jk Σ_i ω_i Π_l f_il exp(x_il w_l0) = Σ_i ω_i (term_i / f_ij) exp(x_ij (w_jk − w_j0))
  PackD term[R];
  PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
    const double log_term = p.log_terms[i + r] < kLargestLogTerm ? p.log_terms[i + r] : kLargestLogTerm;
    term[r] = broadcast(p.weight[i + r] * std::exp(log_term));
  }
  for (Index j = 0; j < p.padded; j += PackD::lanes) {
    PackD x[R], g[R];
    PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
      x[r] = load(p.scratch + 2 * r * p.padded + j);
      g[r] = term[r] / load(p.scratch + (2 * r + 1) * p.padded + j);
    }
    for (Index k = 0; k < m; ++k) {
      double* out = p.gradient + k * p.padded + j;
      PackD sum = load(out);
      PYDIRECT_UNROLL for (Index r = 0; r < R; ++r) {
        sum = sum + (even ? g[r] : g[r] * power_of<even>(p, x[r], j, k));
        if (even) g[r] = g[r] * x[r];
      }
      store(out, sum);
    }
  }
}

template <bool even>
void exponential_block(const ExponentialRows& p) {
  Index i = 0;
  for (; i + kExponentialRows <= p.n_rows; i += kExponentialRows) exponential_rows<kExponentialRows, even>(p, i);
  for (; i < p.n_rows; ++i) exponential_rows<1, even>(p, i);
}

void exponential(const ExponentialRows& p) {
  if (p.evenly_spaced)
    exponential_block<true>(p);
  else
    exponential_block<false>(p);
}

constexpr void fill(ExponentialKernels& k) {
  k.terms = exponential;
}
