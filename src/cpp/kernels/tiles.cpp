// Kernels of dense algebra.
#include "kernels/level.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/tiles-inl.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace

PYDIRECT_FILL(tiles) {
  PYDIRECT_ISA::fill(table.tiles_of_float);
  PYDIRECT_ISA::fill(table.tiles_of_double);
}

}  // namespace pydirect
