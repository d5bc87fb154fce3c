#include <algorithm>
#include <functional>

#include "evidence.hpp"

namespace pydirect {
namespace {

py::tuple with_gradient(const Evidence& own, const Array<double>& theta,
                        const std::function<double(const double* theta, double* gradient)>& function) {
  const Index n = own.posterior().n_parameters();
  require_shape(theta, "theta", {n});
  Array<double> gradient(n);
  const double value = without_gil([&] { return function(theta.data(), gradient.mutable_data()); });
  return py::make_tuple(value, gradient);
}

py::tuple evidence_at(Evidence& own, const Array<double>& theta) { return with_gradient(own, theta, std::ref(own)); }

py::tuple penalty_at(const Evidence& own, const Array<double>& theta) {
  return with_gradient(own, theta, [&](const double* at, double* out) { return own.posterior().penalty(at, out); });
}

void cross(const Array<double>& x, const Array<double>& others, const Array<double>& weights, double isotropic_weight,
           const Array<double>& product_weights, const Array<double>& amplitudes, double linear_reach,
           int twice_smoothness, Array<double> out, int n_threads, bool of_pairs) {
  if (x.ndim() != 2 || others.ndim() != 3 || out.ndim() != 2)
    throw std::invalid_argument("x and out must have two dimensions, others three");
  const Index n_rows = x.shape(0), n_inputs = x.shape(1), n_linear = others.shape(1) - n_inputs;
  const Index n_others = out.shape(1);
  if (n_linear < 0 || n_linear > n_inputs) throw std::invalid_argument("others must have all inputs of x");
  require_shape(others, "others", {(n_others + kLevelPadding - 1) / kLevelPadding, n_inputs + n_linear, kLevelPadding});
  require_shape(weights, "weights", {n_inputs});
  if (product_weights.size() > 0) require_shape(product_weights, "product_weights", {n_inputs});
  require_shape(amplitudes, "amplitudes", {4});
  require_shape(out, "out", {n_rows, n_others});
  require_smoothness(twice_smoothness);
  const Index n_axes = std::count_if(product_weights.data(), product_weights.data() + product_weights.size(),
                                     [](double weight) { return weight > 0.0; });
  const double per_pair = of_pairs && n_axes > 1 ? 1.0 / (double(n_axes) * double(n_axes - 1)) : 0.0;
  const double* a = amplitudes.data();
  const CrossCovariance problem{n_rows, n_inputs, n_linear, n_others, x.data(), nullptr, others.data(), weights.data(),
                                isotropic_weight, product_weights.size() > 0 ? product_weights.data() : nullptr,
                                per_pair, a[0], a[1], a[2], a[3], nullptr, out.mutable_data()};
  without_gil([&] { cross_covariance(problem, linear_reach, twice_smoothness, n_threads); });
}

}  // namespace

void bind_gaussian_process(py::module_& m) {
  m.attr("BAD_POINT") = kBadPoint;
  py::class_<Evidence>(m, "MarginalLikelihood")
      .def(py::init<Array<double>, Array<double>, Array<double>, Array<double>, Array<double>, Array<std::int64_t>, Index,
                    Array<double>, Array<double>, Array<double>, bool, int, double, double, int>(),
           "x"_array, "y"_array, "weight"_array, "distances"_array, "linear"_array, "tied"_array, "n_linear"_a,
           "mean"_array, "sd"_array, "axes"_array, "of_pairs"_a, "twice_smoothness"_a, "slope"_a, "rest"_a,
           "n_threads"_a)
      .def("__call__", &evidence_at, "theta"_array)
      .def("penalty", &penalty_at, "theta"_array);
  m.def("cross_covariance", &cross, "x"_array, "others"_array, "weights"_array, "isotropic_weight"_a,
        "product_weights"_array, "amplitudes"_array, "linear_reach"_a, "twice_smoothness"_a, "out"_array,
        "n_threads"_a, "of_pairs"_a = false);
}

}  // namespace pydirect
