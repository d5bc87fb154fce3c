// The tilted categorical family and coordinate ascent on it: arguments and kernels of tilt-inl.hpp.
#pragma once

#include <cstdint>

#include "pydirect/types.hpp"

namespace pydirect {

// Factorised categorical in its natural parameters: q_j(w) ∝ p_j(w) exp(eta_j w − kappa_j w²).
struct TiltFamily {
  Index n_levels;           // padded to kLevelPadding; padding has log_prior = −inf and level 0
  const double* levels;     // (n_weights or 1, n_levels)
  Index level_stride;       // 0 when all weights share their levels
  const double* log_prior;  // (n_weights or 1, n_levels)
  Index prior_stride;       // 0 when all weights share their prior
};

// Moments of a range of weights. gain_j = E_q[log p_j − log q_j].
struct TiltMoments {
  const double* eta;    // (n_weights,)
  const double* kappa;  // (n_weights,)
  double* mean;         // (n_weights,)
  double* second;       // (n_weights,)
  double* gain;         // (n_weights,)
};

// One pass of coordinate ascent over the weights, in place; T is the precision of A.
template <class T>
struct Sweep {
  Index n_weights;
  const std::int64_t* order;  // (n_weights,) in which weights are visited
  const T* a;             // (n_weights, lda) symmetric
  Index lda;
  const double* diagonal; // (n_weights,) of a
  const double* prior_precision;  // (n_weights,)
  double* residual;       // (n_weights,) c − A s
  double tau;
  double threshold;       // a weight moves when |step| sqrt(tau a_jj + prior_precision_j) exceeds it
  double* eta;
  double* kappa;
  double* mean;
  double* second;
  double* gain;
};

struct TiltKernels {
  void (*moments)(const TiltFamily&, const TiltMoments&, Index begin, Index end);
  void (*probabilities)(const TiltFamily&, const double* eta, const double* kappa, double* q, Index begin, Index end);
  // Return the number of weights that moved.
  Index (*sweep)(const TiltFamily&, const Sweep<float>&);
  Index (*exact_sweep)(const TiltFamily&, const Sweep<double>&);
};

}  // namespace pydirect
