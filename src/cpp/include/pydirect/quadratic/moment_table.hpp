// The stage before every engine of quadratic networks: logits of the weights → q → moment table, and derivatives back.
//
// Weights are numbered layer by layer, then output unit, then input. Rows of logits, q and slopes have the family's
// padded number of levels. A level without prior mass has no probability, whatever its logit, and a gradient of zero:
// padding may hold any number.
#pragma once

#include "kernels/moment_table.hpp"
#include "pydirect/quadratic/network.hpp"

namespace pydirect {

// All of rows and moments (the table) from rows.logits; −inf is a probability of zero.
void moments_from_logits(const NetworkShape& shape, const TiltFamily& family, const CategoricalRows& rows,
                         double* moments, int n_threads);

void moments_from_probabilities(const NetworkShape& shape, const TiltFamily& family, const double* q, double* moments,
                                int n_threads);

// ∂R/∂q(w) (n_weights, n_levels) from ∂R/∂moments, up to a constant for every weight: zero at its mean.
void probability_slopes(const NetworkShape& shape, const TiltFamily& family, double* moments, const double* gradient,
                        double* out, int n_threads);

// Gradient of factor·R + KL(q ‖ p) in the logits, with rows and moments as moments_from_logits left them.
void logit_gradient(const NetworkShape& shape, const TiltFamily& family, const CategoricalRows& rows, double* moments,
                    const double* gradient, double factor, double* out, int n_threads);

}  // namespace pydirect
