#include <algorithm>

#include "arrays.hpp"
#include "pydirect/data/gaussian_process.hpp"

namespace pydirect {
namespace {

void require_smoothness(int twice_smoothness) {
  if (twice_smoothness != 1 && twice_smoothness != 3 && twice_smoothness != 5)
    throw std::invalid_argument("twice_smoothness must be 1, 3 or 5");
}

CovarianceProblem make_problem(Array<double>& ard, Array<double>& isotropic, const Array<double>& linear,
                               const Array<double>& ard_norm, const Array<double>& isotropic_norm,
                               const Array<double>& noise, const Array<double>& amplitudes, int twice_smoothness,
                               const Array<double>& axes, bool of_pairs) {
  const Index n = noise.shape(0), stride = ard.shape(1);
  if (stride % kLevelPadding != 0) throw std::invalid_argument("ard must have padded rows");
  require_shape(ard, "ard", {n, stride});
  require_shape(isotropic, "isotropic", {n, stride});
  require_shape(linear, "linear", {n, stride});
  require_shape(ard_norm, "ard_norm", {stride});
  require_shape(isotropic_norm, "isotropic_norm", {stride});
  require_shape(amplitudes, "amplitudes", {4});
  require_smoothness(twice_smoothness);
  if (axes.ndim() != 2) throw std::invalid_argument("axes must have two dimensions");
  if (axes.shape(0) > 0) require_shape(axes, "axes", {axes.shape(0), stride});
  const double* a = amplitudes.data();
  return {n, stride, ard.mutable_data(), isotropic.mutable_data(), linear.data(), ard_norm.data(),
          isotropic_norm.data(), noise.data(), a[0], a[1], a[2], a[3], twice_smoothness, axes.data(), axes.shape(0),
          of_pairs};
}

void require_square(const CovarianceProblem& p) {
  if (p.stride < p.n) throw std::invalid_argument("ard must have at least as many columns as rows");
}

void forward(Array<double> ard, Array<double> isotropic, const Array<double>& linear, const Array<double>& ard_norm,
             const Array<double>& isotropic_norm, const Array<double>& noise, const Array<double>& amplitudes,
             Array<double> out, int n_threads, int twice_smoothness, const Array<double>& axes, bool of_pairs) {
  const CovarianceProblem p =
      make_problem(ard, isotropic, linear, ard_norm, isotropic_norm, noise, amplitudes, twice_smoothness, axes, of_pairs);
  require_square(p);
  require_shape(out, "out", {p.stride, p.stride});
  without_gil([&] { covariance(p, out.mutable_data(), n_threads); });
}

Array<double> gradient(Array<double> ard, Array<double> isotropic, const Array<double>& linear,
                       const Array<double>& ard_norm, const Array<double>& isotropic_norm, const Array<double>& noise,
                       const Array<double>& amplitudes, const Array<double>& inverse, const Array<double>& alpha,
                       Array<double> distance_weight, int n_threads, const Array<double>& axes, bool of_pairs) {
  // The derivative of the Matérn part comes from the forward pass.
  const CovarianceProblem p =
      make_problem(ard, isotropic, linear, ard_norm, isotropic_norm, noise, amplitudes, 3, axes, of_pairs);
  require_square(p);
  require_shape(inverse, "inverse", {p.stride, p.stride});
  require_shape(alpha, "alpha", {p.stride});
  require_shape(distance_weight, "distance_weight", {p.n, p.stride});
  Array<double> sums(4 + p.n_axes);
  without_gil([&] {
    covariance_gradient(p, inverse.data(), alpha.data(), distance_weight.mutable_data(), sums.mutable_data(),
                        n_threads);
  });
  return sums;
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
  const Array<double> no_axes(std::vector<py::ssize_t>{0, 0});
  m.def("covariance", &forward, "ard"_array, "isotropic"_array, "linear"_array, "ard_norm"_array,
        "isotropic_norm"_array, "noise"_array, "amplitudes"_array, "out"_array, "n_threads"_a, "twice_smoothness"_a = 3,
        "axes"_array = no_axes, "of_pairs"_a = false);
  m.def("covariance_gradient", &gradient, "ard"_array, "isotropic"_array, "linear"_array, "ard_norm"_array,
        "isotropic_norm"_array, "noise"_array, "amplitudes"_array, "inverse"_array, "alpha"_array,
        "distance_weight"_array, "n_threads"_a, "axes"_array = no_axes, "of_pairs"_a = false);
  m.def("cross_covariance", &cross, "x"_array, "others"_array, "weights"_array, "isotropic_weight"_a,
        "product_weights"_array, "amplitudes"_array, "linear_reach"_a, "twice_smoothness"_a, "out"_array,
        "n_threads"_a, "of_pairs"_a = false);
}

}  // namespace pydirect
