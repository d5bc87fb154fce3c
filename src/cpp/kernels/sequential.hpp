// Weights drawn one after another: arguments and kernels of sequential-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

inline constexpr Index kMostDrawLevels = 256;

inline constexpr Index kDrawPanel = 48;  // positions at most: a multiple of the height of a product's tile

// Draws of one run: 8 of them with doubles, 16 with floats, side by side in a pack.
template <class T>
inline constexpr Index kDrawRun = 64 / Index(sizeof(T));

// Consecutive positions, drawn from the last to the first. Tables have a row per position of the panel:
//     q(k) ∝ exp(tilt_k − (r_jj (level_k − mean) + Σ_{i > j} r_ji excess_i)²/2),    excess = level drawn − mean.
template <class T>
struct SequentialPanel {
  Index n_positions, n_later, n_levels;  // n_later: positions after the panel
  const T* factor;                       // (n_positions, n_positions + n_later) from its diagonal on, upper
  Index stride;
  const T* offset;   // (n_positions, n_levels): level − mean
  const T* scaled;   // the same times r_jj
  const T* tilt;     // the same shape
};

template <class T>
struct SequentialRun {
  const double* uniforms;     // (n_positions, ·) in (0, 1); null: the most probable level
  Index uniform_stride;
  T* excess;                  // (n_positions + n_later, run): the panel's out
  std::uint8_t* code;         // (n_positions, ·) out
  Index code_stride;
  double *log_normaliser, *log_q;  // (run,) increased
};

template <class T>
struct SequentialKernels {
  void (*draw)(const SequentialPanel<T>&, const SequentialRun<T>&);
};

}  // namespace pydirect
