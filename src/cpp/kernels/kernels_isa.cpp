// All kernels of one instruction set. Compiled once per level with PYDIRECT_ISA set to its name.
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernel_table.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/simd.hpp"

#include "kernels/dense-inl.hpp"
#include "kernels/products-inl.hpp"
#include "kernels/factorisation-inl.hpp"

#include "kernels/fourier-inl.hpp"
#include "kernels/gaussian_process-inl.hpp"
#include "kernels/cross_covariance-inl.hpp"
#include "kernels/quantized-inl.hpp"

#include "kernels/tilt-inl.hpp"
#include "kernels/mixture-inl.hpp"
#include "kernels/expectations-inl.hpp"
#include "kernels/exponential-inl.hpp"

#include "kernels/moment_table-inl.hpp"
#include "kernels/quadratic-inl.hpp"

#include "kernels/unit_tables-inl.hpp"
#include "kernels/unit_moments-inl.hpp"
#include "kernels/unit_pairs-inl.hpp"
#include "kernels/unit_pairs_paper-inl.hpp"
#include "kernels/unit_covariance-inl.hpp"

#include "kernels/draws-inl.hpp"
#include "kernels/divergence-inl.hpp"

#include "kernels/sequential-inl.hpp"

// Every file fills its own group, by the names of the pointers.
constexpr KernelTable all_kernels(const char* name) {
  KernelTable table{};
  table.name = name;
  fill(table.tilt);
  fill(table.mixture);
  fill(table.moment_table);
  fill(table.quadratic);
  fill(table.unit_moments);
  fill(table.unit_covariance);
  fill(table.expectations);
  fill(table.exponential);
  fill(table.draws);
  fill(table.divergence);
  fill(table.factorisation);
  fill(table.fourier);
  fill(table.gaussian_process);
  fill(table.cross_covariance);
  fill(table.quantized);
  fill(table.products);
  fill(table.dense);
  fill(table.rows_of_float);
  fill(table.rows_of_double);
  fill(table.sequential_of_float);
  fill(table.sequential_of_double);
  return table;
}

}  // namespace PYDIRECT_ISA
}  // namespace

#define PYDIRECT_JOIN_(a, b) a##b
#define PYDIRECT_JOIN(a, b) PYDIRECT_JOIN_(a, b)
#define PYDIRECT_STRING_(a) #a
#define PYDIRECT_STRING(a) PYDIRECT_STRING_(a)

extern const KernelTable PYDIRECT_JOIN(kernel_table_, PYDIRECT_ISA);
constexpr KernelTable PYDIRECT_JOIN(kernel_table_, PYDIRECT_ISA) =
    PYDIRECT_ISA::all_kernels(PYDIRECT_STRING(PYDIRECT_ISA));

}  // namespace pydirect
