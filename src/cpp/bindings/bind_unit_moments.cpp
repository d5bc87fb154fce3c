// Moments of units for batches of rows.
#include <string>
#include <vector>

#include "arrays.hpp"
#include "choices.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kUnitsPerChunk = 4096;
constexpr Index kPairsPerChunk = 16384;

// Rows whose pairs are about as many as a chunk should have; a function of the number of units alone.
Index rows_per_chunk(Index d) { return 1 + kPairsPerChunk / (1 + d * d); }

void unit_moments(const std::string& activation, const Array<double>& mean, const Array<double>& variance,
                  Array<double> hm, Array<double> second, Array<double> hv, int n_threads) {
  const Activation f = activation_of(activation);
  const Index size = mean.size();
  for (const py::array& array : std::initializer_list<py::array>{mean, variance, hm, second, hv})
    require_shape(array, "every moment", {size});
  double *out_hm = hm.mutable_data(), *out_second = second.mutable_data(), *out_hv = hv.mutable_data();
  py::gil_scoped_release release;
  for_chunks(size, kUnitsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().unit_moments.moments(f, end - begin, mean.data() + begin, variance.data() + begin,
                                   {out_hm + begin, out_second + begin, out_hv + begin, nullptr, nullptr});
  });
}

void moments_adjoint(const std::string& activation, const Array<double>& mean, const Array<double>& variance,
                     const Array<double>& hm_bar, const Array<double>& second_bar, const Array<double>& hv_bar,
                     Array<double> mean_bar, Array<double> variance_bar, int n_threads) {
  const Activation f = activation_of(activation);
  const Index size = mean.size();
  for (const py::array& array :
       std::initializer_list<py::array>{mean, variance, hm_bar, second_bar, hv_bar, mean_bar, variance_bar})
    require_shape(array, "every moment", {size});
  double *out_mean = mean_bar.mutable_data(), *out_variance = variance_bar.mutable_data();
  py::gil_scoped_release release;
  for_chunks(size, kUnitsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().unit_moments.adjoint(f, end - begin, mean.data() + begin, variance.data() + begin,
                                   hm_bar.data() + begin, second_bar.data() + begin, hv_bar.data() + begin,
                                   out_mean + begin, out_variance + begin);
  });
}

void unit_covariance(const std::string& activation, const std::string& kernel, const Array<double>& mean,
                     const Array<double>& S, Array<double> C, int n_threads) {
  const Activation f = activation_of(activation);
  const PairKernel k = pair_kernel_of(kernel);
  if (mean.ndim() != 2) throw std::invalid_argument("mean must have two dimensions");
  const Index n = mean.shape(0), d = mean.shape(1);
  require_shape(S, "S", {n, d, d});
  require_shape(C, "C", {n, d, d});
  double* out = C.mutable_data();
  py::gil_scoped_release release;
  for_chunks(n, rows_per_chunk(d), n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(unit_scratch_size(d));
    for (Index i = begin; i < end; ++i)
      kernels().unit_covariance.covariance(f, k, d, mean.data() + i * d, S.data() + i * d * d, out + i * d * d,
                                           nullptr, scratch.data());
  });
}

void covariance_adjoint(const std::string& activation, const std::string& kernel, const Array<double>& mean,
                        const Array<double>& S, const Array<double>& C_bar, Array<double> mean_bar,
                        Array<double> S_bar, int n_threads) {
  const Activation f = activation_of(activation);
  const PairKernel k = pair_kernel_of(kernel);
  if (mean.ndim() != 2) throw std::invalid_argument("mean must have two dimensions");
  const Index n = mean.shape(0), d = mean.shape(1);
  require_shape(S, "S", {n, d, d});
  require_shape(C_bar, "C_bar", {n, d, d});
  require_shape(mean_bar, "mean_bar", {n, d});
  require_shape(S_bar, "S_bar", {n, d, d});
  double *out_mean = mean_bar.mutable_data(), *out = S_bar.mutable_data();
  py::gil_scoped_release release;
  for_chunks(n, rows_per_chunk(d), n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(unit_scratch_size(d)), C, residual;
    if (needs_residual(f, k)) {
      C.resize(size_t(d * d));
      residual.resize(size_t(d * d));
    }
    for (Index i = begin; i < end; ++i) {
      const double *m = mean.data() + i * d, *s = S.data() + i * d * d;
      if (needs_residual(f, k))
        kernels().unit_covariance.covariance(f, k, d, m, s, C.data(), residual.data(), scratch.data());
      kernels().unit_covariance.adjoint(f, k, d, m, s, residual.data(), C_bar.data() + i * d * d, out_mean + i * d,
                                        out + i * d * d, scratch.data());
    }
  });
}

}  // namespace

void bind_unit_moments(py::module_& m) {
  m.def("activation_moments", &unit_moments, "activation"_a, "mean"_array, "variance"_array, "hm"_array, "second"_array,
        "hv"_array, "n_threads"_a);
  m.def("activation_moments_adjoint", &moments_adjoint, "activation"_a, "mean"_array, "variance"_array, "hm_bar"_array,
        "second_bar"_array, "hv_bar"_array, "mean_bar"_array, "variance_bar"_array, "n_threads"_a);
  m.def("activation_covariance", &unit_covariance, "activation"_a, "kernel"_a, "mean"_array, "S"_array, "C"_array,
        "n_threads"_a);
  m.def("activation_covariance_adjoint", &covariance_adjoint, "activation"_a, "kernel"_a, "mean"_array, "S"_array,
        "C_bar"_array, "mean_bar"_array, "S_bar"_array, "n_threads"_a);
}

}  // namespace pydirect
