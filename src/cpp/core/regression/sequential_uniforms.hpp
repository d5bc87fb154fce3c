// Uniform numbers behind the draws of one weight: functions of seed, weight and number of the draw alone.
#pragma once

#include <vector>

#include "pydirect/regression/sequential.hpp"

namespace pydirect {

// As many numbers as draws, rounded up.
inline constexpr Index kUniformPadding = 16;
inline Index padded_draws(Index n) { return (n + kUniformPadding - 1) / kUniformPadding * kUniformPadding; }

class UniformNumbers {
 public:
  UniformNumbers(DrawKind kind, Index n_draws, std::uint64_t seed);

  // out (padded_draws(n_draws),)
  void of_weight(std::int64_t weight, double* out);

 private:
  void stratified(std::uint64_t weight, double* out);
  void take_free_halves(Index m, Index end);

  const DrawKind kind_;
  const Index n_draws_, n_pairs_;
  const std::uint64_t seed_;
  std::vector<double> place_, choice_;   // of pairs
  std::vector<std::uint64_t> interval_;  // 2⁵¹ v, rounded down
  std::vector<Index> free_;              // pairs whose intervals have a free half
};

}  // namespace pydirect
