// Covariances of all pairs of a layer's Gaussian units, row by row of data: kernels of unit_covariance-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Rows of a table of d units: a pack from any unit on lies inside.
inline constexpr int kUnitTableRows = 10;
inline constexpr Index unit_table_stride(Index d) { return (d + 15) / 8 * 8; }

// Doubles that `scratch` must have room for.
inline constexpr Index unit_scratch_size(Index d) { return kUnitTableRows * unit_table_stride(d); }

// Whether the adjoint reads what the covariance has left in `residual`.
inline constexpr bool needs_residual(Activation activation, PairKernel kernel) {
  return activation == Activation::kRelu && kernel != PairKernel::kPaper;
}

struct UnitCovarianceKernels {
  // C = Cov f(a), (d, d), both triangles and the exact diagonal, for a of covariance S (d, d), symmetric, of which the
  // diagonal and the upper triangle are read. `residual` (d, d), or null when no adjoint follows that needs it, takes
  // in its upper triangle what the adjoint reads again. S, C and residual are row-major and distinct.
  void (*covariance)(Activation, PairKernel, Index d, const double* mean, const double* S, double* C, double* residual,
                     double* scratch);
  // Adds to mean_bar (d,) and S_bar (d, d), symmetric before and after, what C_bar, symmetric, gives them:
  // dL = Σ_ik C_bar_ik dC_ik over both triangles. The diagonal of C_bar is the adjoint of hv.
  void (*adjoint)(Activation, PairKernel, Index d, const double* mean, const double* S, const double* residual,
                  const double* C_bar, double* mean_bar, double* S_bar, double* scratch);
};

}  // namespace pydirect
