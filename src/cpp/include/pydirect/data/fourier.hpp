// Random Fourier features of rows of X.
#pragma once

#include "kernels/fourier.hpp"

namespace pydirect {

// out (n_rows, out_stride): amplitudes times cosines and sines of the phases X·frequencies (turns).
template <class T>
void fourier_features(const FourierBlock<T>& rows, int n_threads);

}  // namespace pydirect
