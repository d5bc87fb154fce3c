// Coordinate ascent for several models of the same A: arguments and kernels of lanes-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Posteriors of several models with the same A, side by side: arrays (n_weights, stride), one lane per model. Lanes are
// handled in packs of kLanePack; those that no model uses hold a copy of one that does.
inline constexpr Index kLanePack = 16, kMostLanes = 64;

struct LaneFamily {
  Index n_levels;           // of every model; levels that one lacks have log_prior = −inf and level 0
  const double* levels;     // (n_weights or 1, n_levels, stride)
  Index level_stride;       // 0 when all weights share their levels
  const double* log_prior;  // (n_weights or 1, n_levels, stride)
  Index prior_stride;       // 0 when all weights share their prior
  Index stride;
};

struct LaneMoments {
  double* eta;
  double* kappa;
  double* mean;
  double* second;
  double* gain;
};

// One pass of coordinate ascent over the weights of all models, in place.
struct LaneSweep {
  Index n_weights;
  const float* a;                 // (n_weights, n_weights) symmetric
  const double* diagonal;         // (n_weights,) of a
  const double* prior_precision;  // (n_weights, stride)
  const double* residual;         // c − A s at the last exact evaluation
  float* drift;                   // change of the residual since then
  const double* tau;              // (stride,)
  const double* threshold;        // (stride,) as in Sweep; infinite where a model is at rest
  LaneMoments moments;
  double* moved;                  // (stride,) out: number of weights that moved
};

// Back-substitution with rounding in expectation (Babai) for models that share the factor of A + ridge.
struct LaneLattice {
  Index n_weights;
  const float* factor;            // (n_weights, n_weights), upper
  const double* ridge;            // solutions of the ridge problems
  const double* diagonal;         // (n_weights,) of A
  const double* prior_precision;  // (n_weights, stride)
  const double* tau;              // (stride,)
  float* excess;                  // workspace
  float* pull;                    // workspace, zero
  LaneMoments moments;
};

// On the lanes from `first` on: `count` of them, in whole packs.
struct LaneKernels {
  void (*tilt)(const LaneFamily&, const LaneMoments&, Index begin, Index end, Index first, Index count);
  void (*sweep)(const LaneFamily&, const LaneSweep&, Index first, Index count);
  void (*lattice)(const LaneFamily&, const LaneLattice&, Index first, Index count);
  // y += a x for rows of a and all columns of x in a range of lanes; x and y have rows of `stride`.
  void (*product)(Index begin, Index end, Index n_inner, const float* a, Index lda, const float* x, float* y,
                  Index stride, Index first, Index count);
};

}  // namespace pydirect
