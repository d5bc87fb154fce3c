// All kernels of one instruction set. Compiled once per level with PYDIRECT_ISA set to its name.
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel_table.hpp"

namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "simd.hpp"

#include "categorical-inl.hpp"
#include "covariance-inl.hpp"
#include "dense-inl.hpp"
#include "exponential-inl.hpp"
#include "fourier-inl.hpp"
#include "moments-inl.hpp"
#include "network-inl.hpp"
#include "product-inl.hpp"
#include "mixture-inl.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace

#define PYDIRECT_JOIN_(a, b) a##b
#define PYDIRECT_JOIN(a, b) PYDIRECT_JOIN_(a, b)
#define PYDIRECT_STRING_(a) #a
#define PYDIRECT_STRING(a) PYDIRECT_STRING_(a)

extern const KernelTable PYDIRECT_JOIN(kernel_table_, PYDIRECT_ISA);
const KernelTable PYDIRECT_JOIN(kernel_table_, PYDIRECT_ISA) = {
    PYDIRECT_STRING(PYDIRECT_ISA),
    PYDIRECT_ISA::tilt,
    PYDIRECT_ISA::tilt_probabilities,
    PYDIRECT_ISA::sweep,
    PYDIRECT_ISA::sweep_components,
    PYDIRECT_ISA::overlap_factors,
    PYDIRECT_ISA::softmax,
    PYDIRECT_ISA::central_moments,
    PYDIRECT_ISA::moment_slopes,
    PYDIRECT_ISA::logit_gradient,
    PYDIRECT_ISA::symv,
    PYDIRECT_ISA::gemv<float>,
    PYDIRECT_ISA::gemv<double>,
    PYDIRECT_ISA::subtract_scaled,
    PYDIRECT_ISA::dot,
    PYDIRECT_ISA::fourier<double>,
    PYDIRECT_ISA::fourier<float>,
    PYDIRECT_ISA::add_transposed<float>,
    PYDIRECT_ISA::add_transposed<double>,
    PYDIRECT_ISA::add<float>,
    PYDIRECT_ISA::add<double>,
    PYDIRECT_ISA::row_moments,
    PYDIRECT_ISA::covariance_row,
    PYDIRECT_ISA::covariance_gradient_row,
    PYDIRECT_ISA::panel_product,
    PYDIRECT_ISA::transpose_panels,
    PYDIRECT_ISA::powers,
    PYDIRECT_ISA::cumulants,
    PYDIRECT_ISA::cumulants_adjoint,
    PYDIRECT_ISA::square_moments,
    PYDIRECT_ISA::square_variance,
    PYDIRECT_ISA::square_adjoint,
    PYDIRECT_ISA::quadratic_output,
    PYDIRECT_ISA::tensor_pairs,
    PYDIRECT_ISA::tensor_panel,
    PYDIRECT_ISA::add_cumulants,
    PYDIRECT_ISA::quartic,
    PYDIRECT_ISA::exponential,
    PYDIRECT_ISA::exp_array,
    PYDIRECT_ISA::sincos_turns_array<double>,
    PYDIRECT_ISA::sincos_turns_array<float>,
};

}  // namespace pydirect
