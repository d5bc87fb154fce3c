// Expectations of softmax and logistic likelihoods over Gaussian logits: arguments and kernels of expectations-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// A runner arrives at mean + sd Z + G, Z standard normal, G standard Gumbel; F(time) = Pr(arrived by then).
// Its log(−log F) in y = (time − mean) / √(1 + sd²), for angles atan(sd): with its first two derivatives in y (times
// the spacing, and half its square) at evenly spaced y, for Hermite's interpolation of fifth degree; Lagrange's of the
// same degree in the angle. Together some 1e-9 of F.
constexpr Index kRunnerAngles = 64;  // intervals from 0 to π/2
constexpr Index kAngleOrder = 6;    // rows that are combined: two before the interval's first, three after it
constexpr Index kRunnerRows = kRunnerAngles + kAngleOrder / 2;
constexpr double kRunnerFirst = -10.5, kRunnerSpacing = 0.25;
constexpr Index kRunnerNodes = 91;
constexpr Index kRunnerStride = 280;  // three values a node, padded

struct SoftmaxRows {
  Index n_rows, n_classes;
  const double* mean;      // (n_rows, n_classes)
  const double* variance;  // (n_rows,) of every logit of the row
  const double* table;     // (kRunnerRows, kRunnerStride)
  Index n_nodes;  // in y since the origin
  const double *node, *weight;
  double* scratch;        // (n_classes, kRaceScratch)
  double* log_partition;  // (n_rows,)
  double* probability;    // (n_rows, n_classes)
  double* curvature;      // (n_rows,)
};
constexpr Index kRaceScratch = 24;
constexpr double kRaceOrigin = 2.0;  // standard deviations above the largest mean

// l = E log(1 + eᶻ) / √(1 + sd²) of one logit of mean ≤ 0, in y = −mean / √(1 + sd²), for angles atan(sd): with its
// first three derivatives in y (times powers of the spacing), which give E σ(z) and E σ(z) σ(−z) too.
constexpr Index kLogitAngles = 64;
constexpr double kLogitSpacing = 0.125;
constexpr Index kLogitNodes = 193;  // from zero on
constexpr Index kLogitStride = 4 * kLogitNodes;

struct SigmoidRows {
  Index n_rows;
  const double *mean, *variance;  // (n_rows,)
  const double* table;            // (kLogitAngles + 1, kLogitStride)
  double *log_partition, *probability, *curvature;
};

struct ExpectationKernels {
  void (*softmax)(const SoftmaxRows&);
  void (*sigmoid)(const SigmoidRows&);
};

}  // namespace pydirect
