// Moments of Gaussian units one by one: kernels of unit_moments-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// As in pydirect/networks/unit_moments.hpp; cdf and density may both be null.
struct UnitMomentKernels {
  void (*moments)(Activation, Index d, const double* mean, const double* variance, double* hm, double* v, double* hv,
                  double* cdf, double* density);
  void (*adjoint)(Activation, Index d, const double* mean, const double* variance, const double* hm_bar,
                  const double* v_bar, const double* hv_bar, double* mean_bar, double* variance_bar);
};

}  // namespace pydirect
