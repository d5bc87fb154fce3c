// Standardised laws of the weights, from the same kernel as all other draws.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "pydirect/networks/gaussian_network.hpp"

namespace pydirect {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kLogisticScale = 0.55132889542179204;  // √3/π: one over the standard deviation
enum : std::uint32_t { kWeights = 0, kLengths = 1 };

// Elements first, first + 1, … of a stream, which is an epoch: the two draws of a counter are 64 of them apart.
void draw(BaseLaw law, std::uint64_t seed, std::uint32_t stream, std::uint32_t purpose, double factor,
          std::uint64_t first, Index n, double* out) {
  constexpr std::uint64_t kSize = 2 * kDrawColumns;
  double xi[kSize];
  const std::uint64_t end = first + std::uint64_t(n);
  for (std::uint64_t block = first / kSize; block * kSize < end; ++block) {
    const std::uint64_t begin = block * kSize, from = std::max(first, begin), to = std::min(end, begin + kSize);
    // Columns and pairs of draws are numbers of 32 bits.
    const std::uint64_t column = block * kDrawColumns;
    kernels().draws.draw({law, 1.0, seed, stream, purpose, std::uint32_t(column), std::uint32_t(column >> 32),
                          std::min(Index(end - begin), kDrawColumns), 1, xi, nullptr});
    for (std::uint64_t i = from; i < to; ++i) out[i - first] = factor * xi[i - begin];
  }
}

// A direction times √D and a normal length.
void to_radial(Index n, double length, double* z) {
  const double factor = length * std::sqrt(double(n) / kernels().dense.dot(n, z, z));
  for (Index i = 0; i < n; ++i) z[i] *= factor;
}

}  // namespace

void counter_normals(std::uint64_t seed, std::uint32_t stream, std::uint64_t first, Index n, double* out) {
  draw(BaseLaw::kNormal, seed, stream, kWeights, 1.0, first, n, out);
}

void standardised_draws(const GaussianNetwork& network, WeightLaw law, std::uint64_t seed, std::uint32_t stream,
                        Index n_layers, double* out) {
  const Index n = network.first_weight(n_layers);
  if (law == WeightLaw::kLaplace) return draw(BaseLaw::kLaplace, seed, stream, kWeights, kRootHalf, 0, n, out);
  if (law == WeightLaw::kLogistic) return draw(BaseLaw::kLogistic, seed, stream, kWeights, kLogisticScale, 0, n, out);
  draw(BaseLaw::kNormal, seed, stream, kWeights, 1.0, 0, n, out);
  if (law == WeightLaw::kNormal) return;
  std::vector<double> lengths(std::size_t(2 * n_layers));
  draw(BaseLaw::kNormal, seed, stream, kLengths, 1.0, 0, 2 * n_layers, lengths.data());
  const double* length = lengths.data();
  for (Index l = 0; l < n_layers; ++l)
    for (const Index size : {network.n_in(l) * network.n_out(l), network.n_out(l)}) {
      to_radial(size, *length++, out);
      out += size;
    }
}

}  // namespace pydirect
