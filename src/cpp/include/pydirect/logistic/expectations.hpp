// Expectations of softmax and logistic likelihoods over independent Gaussian logits.
#pragma once

#include "kernels/expectations.hpp"

namespace pydirect {

// Fills the expectations of all rows; tables and scratch are provided here.
void expected_softmax(const SoftmaxRows& rows, int n_threads);
void expected_sigmoid(const SigmoidRows& rows, int n_threads);

}  // namespace pydirect
