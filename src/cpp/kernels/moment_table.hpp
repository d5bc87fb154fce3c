// From logits to a quadratic network's central moments, and back: arguments and kernels of moment_table-inl.hpp.
#pragma once

#include "kernels/tilt.hpp"

namespace pydirect {

// Rows of a factorised categorical, each n_levels of the family long.
struct CategoricalRows {
  const double* logits;
  double* q;
  double* log_ratio;   // log q − log p where q > 0, else 0
  double* divergence;  // (n_weights,) KL(q ‖ p)
};

// One layer's part of a quadratic network's moment table: means, then E (w − E w)^r for r = 2 … n_moments.
struct MomentTable {
  Index n_moments;     // 2, 4, 8 or a multiple of 8
  Index n_weights;     // of the layer
  Index first_weight;  // its first weight among all
  double* moments;     // (n_moments, n_weights)
};

// For ranges of weights, which are numbered through all layers.
struct MomentTableKernels {
  // q, log_ratio and divergence.
  void (*softmax)(const TiltFamily&, const CategoricalRows&, Index begin, Index end);
  void (*central_moments)(const TiltFamily&, const double* q, const MomentTable&, Index begin, Index end);
  // ∂R/∂q up to a constant for every weight, from the derivatives of R in the layer's moments.
  void (*slopes)(const TiltFamily&, const MomentTable&, const double* gradient, double* out, Index begin, Index end);
  // Gradient of factor·R + KL in the logits.
  void (*logit_gradient)(const TiltFamily&, const CategoricalRows&, const MomentTable&, const double* gradient,
                         double factor, double* out, Index begin, Index end);
};

}  // namespace pydirect
