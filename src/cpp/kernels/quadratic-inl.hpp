// Element-wise stages of networks with quadratic activations, on packs of eight rows of data (or eight units).
// Central moments, never raw ones, so that nothing large cancels when weights are nearly certain.

PYDIRECT_INLINE PackD operator*(double a, const PackD& x) { return broadcast(a) * x; }

PYDIRECT_INLINE void increase(double* at, const PackD& by) { store(at, load(at) + by); }

void powers(Index n, Index n_powers, double* x, Index stride) {
  for (Index r = 1; r < n_powers; ++r)
    for (Index i = 0; i < n; i += PackD::lanes) store(x + r * stride + i, load(x + (r - 1) * stride + i) * load(x + i));
}

template <int n_orders>
PYDIRECT_INLINE void cumulants_of(Index n, const double* central, double* cumulant, Index stride) {
  for (Index i = 0; i < n; i += PackD::lanes) {
    PackD c[9];
    PYDIRECT_UNROLL for (int r = 1; r <= n_orders; ++r) c[r] = load(central + (r - 1) * stride + i);
    const auto put = [&](int r, const PackD& k) __attribute__((always_inline)) {
      store(cumulant + (r - 1) * stride + i, k);
    };
    const PackD square = c[2] * c[2];
    put(1, c[1]);
    put(2, c[2]);
    put(3, c[3]);
    put(4, c[4] - 3.0 * square);
    if (n_orders == 8) {
      put(5, c[5] - 10.0 * (c[3] * c[2]));
      put(6, c[6] - 15.0 * (c[4] * c[2]) - 10.0 * (c[3] * c[3]) + 30.0 * (square * c[2]));
      put(7, c[7] - 21.0 * (c[5] * c[2]) - 35.0 * (c[4] * c[3]) + 210.0 * (c[3] * square));
      put(8, c[8] - 28.0 * (c[6] * c[2]) - 56.0 * (c[5] * c[3]) - 35.0 * (c[4] * c[4]) + 420.0 * (c[4] * square) +
                 560.0 * (c[3] * c[3] * c[2]) - 630.0 * (square * square));
    }
  }
}

void cumulants(Index n, Index n_orders, const double* central, double* cumulant, Index stride) {
  return n_orders == 8 ? cumulants_of<8>(n, central, cumulant, stride) : cumulants_of<4>(n, central, cumulant, stride);
}

template <int n_orders>
PYDIRECT_INLINE void cumulants_adjoint_of(Index n, const double* central, double* gradient, Index stride) {
  for (Index i = 0; i < n; i += PackD::lanes) {
    PackD c[9], g[9];
    PYDIRECT_UNROLL for (int r = 2; r <= n_orders; ++r) {
      c[r] = load(central + (r - 1) * stride + i);
      g[r] = load(gradient + (r - 1) * stride + i);
    }
    g[2] = g[2] - 6.0 * (c[2] * g[4]);
    if (n_orders == 8) {
      const PackD square = c[2] * c[2];
      g[2] = g[2] - 10.0 * (c[3] * g[5]) + (90.0 * square - 15.0 * c[4]) * g[6] +
             (420.0 * (c[3] * c[2]) - 21.0 * c[5]) * g[7] +
             (840.0 * (c[4] * c[2]) + 560.0 * (c[3] * c[3]) - 28.0 * c[6] - 2520.0 * (square * c[2])) * g[8];
      g[3] = g[3] - 10.0 * (c[2] * g[5]) - 20.0 * (c[3] * g[6]) + (210.0 * square - 35.0 * c[4]) * g[7] +
             (1120.0 * (c[3] * c[2]) - 56.0 * c[5]) * g[8];
      g[4] = g[4] - 15.0 * (c[2] * g[6]) - 35.0 * (c[3] * g[7]) + (420.0 * square - 70.0 * c[4]) * g[8];
      g[5] = g[5] - 21.0 * (c[2] * g[7]) - 56.0 * (c[3] * g[8]);
      g[6] = g[6] - 28.0 * (c[2] * g[8]);
    }
    PYDIRECT_UNROLL for (int r = 2; r <= n_orders; ++r) store(gradient + (r - 1) * stride + i, g[r]);
  }
}

void cumulants_adjoint(Index n, Index n_orders, const double* central, double* gradient, Index stride) {
  return n_orders == 8 ? cumulants_adjoint_of<8>(n, central, gradient, stride)
                       : cumulants_adjoint_of<4>(n, central, gradient, stride);
}

