#include <algorithm>

#include "arrays.hpp"
#include "pydirect/data/gaussian_process.hpp"

namespace pydirect {
namespace {

void require_smoothness(int twice_smoothness) {
  if (twice_smoothness != 1 && twice_smoothness != 3 && twice_smoothness != 5)
    throw std::invalid_argument("twice_smoothness must be 1, 3 or 5");
}

// Value and derivatives, and whether the covariance could be factorised.
py::tuple exact_evidence(const Array<double>& x, const Array<double>& y, const Array<double>& noise,
                         const Array<double>& products, const Array<double>& linear,
                         const Array<double>& length_scales, const Array<double>& amplitudes, int twice_smoothness,
                         const Array<double>& rates, const Array<double>& axes, bool of_pairs, Array<double> work,
                         int n_threads) {
  if (x.ndim() != 2 || y.ndim() != 2 || products.ndim() != 2 || axes.ndim() != 2)
    throw std::invalid_argument("x, y, products and axes must have two dimensions");
  const Index n = x.shape(0), n_inputs = x.shape(1), stride = products.shape(1), n_axes = axes.shape(0);
  if (stride % kLevelPadding != 0 || stride < n) throw std::invalid_argument("products must have padded rows");
  if (n < 1 || y.shape(1) < 1) throw std::invalid_argument("x and y must not be empty");
  require_shape(y, "y", {n, Index(y.shape(1))});
  require_shape(noise, "noise", {n});
  require_shape(products, "products", {n, stride});
  require_shape(linear, "linear", {n, stride});
  require_shape(length_scales, "length_scales", {n_inputs});
  require_shape(amplitudes, "amplitudes", {4});
  require_shape(rates, "rates", {std::max<Index>(1, n_axes)});
  if (n_axes > 0) require_shape(axes, "axes", {n_axes, stride});
  require_shape(work, "work", {4, n, stride});
  require_smoothness(twice_smoothness);
  const double* a = amplitudes.data();
  const MarginalLikelihood problem{n, stride, n_inputs, Index(y.shape(1)), x.data(), y.data(), noise.data(),
                                   products.data(), linear.data(), length_scales.data(), a[0], a[1], a[2], a[3],
                                   twice_smoothness, rates.data(), axes.data(), n_axes, of_pairs};
  Array<double> out(problem.n_sums());
  const bool is_valid = without_gil(
      [&] { return marginal_likelihood(problem, work.mutable_data(), out.mutable_data(), n_threads); });
  return py::make_tuple(out, is_valid);
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
  m.def("marginal_likelihood", &exact_evidence, "x"_array, "y"_array, "noise"_array, "products"_array, "linear"_array,
        "length_scales"_array, "amplitudes"_array, "twice_smoothness"_a, "rates"_array, "axes"_array, "of_pairs"_a,
        "work"_array, "n_threads"_a);
  m.def("cross_covariance", &cross, "x"_array, "others"_array, "weights"_array, "isotropic_weight"_a,
        "product_weights"_array, "amplitudes"_array, "linear_reach"_a, "twice_smoothness"_a, "out"_array,
        "n_threads"_a, "of_pairs"_a = false);
}

}  // namespace pydirect
