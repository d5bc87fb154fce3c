// Index type and the limits shared by all rooms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pydirect {

using Index = std::ptrdiff_t;

// Tables of levels are padded to a multiple of this many doubles; the padding has prior mass zero.
inline constexpr Index kLevelPadding = 8;

inline constexpr double kLog2Pi = 1.8378770664093454836;

enum class Activation { kRelu, kHeaviside };

// How Cov(h_j, h_l) is found: the bivariate normal integral to 1e-12, the closed form of Wu et al. (eq. 6), or the
// integral with six nodes up to |r| = 0.9 (2e-7).
enum class PairKernel { kExact, kPaper, kFast };

}  // namespace pydirect
