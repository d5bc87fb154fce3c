// Counter-based draws and their power sums: arguments and kernels of draws-inl.hpp.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Draws for blocks of weights, one row per draw. Two draws share a counter.
inline constexpr Index kDrawColumns = 64, kDrawRows = 64, kMostSums = 16;

enum class BaseLaw {
  kNormal, kLaplace, kLogistic, kExponential, kGamma, kWeibull, kRayleigh, kInverseGamma, kWald, kHorseshoe
};

struct DrawBlock {
  BaseLaw law;
  double shape;
  std::uint64_t seed;
  std::uint32_t epoch, purpose;  // purpose below 4
  std::uint32_t first_column, first_pair;
  Index n_columns, n_pairs;      // columns up to a multiple of 8 are written
  double* xi;                    // (2 n_pairs, kDrawColumns)
  double* log_xi;                // the same, or null; of positive laws
};

struct PowerSums {
  Index n_columns, n_draws;
  const double* xi;         // (n_draws, kDrawColumns)
  const double* log_xi;     // null unless there are exponents beyond the integers and −1, or logs
  Index n_exponents, n_integers;  // exponents: first positive integers, ascending
  const double* exponents;  // (n_exponents,)
  Index n_logs;             // 1: log ξ, 2: its square too
  double* sums;             // (n_exponents + n_logs, kDrawColumns) increased
};

struct DrawKernels {
  void (*draw)(const DrawBlock&);
  // Uniform numbers of a weight strictly inside (0, 1): n, and more up to a multiple of 16.
  void (*uniforms)(std::uint64_t seed, std::uint64_t weight, unsigned stream, Index n, double* out);
  void (*add_power_sums)(const PowerSums&);
  // Rows of stride kDrawColumns, each times a factor of its own.
  void (*scale_rows)(Index n_columns, Index n_rows, const double* factor, double* rows);
};

}  // namespace pydirect
