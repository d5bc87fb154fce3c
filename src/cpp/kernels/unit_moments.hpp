// Moments of Gaussian units one by one: arguments and kernels of unit_moments-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// E h, E h² and Var h of h = f(a), and Φ(μ) and φ(μ)/s with μ = mean / s, which may both be null; (d,) each.
struct UnitMoments {
  double *hm, *v, *hv, *cdf, *density;
};

// d may run over the units of several rows at once. A unit of variance zero is deterministic.
struct UnitMomentKernels {
  void (*moments)(Activation, Index d, const double* mean, const double* variance, const UnitMoments& out);
  // Adds to mean_bar and variance_bar what hm_bar, v_bar and hv_bar, three outputs on their own, give them.
  void (*adjoint)(Activation, Index d, const double* mean, const double* variance, const double* hm_bar,
                  const double* v_bar, const double* hv_bar, double* mean_bar, double* variance_bar);
};

}  // namespace pydirect
