#include "pydirect/logistic/exponential.hpp"

#include <algorithm>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

// Few enough for their partial gradients to fit beside the rows; a function of the number of rows alone.
constexpr Index kChunks = 64;
constexpr Index kRowsPerChunk = 256;

}  // namespace

void exponential_terms(const ExponentialRows& rows, int n_threads) {
  const Index size = std::max(kRowsPerChunk, (rows.n_rows + kChunks - 1) / kChunks);
  const Index n_chunks = (rows.n_rows + size - 1) / size;
  const bool with_gradient = rows.gradient != nullptr;
  const Index table = with_gradient ? rows.n_levels * rows.padded : 0;
  const Index scratch = with_gradient ? 2 * kExponentialRows * rows.padded : 0;
  std::vector<double> partial(n_chunks * table), work(n_chunks * scratch);
  for_chunks(rows.n_rows, size, n_threads, [&](Index begin, Index end) {
    ExponentialRows part = rows;
    part.n_rows = end - begin;
    part.phi = rows.phi + begin * rows.stride;
    part.factor = rows.factor + begin;
    part.weight = rows.weight + begin;
    part.log_terms = rows.log_terms + begin;
    if (with_gradient) {
      part.gradient = partial.data() + begin / size * table;
      part.scratch = work.data() + begin / size * scratch;
    }
    kernels().exponential.terms(part);
  });
  if (!with_gradient) return;
  std::fill(rows.gradient, rows.gradient + table, 0.0);
  for (Index chunk = 0; chunk < n_chunks; ++chunk)
    kernels().rows<double>().add(table, partial.data() + chunk * table, rows.gradient);
}

}  // namespace pydirect
