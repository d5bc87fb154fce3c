// Element-wise stages of networks with quadratic activations: arguments and kernels of quadratic-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Eight rows of data between the layers of a network, [n_units][8]. z = a² for a with the cumulants κ_1 … κ_8.
struct SquareMoments {
  Index n_units;
  const double* cumulant;  // κ_r at (r − 1) stride
  Index stride;
  double *m, *s2, *e3, *e4;  // out: mean and central moments of z
  double *z2, *t, *m3;       // out: E z², m s2, m³
};

// Var_z of the output layer, Σ_k c_1 e4 + c_2 m e3 + c_3 m² s2 + c_4 s2² + c_5 m⁴ + 4 q² s2 + 4 q N_kk e3 + 2 s2 T for
// eight rows, where q = N m and T = (N∘N) s2.
struct SquareVariance {
  Index n_units;
  const double* coefficient[5];  // (n_units,) each
  const double* diagonal;        // N_kk
  const double *m, *s2, *e3, *e4;
  const double* q;
  double* g_q;           // out: ∂R/∂q
  const double* t;       // T
  const double* weight;  // (8,)
  double* variance;      // (8,) increased
  double* weighted_s2;   // out: ω s2; null when no gradient is wanted
  double* sums[6];       // (n_units, 8) increased by ω times e4, m e3, m² s2, s2², m⁴, q e3
};

// The way back through both: from ∂R in what the products took to ∂R/∂κ_r, which takes the place of κ_r.
struct SquareAdjoint {
  Index n_units;
  double* cumulant;
  Index stride;
  const double* coefficient[5];
  const double* diagonal;
  const double *m, *s2, *e3;
  const double *q, *t;  // N m and (N∘N) s2
  const double* weight;
  const double *g_m, *g_s2, *g_z2, *g_e3, *g_t, *g_m3;  // from the products
};

// Second moments of f = v_0 + Σ_j v_j s_j for eight rows; E s_j² = K_1² + A + V, and L gathers the third cumulants.
// One hidden layer is the case without A.
struct QuadraticOutput {
  Index n_units;
  const double *p, *vp;  // mean and variance of v_j
  double p0;
  double *k1, *a, *v, *l;  // (n_units, 8); a and l may be null; out: ∂R in each of them when sums are wanted
  const double *y, *weight;  // (8,)
  double *mean, *variance;   // (8,): E f set, Var f increased
  double *g_p, *g_vp;        // (n_units, 8) increased; null when no gradient is wanted
  double* g_p0;              // (8,) increased
};

// Eight hidden units of the tensor engine: pairs (i ≤ j) of inputs, those off the diagonal doubled.
struct TensorPanel {
  Index n_inputs;
  const double *mean, *variance;  // (n_inputs, 8) of the weights
  const double *q;                // (n_pairs, 8) packed μμᵀ
  const double *tq, *tv;          // (n_pairs, 8): T q and T diag(v)
  const double *p, *vp;           // (8,)
  const double* residual;         // (n_pairs,) T A − Y
  double* value;                  // (8,) out
  double *g_mean, *g_variance;    // (n_inputs, 8) out
  double *g_p, *g_vp;             // (8,) out
};

// Cumulants of the sum of a unit, a vector over the data for each.
struct UnitCumulants {
  Index n_rows;  // a multiple of 8
  double* k[4];
};

struct QuadraticKernels {
  // out_r = x^r for r = 2 … n_powers at (r − 1) stride; x itself stands before them.
  void (*powers)(Index n, Index n_powers, double* x, Index stride);
  // Central moments of orders 2 … n_orders (4 or 8) to cumulants, and the derivatives back in place.
  void (*cumulants)(Index n, Index n_orders, const double* central, double* cumulant, Index stride);
  void (*cumulants_adjoint)(Index n, Index n_orders, const double* central, double* gradient, Index stride);
  void (*square_moments)(const SquareMoments&);
  void (*square_variance)(const SquareVariance&);
  void (*square_adjoint)(const SquareAdjoint&);
  void (*output)(const QuadraticOutput&);
  void (*tensor_pairs)(Index n_inputs, const double* x, double factor, double* pairs);
  void (*tensor_panel)(const TensorPanel&);
  // Increases the cumulants of a unit by those of w x.
  void (*add_cumulants)(const UnitCumulants&, const double* cumulant, const double* x);
  // Coefficients of w, …, w⁴ in Σ ω (2 p ρ a² + e a⁴), a = r + w x; k are the cumulants of r.
  void (*quartic)(const UnitCumulants& rest, const double* x, const double* weight, const double* residual, double p,
                  double e, double* coefficient);
};

}  // namespace pydirect