// The longest formulas are written on native vectors, a part of a pack at a time: fewer values wait in registers, and a
// compiler that watches every temporary object has none to watch.
using Part = PackD::vector;
constexpr Index kPart = PackD::lanes / PackD::parts;

PYDIRECT_INLINE Part load_part(const double* src) {
  typedef Part unaligned __attribute__((aligned(sizeof(double)), may_alias));
  return *reinterpret_cast<const unaligned*>(src);
}

PYDIRECT_INLINE void store_part(double* dst, const Part& x) {
  typedef Part unaligned __attribute__((aligned(sizeof(double)), may_alias));
  *reinterpret_cast<unaligned*>(dst) = x;
}

// With a = κ_1 + b and c_r = E b^r: z − E z = u b + (b² − c_2), u = 2 κ_1. The expectations of (b² − c_2)^i b^j that
// the central moments of z need are polynomials of c_2 … c_8.
struct CentralSum {
  Part c2, c3, c4, c5, c6, c7, c8;
  Part b22, q3, q4, r3, r4, r5, r6;
  Part u, u2, u3;

  PYDIRECT_INLINE CentralSum(const double* cumulant, Index stride) {
    const Part k1 = load_part(cumulant), k2 = load_part(cumulant + stride), k3 = load_part(cumulant + 2 * stride),
               k4 = load_part(cumulant + 3 * stride), k5 = load_part(cumulant + 4 * stride),
               k6 = load_part(cumulant + 5 * stride), k7 = load_part(cumulant + 6 * stride),
               k8 = load_part(cumulant + 7 * stride);
    const Part square = k2 * k2;
    c2 = k2;
    c3 = k3;
    c4 = k4 + 3.0 * square;
    c5 = k5 + 10.0 * (k3 * k2);
    c6 = k6 + 15.0 * (k4 * k2) + 10.0 * (k3 * k3) + 15.0 * (square * k2);
    c7 = k7 + 21.0 * (k5 * k2) + 35.0 * (k4 * k3) + 105.0 * (k3 * square);
    c8 = k8 + 28.0 * (k6 * k2) + 56.0 * (k5 * k3) + 35.0 * (k4 * k4) + 210.0 * (k4 * square) +
         280.0 * (k3 * k3 * k2) + 105.0 * (square * square);
    b22 = c4 - square;                                                     // E (b² − c2)²
    q3 = c5 - 2.0 * (c2 * c3);                                             // E b (b² − c2)²
    q4 = c6 - 3.0 * (c2 * c4) + 2.0 * (square * c2);                       // E (b² − c2)³
    r3 = c5 - c2 * c3;                                                     // E b³ (b² − c2)
    r4 = c6 - 2.0 * (c2 * c4) + square * c2;                               // E b² (b² − c2)²
    r5 = c7 - 3.0 * (c2 * c5) + 3.0 * (square * c3);                       // E b (b² − c2)³
    r6 = c8 - 4.0 * (c2 * c6) + 6.0 * (square * c4) - 3.0 * (square * square);  // E (b² − c2)⁴
    u = k1 + k1;
    u2 = u * u;
    u3 = u2 * u;
  }
};

void square_moments(const SquareMoments& p) {
  for (Index i = 0; i < p.n_units * PackD::lanes; i += kPart) {
    const CentralSum s(p.cumulant + i, p.stride);
    const Part k1 = load_part(p.cumulant + i);
    const Part m = k1 * k1 + s.c2;
    const Part s2 = s.u2 * s.c2 + 2.0 * (s.u * s.c3) + s.b22;
    store_part(p.m + i, m);
    store_part(p.s2 + i, s2);
    store_part(p.e3 + i, s.u3 * s.c3 + 3.0 * (s.u2 * s.b22) + 3.0 * (s.u * s.q3) + s.q4);
    store_part(p.e4 + i, s.u2 * s.u2 * s.c4 + 4.0 * (s.u3 * s.r3) + 6.0 * (s.u2 * s.r4) + 4.0 * (s.u * s.r5) + s.r6);
    store_part(p.z2 + i, m * m + s2);
    store_part(p.t + i, m * s2);
    store_part(p.m3 + i, m * m * m);
  }
}

