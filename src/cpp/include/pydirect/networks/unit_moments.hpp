// Moments of h = f(a) for Gaussian a: units one by one, and all pairs of a layer. One datum at a time; no allocation.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// hm = E h, v = E h², hv = Var h; all (d,). d may run over the units of several data at once. A unit of variance zero
// is deterministic.
void activation_moments(Activation activation, Index d, const double* mean, const double* variance, double* hm,
                        double* v, double* hv);

// Adds to mean_bar and variance_bar what hm_bar, v_bar and hv_bar, three outputs on their own, give them.
void activation_moments_adjoint(Activation activation, Index d, const double* mean, const double* variance,
                                const double* hm_bar, const double* v_bar, const double* hv_bar, double* mean_bar,
                                double* variance_bar);

// The moments with Φ(μ) and φ(μ)/s, μ = mean / s, which may both be null.
struct MomentsAndSlopes {
  double *hm, *v, *hv, *cdf, *density;
};
void activation_moments_and_slopes(Activation activation, Index d, const double* mean, const double* variance,
                                   const MomentsAndSlopes& out);

// Doubles that `scratch` must have room for, in both functions below.
Index activation_scratch_size(Index d);

// C = Cov h, (d, d), both triangles and the exact diagonal, for a of covariance S (d, d), symmetric, of which the
// diagonal and the upper triangle are read. `residual` (d, d), or null when no adjoint follows that needs it, takes in
// its upper triangle what the adjoint reads again. S, C and residual are row-major and distinct.
inline bool needs_residual(Activation activation, PairKernel kernel) {
  return activation == Activation::kRelu && kernel != PairKernel::kPaper;
}
void activation_covariance(Activation activation, PairKernel kernel, Index d, const double* mean, const double* S,
                           double* C, double* residual, double* scratch);

// Adds to mean_bar (d,) and S_bar (d, d), symmetric before and after, what C_bar, symmetric, gives them:
// dL = Σ_ik C_bar_ik dC_ik over both triangles. The diagonal of C_bar is the adjoint of hv.
void activation_covariance_adjoint(Activation activation, PairKernel kernel, Index d, const double* mean,
                                   const double* S, const double* residual, const double* C_bar, double* mean_bar,
                                   double* S_bar, double* scratch);

}  // namespace pydirect
