// Kernels of discrete weights.
#include "kernels/level.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/dense-inl.hpp"
#include "kernels/tilt-inl.hpp"
#include "kernels/mixture-inl.hpp"
#include "kernels/expectations-inl.hpp"
#include "kernels/moment_table-inl.hpp"
#include "kernels/quadratic-inl.hpp"
#include "kernels/sequential-inl.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace

PYDIRECT_FILL(weights) {
  PYDIRECT_ISA::fill(table.dense);
  PYDIRECT_ISA::fill(table.rows_of_float);
  PYDIRECT_ISA::fill(table.rows_of_double);
  PYDIRECT_ISA::fill(table.tilt);
  PYDIRECT_ISA::fill(table.mixture);
  PYDIRECT_ISA::fill(table.expectations);
  PYDIRECT_ISA::fill(table.moment_table);
  PYDIRECT_ISA::fill(table.quadratic);
  PYDIRECT_ISA::fill(table.sequential_of_float);
  PYDIRECT_ISA::fill(table.sequential_of_double);
}

}  // namespace pydirect
