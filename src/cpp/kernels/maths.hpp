// Element-wise maths with defined edges: kernels of maths-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

struct MathsKernels {
  void (*exp)(Index n, const double* x, double* out);
  void (*log)(Index n, const double* x, double* out);  // positive normal numbers
};

}  // namespace pydirect
