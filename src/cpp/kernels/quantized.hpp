// Quantised models: arguments and kernels of quantized-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Rows of a quantised model that kernels take together; fewer are padded.
constexpr Index kIntegerRows = 32;

// Fourier features in fixed point; see quantized-inl.hpp.
struct IntegerFourier {
  Index n_inputs, n_frequencies;
  const int* q;                 // (n_inputs, kIntegerRows)
  const unsigned* frequencies;  // (n_frequencies, n_inputs), shifts included
  short* out;                   // (2 n_frequencies, kIntegerRows): cosine, sine, cosine, …
};

// Sums of basis functions by the level of their weight, for rows side by side.
struct LevelSums {
  Index n_columns, n_levels;
  const int* start;   // (n_columns · n_levels + 1,) where the indices of a column's level begin
  const int* index;   // basis functions
  const int* levels;  // (n_levels,)
  const short* phi;   // (n_features, rows)
  int* out;           // (n_columns, rows)
};

struct QuantizedKernels {
  void (*fourier)(const IntegerFourier&);
  void (*sums)(const LevelSums&);
};

}  // namespace pydirect