void square_variance(const SquareVariance& p) {
  const PackD weight = load(p.weight);
  PackD variance = load(p.variance);
  for (Index k = 0, i = 0; k < p.n_units; ++k, i += PackD::lanes) {
    const PackD m = load(p.m + i), s2 = load(p.s2 + i), e3 = load(p.e3 + i), e4 = load(p.e4 + i), q = load(p.q + i);
    const PackD n_kk = broadcast(p.diagonal[k]);
    const PackD me3 = m * e3, mm = m * m, mms2 = mm * s2, s2s2 = s2 * s2, m4 = mm * mm;
    variance = variance + p.coefficient[0][k] * e4 + p.coefficient[1][k] * me3 + p.coefficient[2][k] * mms2 +
               p.coefficient[3][k] * s2s2 + p.coefficient[4][k] * m4 + 4.0 * (q * (q * s2 + n_kk * e3)) +
               2.0 * (s2 * load(p.t + i));
    if (p.weighted_s2 == nullptr) continue;
    store(p.weighted_s2 + i, weight * s2);
    store(p.g_q + i, weight * (8.0 * (q * s2) + 4.0 * (n_kk * e3)));
    increase(p.sums[0] + i, weight * e4);
    increase(p.sums[1] + i, weight * me3);
    increase(p.sums[2] + i, weight * mms2);
    increase(p.sums[3] + i, weight * s2s2);
    increase(p.sums[4] + i, weight * m4);
    increase(p.sums[5] + i, weight * (q * e3));
  }
  store(p.variance, variance);
}

void square_adjoint(const SquareAdjoint& p) {
  for (Index i = 0; i < p.n_units * PackD::lanes; i += kPart) {
    const Index k = i / PackD::lanes;
    const Part weight = load_part(p.weight + i % PackD::lanes);
    const Part m = load_part(p.m + i), s2 = load_part(p.s2 + i), e3 = load_part(p.e3 + i), q = load_part(p.q + i);
    const Part g_z2 = load_part(p.g_z2 + i), g_t = load_part(p.g_t + i), mm = m * m;
    const double c1 = p.coefficient[1][k], c2 = p.coefficient[2][k];
    const Part gm = load_part(p.g_m + i) + 2.0 * (m * g_z2) + s2 * g_t + 3.0 * (mm * load_part(p.g_m3 + i)) +
                     weight * (c1 * e3 + 2.0 * (c2 * (m * s2)) + (4.0 * p.coefficient[4][k]) * (mm * m));
    const Part gs2 = load_part(p.g_s2 + i) + g_z2 + m * g_t +
                      weight * (c2 * mm + (2.0 * p.coefficient[3][k]) * s2 + 4.0 * (q * q + load_part(p.t + i)));
    const Part ge3 = load_part(p.g_e3 + i) + weight * (c1 * m + (4.0 * p.diagonal[k]) * q);
    const Part ge4 = p.coefficient[0][k] * weight;

    double* at = p.cumulant + i;
    const CentralSum s(at, p.stride);
    const Part square = s.c2 * s.c2;
    const Part gu = 2.0 * (gs2 * (s.u * s.c2 + s.c3)) + 3.0 * (ge3 * (s.u2 * s.c3 + 2.0 * (s.u * s.b22) + s.q3)) +
                     4.0 * (ge4 * (s.u3 * s.c4 + 3.0 * (s.u2 * s.r3 + s.u * s.r4) + s.r5));
    const Part gb22 = gs2 + 3.0 * (s.u2 * ge3), gq3 = 3.0 * (s.u * ge3);
    const Part gr3 = 4.0 * (s.u3 * ge4), gr4 = 6.0 * (s.u2 * ge4), gr5 = 4.0 * (s.u * ge4);
    const Part g2 = gm + s.u2 * gs2 - 2.0 * (s.c2 * gb22) - 2.0 * (s.c3 * gq3) + (6.0 * square - 3.0 * s.c4) * ge3 -
                     s.c3 * gr3 + (3.0 * square - 2.0 * s.c4) * gr4 + (6.0 * (s.c2 * s.c3) - 3.0 * s.c5) * gr5 +
                     (12.0 * (s.c2 * s.c4) - 4.0 * s.c6 - 12.0 * (square * s.c2)) * ge4;
    const Part g3 =
        2.0 * (s.u * gs2) + s.u3 * ge3 - 2.0 * (s.c2 * gq3) - s.c2 * gr3 + 3.0 * (square * gr5);
    const Part g4 = gb22 - 3.0 * (s.c2 * ge3) + s.u2 * s.u2 * ge4 - 2.0 * (s.c2 * gr4) + 6.0 * (square * ge4);
    const Part g5 = gq3 + gr3 - 3.0 * (s.c2 * gr5);
    const Part g6 = ge3 + gr4 - 4.0 * (s.c2 * ge4);
    const Part g7 = gr5, g8 = ge4;

    const Part k1 = load_part(at), k2 = s.c2, k3 = s.c3, k4 = load_part(at + 3 * p.stride),
               k5 = load_part(at + 4 * p.stride), k6 = load_part(at + 5 * p.stride);
    store_part(at, 2.0 * (k1 * gm + gu));
    store_part(at + p.stride, g2 + 6.0 * (k2 * g4) + 10.0 * (k3 * g5) + (15.0 * k4 + 45.0 * square) * g6 +
                             (21.0 * k5 + 210.0 * (k3 * k2)) * g7 +
                             (28.0 * k6 + 420.0 * (k4 * k2) + 280.0 * (k3 * k3) + 420.0 * (square * k2)) * g8);
    store_part(at + 2 * p.stride, g3 + 10.0 * (k2 * g5) + 20.0 * (k3 * g6) + (35.0 * k4 + 105.0 * square) * g7 +
                                 (56.0 * k5 + 560.0 * (k3 * k2)) * g8);
    store_part(at + 3 * p.stride, g4 + 15.0 * (k2 * g6) + 35.0 * (k3 * g7) + (70.0 * k4 + 210.0 * square) * g8);
    store_part(at + 4 * p.stride, g5 + 21.0 * (k2 * g7) + 56.0 * (k3 * g8));
    store_part(at + 5 * p.stride, g6 + 28.0 * (k2 * g8));
    store_part(at + 6 * p.stride, g7);
    store_part(at + 7 * p.stride, g8);
  }
}

