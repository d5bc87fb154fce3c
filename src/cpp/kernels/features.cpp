// Kernels of features and their statistics, and of rows through a quantized model.
#include "kernels/level.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/products-inl.hpp"
#include "kernels/factorisation-inl.hpp"
#include "kernels/fourier-inl.hpp"
#include "kernels/gaussian_process-inl.hpp"
#include "kernels/cross_covariance-inl.hpp"
#include "kernels/nearest-inl.hpp"
#include "kernels/quantized-inl.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace

PYDIRECT_FILL(features) {
  PYDIRECT_ISA::fill(table.products);
  PYDIRECT_ISA::fill(table.factorisation);
  PYDIRECT_ISA::fill(table.fourier);
  PYDIRECT_ISA::fill(table.gaussian_process);
  PYDIRECT_ISA::fill(table.cross_covariance);
  PYDIRECT_ISA::fill(table.nearest);
  PYDIRECT_ISA::fill(table.quantized);
}

}  // namespace pydirect
