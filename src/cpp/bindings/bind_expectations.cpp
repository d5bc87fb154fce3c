#include <initializer_list>

#include "arrays.hpp"
#include "pydirect/logistic/expectations.hpp"

namespace pydirect {
namespace {

void softmax(const Array<double>& mean, const Array<double>& variance, Array<double> log_partition,
             Array<double> probability, Array<double> curvature, int n_threads) {
  if (mean.ndim() != 2) throw std::invalid_argument("mean must have two dimensions");
  const Index n = mean.shape(0), n_classes = mean.shape(1);
  require_shape(variance, "variance", {n});
  require_shape(log_partition, "log_partition", {n});
  require_shape(probability, "probability", {n, n_classes});
  require_shape(curvature, "curvature", {n});
  SoftmaxRows rows{};
  rows.n_rows = n;
  rows.n_classes = n_classes;
  rows.mean = mean.data();
  rows.variance = variance.data();
  rows.log_partition = log_partition.mutable_data();
  rows.probability = probability.mutable_data();
  rows.curvature = curvature.mutable_data();
  py::gil_scoped_release release;
  expected_softmax(rows, n_threads);
}

void sigmoid(const Array<double>& mean, const Array<double>& variance, Array<double> log_partition,
             Array<double> probability, Array<double> curvature, int n_threads) {
  const Index n = mean.size();
  for (const py::array& array : std::initializer_list<py::array>{mean, variance, log_partition, probability, curvature})
    require_shape(array, "every moment", {n});
  const SigmoidRows rows{n, mean.data(), variance.data(), nullptr, log_partition.mutable_data(),
                         probability.mutable_data(), curvature.mutable_data()};
  py::gil_scoped_release release;
  expected_sigmoid(rows, n_threads);
}

}  // namespace

void bind_expectations(py::module_& m) {
  m.def("expected_softmax", &softmax, "mean"_array, "variance"_array, "log_partition"_array, "probability"_array,
        "curvature"_array, "n_threads"_a);
  m.def("expected_sigmoid", &sigmoid, "mean"_array, "variance"_array, "log_partition"_array, "probability"_array,
        "curvature"_array, "n_threads"_a);
}

}  // namespace pydirect
