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

#include "activation-tables-inl.hpp"
#include "activation-inl.hpp"
#include "categorical-inl.hpp"
#include "covariance-inl.hpp"
#include "dense-inl.hpp"
#include "exponential-inl.hpp"
#include "fourier-inl.hpp"
#include "moments-inl.hpp"
#include "monte_carlo-inl.hpp"
#include "network-inl.hpp"
#include "product-inl.hpp"
#include "matrix-inl.hpp"
#include "quantized-inl.hpp"
#include "mixture-inl.hpp"
#include "lanes-inl.hpp"

constexpr KernelTable all_kernels(const char* name) {
  KernelTable table{};
  table.name = name;
  table.tilt = tilt;
  table.tilt_probabilities = tilt_probabilities;
  table.sweep = sweep;
  table.lane_tilt = lane_tilt;
  table.lane_sweep = lane_sweep;
  table.lane_lattice = lane_lattice;
  table.lane_product = lane_product;
  table.sweep_components = sweep_components;
  table.overlap_factors = overlap_factors;
  table.softmax = softmax;
  table.central_moments = central_moments;
  table.moment_slopes = moment_slopes;
  table.logit_gradient = logit_gradient;
  table.symv = symv;
  table.gemv_float = gemv<float>;
  table.gemv_double = gemv<double>;
  table.subtract_scaled = subtract_scaled;
  table.dot = dot;
  table.activation_moments = activation_moments;
  table.activation_moments_adjoint = activation_moments_adjoint;
  table.activation_covariance = activation_covariance;
  table.activation_covariance_adjoint = activation_covariance_adjoint;
  table.fourier_double = fourier<double>;
  table.fourier_float = fourier<float>;
  table.add_transposed_float = add_transposed<float>;
  table.add_transposed_double = add_transposed<double>;
  table.add_float = add<float>;
  table.add_double = add<double>;
  table.add_shifted_float = add_shifted<float>;
  table.add_shifted_double = add_shifted<double>;
  table.row_moments = row_moments;
  table.covariance_row = covariance_row;
  table.covariance_gradient_row = covariance_gradient_row;
  table.panel_product = panel_product;
  table.matrix_product = matrix_product;
  table.transpose_panels = transpose_panels;
  table.powers = powers;
  table.cumulants = cumulants;
  table.cumulants_adjoint = cumulants_adjoint;
  table.square_moments = square_moments;
  table.square_variance = square_variance;
  table.square_adjoint = square_adjoint;
  table.quadratic_output = quadratic_output;
  table.tensor_pairs = tensor_pairs;
  table.tensor_panel = tensor_panel;
  table.add_cumulants = add_cumulants;
  table.quartic = quartic;
  table.exponential = exponential;
  table.integer_fourier_8 = integer_fourier_8;
  table.integer_fourier_16 = integer_fourier_16;
  table.level_sums_8 = integer_level_sums<signed char>;
  table.level_sums_16 = integer_level_sums<short>;
  table.level_sums_double = float_level_sums;
  table.draw_block = draw_block;
  table.add_power_sums = add_power_sums;
  table.divergence_from_sums = divergence_from_sums;
  table.add_log_densities = add_log_densities;
  table.scale_rows = scale_rows;
  table.exp = exp_array;
  table.log = log_array;
  table.sincos_turns_double = sincos_turns_array<double>;
  table.sincos_turns_float = sincos_turns_array<float>;
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
