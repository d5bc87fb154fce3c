// Covariances of all pairs of a layer's Gaussian units: kernels of unit_covariance-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Rows of a table of d units: a pack from any unit on lies inside.
inline constexpr int kActivationTableRows = 10;
inline constexpr Index activation_table_stride(Index d) { return (d + 15) / 8 * 8; }

// As in pydirect/networks/unit_moments.hpp.
struct UnitCovarianceKernels {
  void (*covariance)(Activation, PairKernel, Index d, const double* mean, const double* S, double* C, double* residual,
                     double* scratch);
  void (*adjoint)(Activation, PairKernel, Index d, const double* mean, const double* S, const double* residual,
                  const double* C_bar, double* mean_bar, double* S_bar, double* scratch);
};

}  // namespace pydirect
