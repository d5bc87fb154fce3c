// Index type and the limits shared by all rooms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pydirect {

using Index = std::ptrdiff_t;

// Tables of levels are padded to a multiple of this many doubles; the padding has prior mass zero.
inline constexpr Index kLevelPadding = 8;

}  // namespace pydirect
