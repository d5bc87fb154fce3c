// Standardised laws of the weights as functions of normal draws: the same counters serve all of them.
#include <cmath>

#include "pydirect/deterministic.hpp"

namespace pydirect {
namespace {

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kLogisticScale = 0.55132889542179204;  // √3/π: one over the standard deviation

// Probability of a normal draw farther from zero.
double tails(double z) { return std::erfc(kRootHalf * std::abs(z)); }

void to_laplace(Index n, double* z) {
  for (Index i = 0; i < n; ++i) z[i] = std::copysign(kRootHalf * std::log(tails(z[i])), z[i]);
}

void to_logistic(Index n, double* z) {
  for (Index i = 0; i < n; ++i) {
    const double p = tails(z[i]);
    z[i] = std::copysign(kLogisticScale * (std::log(2.0 - p) - std::log(p)), z[i]);
  }
}

// A direction times √D and a normal length.
void to_radial(Index n, double length, double* z) {
  double square = 0.0;
  for (Index i = 0; i < n; ++i) square += z[i] * z[i];
  const double factor = length * std::sqrt(double(n) / square);
  for (Index i = 0; i < n; ++i) z[i] *= factor;
}

}  // namespace

void standardised_draws(const GaussianNetwork& network, WeightLaw law, std::uint64_t seed, std::uint64_t stream,
                        Index n_layers, double* out) {
  const Index n = network.first_weight(n_layers);
  counter_normals(seed, stream, 0, n, out);
  if (law == WeightLaw::kLaplace) return to_laplace(n, out);
  if (law == WeightLaw::kLogistic) return to_logistic(n, out);
  if (law == WeightLaw::kNormal) return;
  std::uint64_t counter = std::uint64_t(network.n_weights());  // lengths come after all weights
  for (Index l = 0; l < n_layers; ++l)
    for (const Index size : {network.n_in(l) * network.n_out(l), network.n_out(l)}) {
      double length = 0.0;
      counter_normals(seed, stream, counter++, 1, &length);
      to_radial(size, length, out);
      out += size;
    }
}

}  // namespace pydirect
