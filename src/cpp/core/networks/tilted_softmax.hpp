// A bound of the expected log-normaliser of a softmax of Gaussian logits.
#pragma once

#include "gaussian_layers.hpp"

namespace pydirect::gaussian_network {

// Lower bound of E [a_y − lse(a)], tight to second order: for any weights t of sum one
//   E lse(a) ≤ ½ tᵀΣt + lse(m + ½ diag Σ − Σt)
// (Knowles & Minka 2011, with the full covariance), convex in t and smallest where t is the softmax on the right.
// Unlike eq. (21) it does not reward large variances of logits that are far apart.
double tilted_classification(Index label, const OutputGaussian& output, double factor, const OutputAdjoint& adjoint);

}  // namespace pydirect::gaussian_network
