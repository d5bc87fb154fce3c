#include "pydirect/regression/mean_fields.hpp"

#include <algorithm>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kRowsPerChunk = 96;  // a multiple of the height of a tile

// Calls body(first, count) for runs of lanes, long enough to share reads of A and as many as there are threads.
template <class Body>
void for_lanes(Index stride, int n_threads, const Body& body) {
  const Index packs = stride / kLanePack, shares = std::max(1, n_threads);
  const Index run = std::min(kMostLanes / kLanePack, (packs + shares - 1) / shares) * kLanePack;
  for_chunks(stride, run, n_threads, [&](Index begin, Index end) { body(begin, end - begin); });
}

}  // namespace

void tilt_lanes(const LaneFamily& family, const LaneMoments& moments, Index n_weights, int n_threads) {
  for_chunks(n_weights, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().lanes.tilt(family, moments, begin, end, 0, family.stride);
  });
}

void sweep_lanes(const LaneFamily& family, const LaneSweep& sweep, int n_threads) {
  for_lanes(family.stride, n_threads,
            [&](Index first, Index count) { kernels().lanes.sweep(family, sweep, first, count); });
}

void start_lanes_from_lattice(const LaneFamily& family, const LaneLattice& lattice, int n_threads) {
  for_lanes(family.stride, n_threads,
            [&](Index first, Index count) { kernels().lanes.lattice(family, lattice, first, count); });
}

void multiply_lanes(Index n, const float* a, const float* x, float* y, Index stride, int n_threads) {
  for_chunks(n, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    std::fill(y + begin * stride, y + end * stride, 0.0f);
    kernels().lanes.product(begin, end, n, a, n, x, y, stride, 0, stride);
  });
}

void multiply_lanes(Index n, const double* a, const double* x, double* y, Index stride, int n_threads) {
  for_chunks(n, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().products.matrix({end - begin, n, stride, a + begin * n, n, 1, 8, x, stride, 8, y + begin * stride, stride,
                              8, false, false});
  });
}

}  // namespace pydirect
