// Expected exponentials of linear functions of discrete weights, one row of basis functions at a time.
#pragma once

#include "kernels/exponential.hpp"

namespace pydirect {

// Fills log_terms, and gradient when there is one, of all rows; scratch is provided here.
void exponential_terms(const ExponentialRows& rows, int n_threads);

}  // namespace pydirect
