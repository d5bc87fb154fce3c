// The steps of mean-field inference for several models of the same A at once, spread over threads by lanes.
#pragma once

#include "kernels/lanes.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

void tilt_lanes(const LaneFamily& family, const LaneMoments& moments, Index n_weights, int n_threads);
void sweep_lanes(const LaneFamily& family, const LaneSweep& sweep, int n_threads);
void start_lanes_from_lattice(const LaneFamily& family, const LaneLattice& lattice, int n_threads);

// y = a x, a (n, n) and x, y (n, stride).
void multiply_lanes(Index n, const float* a, const float* x, float* y, Index stride, int n_threads);
void multiply_lanes(Index n, const double* a, const double* x, double* y, Index stride, int n_threads);

}  // namespace pydirect