void quadratic_output(const QuadraticOutput& p) {
  const PackD zero = broadcast(0.0);
  PackD mean = broadcast(p.p0);
  for (Index j = 0, i = 0; j < p.n_units; ++j, i += PackD::lanes) {
    const PackD k1 = load(p.k1 + i), a = p.a ? load(p.a + i) : zero;
    mean = mean + p.p[j] * (k1 * k1 + (a + load(p.v + i)));
  }
  store(p.mean, mean);

  const PackD weight = load(p.weight), rho = mean - load(p.y);
  PackD variance = load(p.variance);
  for (Index j = 0, i = 0; j < p.n_units; ++j, i += PackD::lanes) {
    const PackD k1 = load(p.k1 + i), v = load(p.v + i), a = p.a ? load(p.a + i) : zero, l = p.l ? load(p.l + i) : zero;
    const PackD pj = broadcast(p.p[j]), vpj = broadcast(p.vp[j]), pp = pj * pj;
    const PackD kk = k1 * k1, k2 = a + v, s = kk + k2;
    const PackD fourth = 3.0 * (k2 * k2) + 6.0 * (k2 * kk) + kk * kk;  // E s⁴ without the odd part, which is in L
    const PackD spread = 2.0 * (v * (2.0 * (kk + a) + v));             // E s⁴ − E_z (E s² | z)², likewise
    variance = variance + vpj * fourth + pp * spread + 4.0 * (k1 * l);
    if (p.g_p == nullptr) continue;
    increase(p.g_vp + i, weight * fourth);
    increase(p.g_p + i, weight * (2.0 * (rho * s + pj * spread)));
    const PackD gk2 = 2.0 * (rho * pj) + 6.0 * (vpj * (k2 + kk));
    store(p.k1 + i, weight * (4.0 * (k1 * (rho * pj + vpj * (3.0 * k2 + kk) + 2.0 * (pp * v)) + l)));
    store(p.v + i, weight * (gk2 + 4.0 * (pp * s)));
    if (p.a) store(p.a + i, weight * (gk2 + 4.0 * (pp * v)));
    if (p.l) store(p.l + i, weight * (4.0 * k1));
  }
  store(p.variance, variance);
  if (p.g_p != nullptr) increase(p.g_p0, weight * (2.0 * rho));
}

// x_i x_j for i ≤ j, times `factor` off the diagonal.
void tensor_pairs(Index n_inputs, const double* x, double factor, double* pairs) {
  for (Index i = 0; i < n_inputs; ++i) {
    const PackD xi = load(x + i * PackD::lanes), scaled = factor * xi;
    store(pairs, xi * xi);
    pairs += PackD::lanes;
    for (Index j = i + 1; j < n_inputs; ++j, pairs += PackD::lanes) store(pairs, scaled * load(x + j * PackD::lanes));
  }
}

