// Philox 4x32-10 (Salmon et al. 2011) and Box-Muller.
#include <algorithm>
#include <cmath>

#include "kernel_table.hpp"
#include "pydirect/deterministic.hpp"

namespace pydirect {
namespace {

struct Block { std::uint32_t word[4]; };

Block philox(std::uint64_t counter, std::uint64_t stream, std::uint64_t seed) {
  std::uint32_t c0 = std::uint32_t(counter), c1 = std::uint32_t(counter >> 32);
  std::uint32_t c2 = std::uint32_t(stream), c3 = std::uint32_t(stream >> 32);
  std::uint32_t k0 = std::uint32_t(seed), k1 = std::uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c0, p1 = std::uint64_t(0xCD9E8D57u) * c2;
    c0 = std::uint32_t(p1 >> 32) ^ c1 ^ k0;
    c2 = std::uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = std::uint32_t(p1);
    c3 = std::uint32_t(p0);
  }
  return {{c0, c1, c2, c3}};
}

// 53 random bits.
std::uint64_t bits(std::uint32_t low, std::uint32_t high) { return (std::uint64_t(high) << 32 | low) >> 11; }

}  // namespace

void counter_normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, Index n, double* out) {
  constexpr Index kPairs = 128;
  double radius[kPairs], turn[kPairs], sine[kPairs], cosine[kPairs];
  const std::uint64_t end = first + std::uint64_t(n);
  for (std::uint64_t pair = first / 2; 2 * pair < end; pair += kPairs) {
    const Index n_pairs = Index(std::min<std::uint64_t>(kPairs, (end + 1) / 2 - pair));
    for (Index i = 0; i < n_pairs; ++i) {
      const Block b = philox(pair + std::uint64_t(i), stream, seed);
      const double uniform = 0x1p-53 * double(bits(b.word[0], b.word[1]) + 1);  // in (0, 1]
      radius[i] = std::sqrt(-2.0 * std::log(uniform));
      turn[i] = 0x1p-53 * double(bits(b.word[2], b.word[3]));
    }
    kernels().sincos_turns_double(n_pairs, turn, sine, cosine);
    for (Index i = 0; i < n_pairs; ++i) {
      const std::uint64_t element = 2 * (pair + std::uint64_t(i));
      if (element >= first) out[element - first] = radius[i] * cosine[i];
      if (element + 1 >= first && element + 1 < end) out[element + 1 - first] = radius[i] * sine[i];
    }
  }
}

}  // namespace pydirect
