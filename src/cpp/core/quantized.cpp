#include "pydirect/quantized.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kRowsPerChunk = 256;

// v / 2^shift to the nearest integer, halves up, for |v| below 2^30.
int shifted(int v, int shift) {
  constexpr unsigned middle = 1u << 30;
  return int((unsigned(v) + middle + ((1u << shift) >> 1)) >> shift) - int(middle >> shift);
}

// Step 1, in single precision throughout.
int quantise(float x, float origin, float multiplier, float limit) {
  float v = (x - origin) * multiplier;
  if (!(v > -limit)) v = -limit;
  if (v > limit) v = limit;
  v += 32768.5f;
  return int(v) - 32768;
}

struct Block {
  std::vector<int> q, totals;
  std::vector<short> phi;

  explicit Block(const IntegerProgram& p)
      : q(p.n_inputs * kIntegerRows), totals(p.index.n_columns * kIntegerRows), phi(p.gain.size() * kIntegerRows) {}
};

// At most kIntegerRows rows; those that are missing are computed as zeros.
void run_block(const IntegerProgram& p, const double* x, Index n_rows, int* totals, Block& b) {
  for (Index i = 0; i < p.n_inputs; ++i)
    for (Index l = 0; l < kIntegerRows; ++l)
      b.q[i * kIntegerRows + l] =
          l < n_rows ? quantise(float(x[l * p.n_columns_in + p.columns[i]]), p.origin[i], p.multiplier[i], float(p.limit))
                     : 0;
  kernels().quantized.fourier({p.n_inputs, p.n_frequencies, b.q.data(), p.frequencies.data(), b.phi.data()});
  short* phi = b.phi.data();
  for (Index j = 0; j < Index(p.gain.size()); ++j) {
    const Index linear = j - 2 * p.n_frequencies;
    for (Index l = 0; l < kIntegerRows; ++l, ++phi) {
      int value = *phi;
      if (linear >= 0)
        value = linear < Index(p.linear.size()) ? b.q[p.linear[linear] * kIntegerRows + l] : 32768;
      *phi = short(shifted(value * p.gain[j], 15));
    }
  }
  const LevelIndex& index = p.index;
  kernels().quantized.sums({index.n_columns, index.n_levels, index.start.data(), index.index.data(),
                                p.levels.data(), b.phi.data(), b.totals.data()});
  for (Index l = 0; l < n_rows; ++l)
    for (Index c = 0; c < index.n_columns; ++c)
      totals[l * index.n_columns + c] = shifted(b.totals[c * kIntegerRows + l], p.total_shift);
}

}  // namespace

LevelIndex::LevelIndex(const unsigned char* codes, Index n_features, Index columns, const std::vector<int>& taken,
                       Index levels)
    : n_columns(columns), n_levels(levels), start(columns * levels + 1, 0) {
  for (Index j = 0; j < n_features; ++j)
    for (Index c = 0; c < columns; ++c)
      if (const int k = taken[codes[j * columns + c]]; k >= 0) ++start[c * levels + k + 1];
  for (std::size_t k = 1; k < start.size(); ++k) start[k] += start[k - 1];
  index.resize(start.back());
  std::vector<int> next(start.begin(), start.end() - 1);
  for (Index j = 0; j < n_features; ++j)
    for (Index c = 0; c < columns; ++c)
      if (const int k = taken[codes[j * columns + c]]; k >= 0) index[next[c * levels + k]++] = int(j);
}

void IntegerProgram::run(const double* x, Index n_rows, int* totals, int n_threads) const {
  for_chunks(n_rows, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    Block block(*this);
    for (Index row = begin; row < end; row += kIntegerRows)
      run_block(*this, x + row * n_columns_in, std::min(kIntegerRows, end - row), totals + row * index.n_columns, block);
  });
}

}  // namespace pydirect
