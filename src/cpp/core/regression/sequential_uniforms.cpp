#include "sequential_uniforms.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

enum : unsigned { kIndependentStream = 0, kPlaceStream = 1, kChoiceStream = 2 };

constexpr int kBits = 51;  // of v: both v/2 and 1 − v/2 are then exact
constexpr Index kDrawnWeightsPerChunk = 8;

}  // namespace

UniformNumbers::UniformNumbers(DrawKind kind, Index n_draws, std::uint64_t seed)
    : kind_(kind), n_draws_(n_draws), n_pairs_(kind == DrawKind::kStratified ? (n_draws + 1) / 2 : 0), seed_(seed),
      place_(padded_draws(n_pairs_)), choice_(place_.size()), interval_(n_pairs_), free_(n_pairs_) {}

void UniformNumbers::of_weight(std::int64_t weight, double* out) {
  if (kind_ == DrawKind::kStratified)
    stratified(std::uint64_t(weight), out);
  else
    kernels().draws.uniforms(seed_, std::uint64_t(weight), kIndependentStream, n_draws_, out);
}

// Pairs m … end − 1, where the first m pairs lie one in each of m equal intervals: each takes the half that is free in the
// interval of one of them. Weights choose in orders of their own; the same order for all would tie them together.
void UniformNumbers::take_free_halves(Index m, Index end) {
  int bit = kBits;
  for (Index k = m; k > 0; k /= 2) --bit;
  const std::uint64_t half = std::uint64_t(1) << bit, below = half - 1;
  std::iota(free_.begin(), free_.begin() + m, Index(0));
  for (Index i = m; i < end; ++i) {
    const Index taken = i - m, left = 2 * m - i;
    const double choice = 2.0 * choice_[i] - (choice_[i] < 0.5 ? 0.0 : 1.0);  // its first bit is the sign's
    std::swap(free_[taken], free_[taken + std::min(left - 1, Index(choice * double(left)))]);
    interval_[i] = ((interval_[free_[taken]] ^ half) & ~below) | (interval_[i] & below);
  }
}

// Draws 2 i and 2 i + 1 are u and 1 − u, u = v/2 or 1 − v/2. Any first 2^k draws lie one in each of 2^k equal intervals,
// at random places within (nested uniform scrambling, Owen 1995).
void UniformNumbers::stratified(std::uint64_t weight, double* out) {
  kernels().draws.uniforms(seed_, weight, kPlaceStream, n_pairs_, place_.data());
  kernels().draws.uniforms(seed_, weight, kChoiceStream, n_pairs_, choice_.data());
  for (Index i = 0; i < n_pairs_; ++i) interval_[i] = std::uint64_t(place_[i] * double(std::uint64_t(1) << kBits));
  for (Index m = 1; m < n_pairs_; m *= 2) take_free_halves(m, std::min(2 * m, n_pairs_));
  for (Index i = 0; i < n_pairs_; ++i) {
    const double half = double(2 * interval_[i] + 1) * 0x1p-53;
    const double u = choice_[i] < 0.5 ? half : 1.0 - half;
    out[2 * i] = u;
    out[2 * i + 1] = 1.0 - u;
  }
}

void sequential_uniforms(Index n, const std::int64_t* weights, Index n_draws, std::uint64_t seed, DrawKind kind,
                         double* out, int n_threads) {
  for_chunks(n, kDrawnWeightsPerChunk, n_threads, [&](Index begin, Index end) {
    UniformNumbers numbers(kind, n_draws, seed);
    std::vector<double> row(padded_draws(n_draws));
    for (Index j = begin; j < end; ++j) {
      numbers.of_weight(weights[j], row.data());
      std::copy_n(row.data(), n_draws, out + j * n_draws);
    }
  });
}

}  // namespace pydirect
