// Coordinate ascent on mixtures of factorised categoricals: arguments and kernels of mixture-inl.hpp.
#pragma once

#include "kernels/tilt.hpp"

namespace pydirect {

// Bounds of what one weight of a mixture needs on the stack.
inline constexpr Index kMostComponents = 64, kMostLevels = 256;

// One pass of coordinate ascent over the weights of all components of a mixture, in place: Σ_i α_i times component i's
// ELBO without its entropy, plus the pairwise bound on the entropy of the whole,
//     Σ_i α_i H(q_i) − Σ_i α_i log Z_i,   Z_i = Σ_k α_k C_ik,   C_ik = Π_j Σ_w √(q_ij(w) q_kj(w)).
// Arrays (n_components, n_weights) unless another shape is given.
struct ComponentSweep {
  Index n_weights, n_components;
  const TiltFamily* families;     // (n_components,) of the same number of levels
  const float* a;                 // (n_weights, n_weights) symmetric
  const double* diagonal;         // (n_weights,) of a
  const double* prior_precision;  // (n_weights,)
  const double* residual;
  float* drift;
  double tau;
  double threshold;
  const double* alpha;   // (n_components,)
  const unsigned char* close;  // (n_components, n_components) pairs whose overlap may count; not the diagonal
  double* kappa;
  double* mean;
  double* second;
  double* gain;
  double* root;         // (n_weights, n_components, n_levels) √q
  double* factor;       // (n_weights, n_components, n_components) overlap at one weight, Σ_w √(q_ij(w) q_kj(w))
  double* overlap;      // (n_components, n_components) C
  double* density;      // (n_components,) Z
};

struct MixtureKernels {
  Index (*sweep)(const ComponentSweep&);  // returns the number of weights that moved
  void (*overlap_factors)(Index n_components, Index n_levels, const double* root, double* factor, Index begin,
                          Index end);
};

}  // namespace pydirect
