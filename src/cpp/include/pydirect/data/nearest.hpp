// Conditional densities of rows given their nearest preceding rows, a Gaussian process' evidence from neighbours.
#pragma once

#include "kernels/nearest.hpp"

namespace pydirect {

inline constexpr Index kScanPadding = 16;

// For each target, an index of x's columns, the k nearest among the columns before it, in order of their indices; −1
// where there are fewer. x (n_inputs, stride), stride a multiple of kScanPadding; out (n_targets, k).
struct NearestSearch {
  Index n_inputs, stride, n_targets, n_neighbours;
  const float* x;
  const std::int64_t* targets;
};

void nearest_preceding(const NearestSearch& problem, std::int64_t* out, int n_threads);

// Inputs in which rows x (n_rows, n_inputs) differ from the first, a bit each, (n_rows, moving_words), zeros before. Where
// inputs are few there are no words, and all count as different.
void mark_moving_inputs(const double* x, Index n_rows, Index n_inputs, std::uint64_t* out);
Index moving_words(Index n_inputs);

// rows (n_targets, k + 1): the neighbours, −1 for none, and last the target, indices of x (n_rows, n_inputs).
struct NearestRows {
  Index n_rows, n_inputs, n_targets, n_neighbours;
  const double* x;
  const std::int64_t* rows;
  const std::uint64_t* moving;  // as of mark_moving_inputs, (n_rows, n_words)
  Index n_words;

  Index n_groups() const { return (n_targets + kTargetsTogether - 1) / kTargetsTogether; }
  Index n_pairs() const { return n_neighbours * (n_neighbours + 1) / 2; }
};

// Distances between all pairs of a target's rows, (n_groups, n_pairs, kTargetsTogether).
void nearest_distances(const NearestRows& rows, double* out, int n_threads);

struct NearestProblem {
  NearestRows rows;         // x divided by the length-scales
  Index n_outputs;
  const double* isotropic;  // as of nearest_distances
  const double* noise;      // (n_rows,)
  const double* residual;   // (n_rows, n_outputs)
  double ard_amplitude, isotropic_amplitude, isotropic_length_scale;
  int twice_smoothness;
};

// −Σ log density and its derivatives in log noise, a_A, a_I, ℓ_I and, if wanted, in log ℓ of every input, (5 + n_inputs,);
// optionally the weights of the rows (n_targets, k + 1), −1 for the target, and the variances (n_targets,). False if a
// covariance has no factor.
bool nearest_evidence(const NearestProblem& problem, bool with_gradient, double* out, double* weights,
                      double* variances, int n_threads);

}  // namespace pydirect
