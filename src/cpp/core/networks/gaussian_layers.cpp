#include "gaussian_layers.hpp"

#include <algorithm>
#include <limits>

#include "pydirect/parallel.hpp"

namespace pydirect {

Index GaussianNetwork::first_weight(Index layer) const {
  Index first = 0;
  for (Index l = 0; l < layer; ++l) first += (n_in(l) + 1) * n_out(l);
  return first;
}

std::vector<double> weight_variances(const GaussianNetwork& network, const double* parameters) {
  const Index n = network.n_weights();
  std::vector<double> v(size_t(n), 0.0);
  array(v) = (2.0 * array(parameters + n, n)).min(700.0);
  kernels().dense.exp(n, v.data(), v.data());
  return v;
}

namespace gaussian_network {

void Packed::set(Index rows, Index columns, const double* matrix, bool with_transpose) {
  n_in = rows;
  n_out = columns;
  plain.resize(size_t(rows * padded(columns)));
  pack(rows, columns, matrix, columns, plain.data());
  if (!with_transpose) return;
  transposed.resize(size_t(columns * padded(rows)));
  pack_transposed(rows, columns, matrix, columns, transposed.data());
}

Index rows_per_chunk(Index n_rows, Index rows_per_block, Index accumulator_size) {
  constexpr Index most = 32, fewest = 8, memory = Index(64) << 20;
  const Index n_chunks = std::clamp(memory / Index(sizeof(double)) / accumulator_size, fewest, most);
  const Index n_blocks = (n_rows + rows_per_block - 1) / rows_per_block;
  return (n_blocks + n_chunks - 1) / n_chunks * rows_per_block;
}

int useful_threads(double n_multiplications, int n_threads) { return n_multiplications < 1e6 ? 1 : n_threads; }

void sum_in_order(Index n_accumulators, Index size, double* accumulators, int n_threads) {
  for_chunks(size, 4096, n_threads, [&](Index begin, Index end) {
    for (Index k = 1; k < n_accumulators; ++k)
      array(accumulators + begin, end - begin) += array(accumulators + k * size + begin, end - begin);
  });
}

double* workspace(Memory kind, Index size) {
  static thread_local std::vector<double> memory[2];
  std::vector<double>& own = memory[kind == Memory::kCall];
  if (Index(own.size()) < size) own = std::vector<double>(size_t(size));
  return own.data();
}

double finite_or_infinity(double value, Index n_parameters, double* gradient) {
  const bool finite = std::isfinite(value) && std::all_of(gradient, gradient + n_parameters,
                                                          [](double g) { return std::isfinite(g); });
  if (finite) return value;
  std::fill_n(gradient, n_parameters, 0.0);
  return std::numeric_limits<double>::infinity();
}

}  // namespace gaussian_network
}  // namespace pydirect
