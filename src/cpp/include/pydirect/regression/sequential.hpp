// The sequential posterior: weights drawn one after another given those drawn before (Klein 2000).
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

enum class DrawKind { kIndependent, kStratified, kNearest };

// Everything but the codes is in the order of the factor: position j is weight order[j].
template <class T>
struct SequentialProblem {
  Index n_weights, n_levels;
  const T* factor;           // (n_weights, n_weights), upper: RᵀR is the posterior's precision
  const double* mean;        // (n_weights,)
  const double* levels;      // (n_weights or 1, n_levels)
  Index level_stride;        // 0 when all weights share their levels
  const double* tilt;        // (n_weights or 1, n_levels): log prior + level²/2v
  Index tilt_stride;
  const std::int64_t* order; // (n_weights,)
};

struct SequentialDraws {
  Index n_draws;
  DrawKind kind;
  std::uint64_t seed;
  std::uint8_t* codes;     // (n_draws, n_weights) in the weights' own order
  double* log_normaliser;  // (n_draws,) Σ log S_j
  double* log_q;           // (n_draws,)
};

template <class T>
void draw_sequentially(const SequentialProblem<T>&, const SequentialDraws&, int n_threads);

// Uniform numbers of weights (n, n_draws); the kind is not kNearest.
void sequential_uniforms(Index n, const std::int64_t* weights, Index n_draws, std::uint64_t seed, DrawKind kind,
                         double* out, int n_threads);

}  // namespace pydirect
