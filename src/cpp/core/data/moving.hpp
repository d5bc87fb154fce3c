// Inputs in which rows differ from one row, a bit each. Columns of 0 and 1, one per category, are mostly alike in any few
// rows: sums over inputs skip those that contribute nothing, which changes no bit of what they are
// for, but for rounding in the search for neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

constexpr Index kManyInputs = 48;  // of fewer none is skipped
constexpr Index kInputsPerWord = 64;
using Words = std::vector<std::uint64_t>;

inline Index n_words_of(Index n_inputs) { return (n_inputs + kInputsPerWord - 1) / kInputsPerWord; }

inline void mark_moving(const double* x, const double* rest, Index n_inputs, Index step, std::uint64_t* words) {
  for (Index k = 0; k < n_inputs; ++k)
    words[k / kInputsPerWord] |= std::uint64_t{x[k * step] != rest[k * step]} << (k % kInputsPerWord);
}

}  // namespace pydirect
