// Kernels of networks with Gaussian weights, and of draws of such weights.
#include "kernels/level.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/unit_tables-inl.hpp"
#include "kernels/unit_moments-inl.hpp"
#include "kernels/unit_pairs-inl.hpp"
#include "kernels/unit_pairs_paper-inl.hpp"
#include "kernels/unit_covariance-inl.hpp"
#include "kernels/draws-inl.hpp"
#include "kernels/divergence-inl.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace

PYDIRECT_FILL(networks) {
  PYDIRECT_ISA::fill(table.unit_moments);
  PYDIRECT_ISA::fill(table.unit_covariance);
  PYDIRECT_ISA::fill(table.draws);
  PYDIRECT_ISA::fill(table.divergence);
}

}  // namespace pydirect
