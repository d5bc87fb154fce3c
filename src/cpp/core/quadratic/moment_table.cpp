#include "pydirect/quadratic/moment_table.hpp"

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kWeightsPerChunk = 128;  // their rows stay in the first-level cache between two kernels

// Calls body(part, begin, end) for chunks of the weights of every layer; part.moments points into the table.
template <class Body>
void for_layers(const NetworkShape& shape, double* moments, int n_threads, const Body& body) {
  Index first = 0;
  for (Index k = 0; k < shape.n_layers(); ++k) {
    const Index count = shape.fan_out(k) * shape.fan_in(k);
    const MomentTable part{shape.n_moments(k), count, first, moments + shape.moment_offset(k)};
    for_chunks(count, kWeightsPerChunk, n_threads,
               [&](Index begin, Index end) { body(part, first + begin, first + end); });
    first += count;
  }
}

}  // namespace

void moments_from_logits(const NetworkShape& shape, const TiltFamily& family, const CategoricalRows& rows,
                         double* moments, int n_threads) {
  for_layers(shape, moments, n_threads, [&](const MomentTable& part, Index begin, Index end) {
    kernels().moment_table.softmax(family, rows, begin, end);
    kernels().moment_table.central_moments(family, rows.q, part, begin, end);
  });
}

void moments_from_probabilities(const NetworkShape& shape, const TiltFamily& family, const double* q, double* moments,
                                int n_threads) {
  for_layers(shape, moments, n_threads, [&](const MomentTable& part, Index begin, Index end) {
    kernels().moment_table.central_moments(family, q, part, begin, end);
  });
}

void probability_slopes(const NetworkShape& shape, const TiltFamily& family, double* moments, const double* gradient,
                        double* out, int n_threads) {
  for_layers(shape, moments, n_threads, [&](const MomentTable& part, Index begin, Index end) {
    kernels().moment_table.slopes(family, part, gradient + (part.moments - moments), out, begin, end);
  });
}

void logit_gradient(const NetworkShape& shape, const TiltFamily& family, const CategoricalRows& rows, double* moments,
                    const double* gradient, double factor, double* out, int n_threads) {
  for_layers(shape, moments, n_threads, [&](const MomentTable& part, Index begin, Index end) {
    kernels().moment_table.logit_gradient(family, rows, part, gradient + (part.moments - moments), factor, out, begin,
                                          end);
  });
}

}  // namespace pydirect
