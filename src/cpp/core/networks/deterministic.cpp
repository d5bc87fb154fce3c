// Objective and moments of a Gaussian network, rows in blocks, blocks in chunks.
#include <algorithm>

#include "layer_moments.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {

using namespace gaussian_network;

double deterministic_objective(const GaussianNetwork& network, const double* parameters, const NetworkRows& rows,
                               double divergence_factor, double* gradient, int n_threads) {
  const Model model = make_model(network, parameters);
  const Index per_block = rows_per_block(model), chunk = rows_per_chunk(rows.n_rows, per_block, model.n_sums);
  const Index n_chunks = (rows.n_rows + chunk - 1) / chunk, block_size = lay_out(model, per_block, nullptr).size;
  const Index n_inputs = network.n_in(0);
  const Index y_stride = is_classification(network.likelihood) ? 1 : network.n_targets;
  double* accumulators = workspace(Memory::kCall, n_chunks * model.n_sums);
  n_threads = useful_threads(double(rows.n_rows) * products_per_row(model), n_threads);
  for_chunks(rows.n_rows, chunk, n_threads, [&](Index begin, Index end) {
    double* sums = accumulators + begin / chunk * model.n_sums;
    std::fill_n(sums, model.n_sums, 0.0);
    Propagation propagation(model, workspace(Memory::kChunk, block_size), per_block);
    for (Index first = begin; first < end; first += per_block) {
      propagation.forward(std::min(per_block, end - first), rows.x + first * n_inputs, network.n_layers() - 1);
      propagation.likelihood_and_adjoint(rows.y + first * y_stride, rows.weight ? rows.weight + first : nullptr,
                                         parameters + 2 * network.n_weights(), sums);
    }
  });
  sum_in_order(n_chunks, model.n_sums, accumulators, n_threads);
  std::fill_n(gradient, network.n_parameters(), 0.0);
  finish_gradient(model, accumulators, -1.0 / rows.total_weight, gradient);
  const double divergence = weight_divergence(network, parameters, model.variances.data(), divergence_factor, gradient);
  return finite_or_infinity(divergence_factor * divergence - accumulators[0] / rows.total_weight,
                            network.n_parameters(), gradient);
}

void deterministic_moments(const GaussianNetwork& network, const double* parameters, Index n_rows, const double* x,
                           Index layer, double* mean, double* variance, double* covariance, int n_threads) {
  const Model model = make_model(network, parameters);
  const Index per_block = rows_per_block(model), block_size = lay_out(model, per_block, nullptr).size;
  const Index n_inputs = network.n_in(0), o = network.n_out(layer);
  n_threads = useful_threads(double(n_rows) * products_per_row(model), n_threads);
  for_chunks(n_rows, per_block, n_threads, [&](Index begin, Index end) {
    Propagation propagation(model, workspace(Memory::kChunk, block_size), per_block);
    propagation.forward(end - begin, x + begin * n_inputs, layer);
    const LayerRows& out = propagation.layer(layer);
    const Index n = end - begin;
    std::copy_n(out.mean, n * o, mean + begin * o);
    if (variance) std::copy_n(out.variance, n * o, variance + begin * o);
    if (!covariance) return;
    double* s = covariance + begin * o * o;
    if (out.covariance) {
      std::copy_n(out.covariance, n * o * o, s);
    } else {
      std::fill_n(s, n * o * o, 0.0);
      for (Index b = 0; b < n; ++b)
        for (Index i = 0; i < o; ++i) s[b * o * o + i * o + i] = out.variance[b * o + i];
    }
  });
}

}  // namespace pydirect
