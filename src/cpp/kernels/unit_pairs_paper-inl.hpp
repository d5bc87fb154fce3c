// The same in the closed form of Wu et al. (eq. 6).

// |r| up to which eq. 6 is evaluated: its slopes grow like 1/√(1 − r²).
constexpr double kLargestPaperCorrelation = 1.0 - 1e-6;
constexpr double kHalfPi = 1.5707963267948966192;

// Eq. 6 with the misprints of table 1 corrected: what pairs share beyond the first-order term is
//     factor/2π exp(−β (μ_j² + μ_l²) + γ μ_j μ_l).
// A = (asin r − r)/r³ keeps all of it free of cancellation at r = 0.
struct PaperTerm {
  PackD r, factor, beta, gamma, A, root, ratio;  // ratio = factor / r
};

template <Activation f>
PYDIRECT_INLINE PaperTerm paper_term(const Correlation& c) {
  const PackD one = broadcast(1.0), half = broadcast(0.5), zero = broadcast(0.0);
  PaperTerm p;
  const PackD size = min(c.r, broadcast(kLargestPaperCorrelation));
  p.root = sqrt((one - size) * (one + size));
  p.r = select(c.negative, zero - size, size);
  // asin r = π/2 − 2 asin √((1−r)/2) beyond 1/2.
  const Mask<double> small = less(size, half);
  const PackD z = select(small, size * size, half * (one - size));
  const PackD series = polynomial(kArcsine, z);
  const PackD w = sqrt(z);
  const PackD large_size = max(size, half);
  const PackD arcsine = broadcast(kHalfPi) - broadcast(2.0) * (w + w * z * series);
  p.A = select(small, series, (arcsine / large_size - one) / (large_size * large_size));
  const PackD r2 = size * size;
  if constexpr (f == Activation::kRelu) {
    p.ratio = r2 * p.A + p.root / (one + p.root);
    p.beta = half / (p.ratio * (one + p.root));
    p.gamma = p.r * p.A / p.ratio;
  } else {
    p.ratio = one + r2 * p.A;
    p.beta = half / (p.ratio * p.root);
    p.gamma = p.r / (p.ratio * p.root * (one + p.root));
  }
  p.factor = p.r * p.ratio;
  return p;
}

struct PaperSlopes {
  PackD factor, beta, gamma;  // d/dr
};

template <Activation f>
PYDIRECT_INLINE PaperSlopes paper_slopes(const PaperTerm& p) {
  const PackD one = broadcast(1.0), inverse_root = one / p.root, inverse_sum = one / (one + p.root);
  const PackD two_sided = inverse_root * inverse_sum;
  const PackD inverse_ratio = one / p.ratio;
  if constexpr (f == Activation::kRelu) {
    const PackD growth = p.r * (inverse_sum * inverse_sum - p.A) * inverse_ratio;  // (log ratio)'
    return {inverse_sum, p.beta * (p.r * two_sided - growth),
            (two_sided - broadcast(2.0) * p.A) * inverse_ratio - p.gamma * growth};
  } else {
    const PackD growth = p.r * (two_sided - p.A) * inverse_ratio;
    const PackD pole = p.r * inverse_root * inverse_root;
    return {inverse_root, p.beta * (pole - growth),
            two_sided * inverse_ratio + p.gamma * (pole - growth + p.r * two_sided)};
  }
}

PYDIRECT_INLINE PackD paper_exponential(const PaperTerm& p, const PairUnit& j, const PairUnit& l) {
  return broadcast(kInvTwoPi) * exp(p.gamma * (j.mu * l.mu) - p.beta * (j.mu * j.mu + l.mu * l.mu));
}

template <Activation f>
PYDIRECT_INLINE PairSlopes paper_pair_slopes(const Correlation& c, const PackD& S, const PairUnit& j,
                                             const PairUnit& l) {
  const PackD zero = broadcast(0.0), two = broadcast(2.0);
  const PaperTerm p = paper_term<f>(c);
  const PaperSlopes d = paper_slopes<f>(p);
  const PackD e = paper_exponential(p, j, l), share = p.factor * e;
  const PackD squares = j.mu * j.mu + l.mu * l.mu, product = j.mu * l.mu;
  // Where |r| is clipped nothing depends on it.
  PackD along_r = select(less(c.r, broadcast(kLargestPaperCorrelation)),
                         e * (d.factor + p.factor * (d.gamma * product - d.beta * squares)), zero);
  PackD along_j = share * (p.gamma * l.mu - two * p.beta * j.mu);
  PackD along_l = share * (p.gamma * j.mu - two * p.beta * l.mu);
  PairSlopes out;
  out.S = along_r * j.inverse_s * l.inverse_s;
  if constexpr (f == Activation::kRelu) {
    out.S = j.cdf * l.cdf + share + S * out.S;
    along_r = S * along_r;
    along_j = S * (along_j + j.density * l.cdf);
    along_l = S * (along_l + l.density * j.cdf);
  }
  out.mean_j = along_j * j.inverse_s;
  out.mean_l = along_l * l.inverse_s;
  out.variance_j = broadcast(-0.5) * (p.r * along_r + j.mu * along_j) * j.inverse_s * j.inverse_s;
  out.variance_l = broadcast(-0.5) * (p.r * along_r + l.mu * along_l) * l.inverse_s * l.inverse_s;
  return out;
}
