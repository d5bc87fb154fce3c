#include "pydirect/networks/unit_moments.hpp"

#include "kernels/kernel_table.hpp"

namespace pydirect {

void activation_moments(Activation activation, Index d, const double* mean, const double* variance, double* hm,
                        double* v, double* hv) {
  kernels().unit_moments.moments(activation, d, mean, variance, hm, v, hv, nullptr, nullptr);
}

void activation_moments_and_slopes(Activation activation, Index d, const double* mean, const double* variance,
                                   const MomentsAndSlopes& out) {
  kernels().unit_moments.moments(activation, d, mean, variance, out.hm, out.v, out.hv, out.cdf, out.density);
}

void activation_moments_adjoint(Activation activation, Index d, const double* mean, const double* variance,
                                const double* hm_bar, const double* v_bar, const double* hv_bar, double* mean_bar,
                                double* variance_bar) {
  kernels().unit_moments.adjoint(activation, d, mean, variance, hm_bar, v_bar, hv_bar, mean_bar, variance_bar);
}

Index activation_scratch_size(Index d) { return kActivationTableRows * activation_table_stride(d); }

void activation_covariance(Activation activation, PairKernel kernel, Index d, const double* mean, const double* S,
                           double* C, double* residual, double* scratch) {
  kernels().unit_covariance.covariance(activation, kernel, d, mean, S, C, residual, scratch);
}

void activation_covariance_adjoint(Activation activation, PairKernel kernel, Index d, const double* mean,
                                   const double* S, const double* residual, const double* C_bar, double* mean_bar,
                                   double* S_bar, double* scratch) {
  kernels().unit_covariance.adjoint(activation, kernel, d, mean, S, residual, C_bar, mean_bar, S_bar, scratch);
}

}  // namespace pydirect
