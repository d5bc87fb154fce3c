// Standardised laws of the weights, from the same kernel as all other draws; normal ones from their counters.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernel_table.hpp"
#include "pydirect/deterministic.hpp"

namespace pydirect {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kLogisticScale = 0.55132889542179204;  // √3/π: one over the standard deviation
enum : std::uint32_t { kWeights = 0, kLengths = 1 };

// The two draws of a counter are two weights, 64 apart, and a stream is an epoch.
void draw(BaseLaw law, std::uint64_t seed, std::uint64_t stream, std::uint32_t purpose, double factor, Index n,
          double* out) {
  double xi[2 * kDrawColumns];
  for (Index begin = 0; begin < n; begin += 2 * kDrawColumns) {
    const Index rest = std::min(n - begin, 2 * kDrawColumns), columns = std::min(rest, kDrawColumns);
    kernels().draw_block({law, 1.0, seed, std::uint32_t(stream), purpose, std::uint32_t(begin / 2), 0, columns, 1, xi,
                          nullptr});
    for (Index i = 0; i < rest; ++i) out[begin + i] = factor * xi[i];
  }
}

// A direction times √D and a normal length.
void to_radial(Index n, double length, double* z) {
  const double factor = length * std::sqrt(double(n) / kernels().dot(n, z, z));
  for (Index i = 0; i < n; ++i) z[i] *= factor;
}

}  // namespace

void standardised_draws(const GaussianNetwork& network, WeightLaw law, std::uint64_t seed, std::uint64_t stream,
                        Index n_layers, double* out) {
  const Index n = network.first_weight(n_layers);
  if (law == WeightLaw::kNormal) return counter_normals(seed, stream, 0, n, out);
  if (law == WeightLaw::kLaplace) return draw(BaseLaw::kLaplace, seed, stream, kWeights, kRootHalf, n, out);
  if (law == WeightLaw::kLogistic) return draw(BaseLaw::kLogistic, seed, stream, kWeights, kLogisticScale, n, out);
  std::vector<double> lengths(std::size_t(2 * n_layers));
  draw(BaseLaw::kNormal, seed, stream, kWeights, 1.0, n, out);
  draw(BaseLaw::kNormal, seed, stream, kLengths, 1.0, 2 * n_layers, lengths.data());
  const double* length = lengths.data();
  for (Index l = 0; l < n_layers; ++l)
    for (const Index size : {network.n_in(l) * network.n_out(l), network.n_out(l)}) {
      to_radial(size, *length++, out);
      out += size;
    }
}

}  // namespace pydirect
