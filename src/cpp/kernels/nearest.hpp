// Densities of rows given their nearest preceding rows: arguments and kernels of nearest-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Targets that stand beside each other in the lanes of a pack, and inputs that are summed over together.
inline constexpr Index kTargetsTogether = 8;
inline constexpr Index kInputsTogether = 4;

// Eight targets and k neighbours each. Every entry below is eight doubles, one per target; row k is the target itself.
// Pairs (j, l) of rows, l < j, are in the order of a packed lower triangle: j(j − 1)/2 + l.
struct NearestGroup {
  Index n_neighbours, n_inputs, n_outputs;  // n_inputs is a multiple of kInputsTogether
  const double* x;          // (n_inputs, k + 1) divided by the length-scales, of inputs that targets may each have
  const double* isotropic;  // (pairs,) |x_I − x_I'|
  const double* present;    // (k + 1,) 1, or 0 where there is no such row
  const double* noise;      // (k + 1,)
  const double* residual;   // (n_outputs, k + 1), 0 where there is no such row
  double ard_amplitude, isotropic_amplitude, isotropic_length_scale;
  double *triangle, *slope, *rough, *alpha;  // scratch: (pairs + k + 1,), (pairs,), (pairs,), (n_outputs, k + 1)
  double *b, *variance;                      // out: weights of the rows, −1 for the target, (k + 1,), and v
  double* gradient;  // out: derivative in log ℓ of every input, (n_inputs,); null: the value alone
  double sums[4];    // out: value, its derivatives in log noise, a_A, a_I
  double distance;   // out: in log ℓ_I
  bool is_valid;     // out: whether all covariances have factors
};

// Squared distances between one row and others, in whole packs. Along columns `moved` `start` has those from the first row,
// along others that are not `dense` all there is; null: zeros, without such columns.
struct NearestScan {
  const float* x;  // (n_inputs, stride)
  Index stride, count;
  const float *own, *start;  // (n_inputs,), (stride,)
  const Index* moved;
  Index n_moved;
  const Index* dense;
  Index n_dense;
  float* out;  // (stride,)
};

struct NearestKernels {
  void (*evidence[4])(NearestGroup&);  // by kernel_of
  // |x − x'|² of all pairs of a group's rows, (pairs,)
  void (*pairs)(const double* x, Index n_rows, Index n_inputs, double* out);
  void (*scan)(const NearestScan&);
};

}  // namespace pydirect