// Per unit: v_p E a⁴ + p² (E a⁴ − M:T:M), with E a⁴ = qᵀTq + 6 vᵀTq + 3 vᵀTv up to its odd part; the residual carries
// the derivative of A:T:A − 2 A:Y.
void tensor_panel(const TensorPanel& t) {
  const PackD p = load(t.p), vp = load(t.vp), pp = p * p, two = broadcast(2.0);
  PackD qtq = broadcast(0.0), vtq = qtq, vtv = qtq, fit = qtq;
  Index ij = 0;
  for (Index i = 0; i < t.n_inputs * PackD::lanes; i += PackD::lanes) store(t.g_mean + i, broadcast(0.0));
  for (Index i = 0; i < t.n_inputs; ++i) {
    const PackD mi = load(t.mean + i * PackD::lanes);
    PackD gi = broadcast(0.0);
    for (Index j = i; j < t.n_inputs; ++j, ++ij) {
      const PackD q = load(t.q + ij * PackD::lanes), tq = load(t.tq + ij * PackD::lanes),
                  tv = load(t.tv + ij * PackD::lanes), residual = broadcast(t.residual[ij]);
      qtq = qtq + q * tq;
      fit = fit + q * residual;
      const PackD g = two * (two * (vp * (tq + 3.0 * tv) + 2.0 * (pp * tv) + p * residual));
      gi = gi + g * load(t.mean + j * PackD::lanes);
      if (j > i) {
        increase(t.g_mean + j * PackD::lanes, g * mi);
      } else {
        const PackD v = load(t.variance + i * PackD::lanes);
        vtq = vtq + v * tq;
        vtv = vtv + v * tv;
        fit = fit + v * residual;
        store(t.g_variance + i * PackD::lanes, 6.0 * (vp * (tq + tv)) + 4.0 * (pp * (tq + tv)) + two * (p * residual));
      }
    }
    increase(t.g_mean + i * PackD::lanes, gi);
  }
  const PackD fourth = qtq + 6.0 * vtq + 3.0 * vtv, spread = 4.0 * vtq + 2.0 * vtv;
  store(t.value, vp * fourth + pp * spread);
  store(t.g_vp, fourth);
  store(t.g_p, two * (fit + p * spread));
}

void add_cumulants(const UnitCumulants& unit, const double* cumulant, const double* x) {
  for (Index i = 0; i < unit.n_rows; i += PackD::lanes) {
    const PackD x1 = load(x + i), x2 = x1 * x1;
    increase(unit.k[0] + i, cumulant[0] * x1);
    increase(unit.k[1] + i, cumulant[1] * x2);
    increase(unit.k[2] + i, cumulant[2] * (x2 * x1));
    increase(unit.k[3] + i, cumulant[3] * (x2 * x2));
  }
}

void quartic(const UnitCumulants& rest, const double* x, const double* weight, const double* residual, double p,
             double e, double* coefficient) {
  PackD sum[4] = {broadcast(0.0), broadcast(0.0), broadcast(0.0), broadcast(0.0)};
  for (Index i = 0; i < rest.n_rows; i += PackD::lanes) {
    const PackD k1 = load(rest.k[0] + i), k2 = load(rest.k[1] + i), k3 = load(rest.k[2] + i);
    const PackD r2 = k1 * k1 + k2, r3 = k1 * (k1 * k1 + 3.0 * k2) + k3;
    const PackD x1 = load(x + i), x2 = x1 * x1, wx = load(weight + i) * x1, wx2 = wx * x1;
    const PackD rho = p * load(residual + i);
    sum[0] = sum[0] + wx * (rho * k1 + e * r3);
    sum[1] = sum[1] + wx2 * (2.0 * rho + (6.0 * e) * r2);
    sum[2] = sum[2] + wx2 * x1 * k1;
    sum[3] = sum[3] + wx2 * x2;
  }
  coefficient[0] = 4.0 * sum_lanes(sum[0]);
  coefficient[1] = sum_lanes(sum[1]);
  coefficient[2] = 4.0 * e * sum_lanes(sum[2]);
  coefficient[3] = e * sum_lanes(sum[3]);
}

constexpr void fill(QuadraticKernels& k) {
  k.powers = powers;
  k.cumulants = cumulants;
  k.cumulants_adjoint = cumulants_adjoint;
  k.square_moments = square_moments;
  k.square_variance = square_variance;
  k.square_adjoint = square_adjoint;
  k.output = quadratic_output;
  k.tensor_pairs = tensor_pairs;
  k.tensor_panel = tensor_panel;
  k.add_cumulants = add_cumulants;
  k.quartic = quartic;
}
