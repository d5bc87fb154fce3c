// Random Fourier features: arguments and kernels of fourier-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

template <class T>
struct FourierBlock {
  Index n_rows, n_inputs, n_frequencies;  // n_frequencies padded to 16
  const double* x;                        // (n_rows, n_inputs), row stride x_stride
  Index x_stride;
  const T* frequencies;                   // (n_inputs, padded), in turns per unit of x
  Index padded;
  Index n_used;                           // true number of frequencies
  const T* amplitudes;                    // (padded,) of each frequency
  T* out;                                 // (n_rows, out_stride): cosines then sines
  Index out_stride;
};

struct FourierKernels {
  void (*of_floats)(const FourierBlock<float>&);
  void (*of_doubles)(const FourierBlock<double>&);

  void operator()(const FourierBlock<float>& block) const { of_floats(block); }
  void operator()(const FourierBlock<double>& block) const { of_doubles(block); }
};

}  // namespace pydirect
