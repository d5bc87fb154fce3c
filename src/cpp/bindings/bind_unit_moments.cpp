// Activation moments of batches of data.
#include <string>
#include <vector>

#include "arrays.hpp"
#include "choices.hpp"
#include "pydirect/networks/unit_moments.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kUnitsPerChunk = 4096;
constexpr Index kPairsPerChunk = 16384;

// Data whose pairs are about as many as a chunk should have; a function of the number of units alone.
Index data_per_chunk(Index d) { return 1 + kPairsPerChunk / (1 + d * d); }

void moments(const std::string& activation, const Array<double>& mean, const Array<double>& variance, Array<double> hm,
             Array<double> second, Array<double> hv, int n_threads) {
  const Activation f = activation_of(activation);
  const Index size = mean.size();
  require_shape(mean, "mean", {size});
  require_shape(variance, "variance", {size});
  require_shape(hm, "hm", {size});
  require_shape(second, "second", {size});
  require_shape(hv, "hv", {size});
  double *out_hm = hm.mutable_data(), *out_second = second.mutable_data(), *out_hv = hv.mutable_data();
  py::gil_scoped_release release;
  for_chunks(size, kUnitsPerChunk, n_threads, [&](Index begin, Index end) {
    activation_moments(f, end - begin, mean.data() + begin, variance.data() + begin, out_hm + begin,
                       out_second + begin, out_hv + begin);
  });
}

void moments_adjoint(const std::string& activation, const Array<double>& mean, const Array<double>& variance,
                     const Array<double>& hm_bar, const Array<double>& second_bar, const Array<double>& hv_bar,
                     Array<double> mean_bar, Array<double> variance_bar, int n_threads) {
  const Activation f = activation_of(activation);
  const Index size = mean.size();
  require_shape(mean, "mean", {size});
  require_shape(variance, "variance", {size});
  require_shape(hm_bar, "hm_bar", {size});
  require_shape(second_bar, "second_bar", {size});
  require_shape(hv_bar, "hv_bar", {size});
  require_shape(mean_bar, "mean_bar", {size});
  require_shape(variance_bar, "variance_bar", {size});
  double *out_mean = mean_bar.mutable_data(), *out_variance = variance_bar.mutable_data();
  py::gil_scoped_release release;
  for_chunks(size, kUnitsPerChunk, n_threads, [&](Index begin, Index end) {
    activation_moments_adjoint(f, end - begin, mean.data() + begin, variance.data() + begin, hm_bar.data() + begin,
                               second_bar.data() + begin, hv_bar.data() + begin, out_mean + begin,
                               out_variance + begin);
  });
}

void covariance(const std::string& activation, const std::string& kernel, const Array<double>& mean,
                const Array<double>& S, Array<double> C, int n_threads) {
  const Activation f = activation_of(activation);
  const PairKernel k = pair_kernel_of(kernel);
  if (mean.ndim() != 2) throw std::invalid_argument("mean must have two dimensions");
  const Index n = mean.shape(0), d = mean.shape(1);
  require_shape(S, "S", {n, d, d});
  require_shape(C, "C", {n, d, d});
  double* out = C.mutable_data();
  py::gil_scoped_release release;
  for_chunks(n, data_per_chunk(d), n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(activation_scratch_size(d));
    for (Index i = begin; i < end; ++i)
      activation_covariance(f, k, d, mean.data() + i * d, S.data() + i * d * d, out + i * d * d,
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
  for_chunks(n, data_per_chunk(d), n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(activation_scratch_size(d)), C, residual;
    if (needs_residual(f, k)) {
      C.resize(size_t(d * d));
      residual.resize(size_t(d * d));
    }
    for (Index i = begin; i < end; ++i) {
      const double *m = mean.data() + i * d, *s = S.data() + i * d * d;
      if (needs_residual(f, k)) activation_covariance(f, k, d, m, s, C.data(), residual.data(), scratch.data());
      activation_covariance_adjoint(f, k, d, m, s, residual.data(), C_bar.data() + i * d * d, out_mean + i * d,
                                    out + i * d * d, scratch.data());
    }
  });
}

}  // namespace

void bind_unit_moments(py::module_& m) {
  m.def("activation_moments", &moments, py::arg("activation"), py::arg("mean").noconvert(),
        py::arg("variance").noconvert(), py::arg("hm").noconvert(), py::arg("second").noconvert(),
        py::arg("hv").noconvert(), py::arg("n_threads"));
  m.def("activation_moments_adjoint", &moments_adjoint, py::arg("activation"), py::arg("mean").noconvert(),
        py::arg("variance").noconvert(), py::arg("hm_bar").noconvert(), py::arg("second_bar").noconvert(),
        py::arg("hv_bar").noconvert(), py::arg("mean_bar").noconvert(), py::arg("variance_bar").noconvert(),
        py::arg("n_threads"));
  m.def("activation_covariance", &covariance, py::arg("activation"), py::arg("kernel"), py::arg("mean").noconvert(),
        py::arg("S").noconvert(), py::arg("C").noconvert(), py::arg("n_threads"));
  m.def("activation_covariance_adjoint", &covariance_adjoint, py::arg("activation"), py::arg("kernel"),
        py::arg("mean").noconvert(), py::arg("S").noconvert(), py::arg("C_bar").noconvert(),
        py::arg("mean_bar").noconvert(), py::arg("S_bar").noconvert(), py::arg("n_threads"));
}

}  // namespace pydirect
