#include <pybind11/stl.h>

#include <mutex>
#include <optional>

#include "problems.hpp"
#include "pydirect/quadratic/network.hpp"

namespace pydirect {
namespace {

using Optional = std::optional<Array<double>>;

NetworkShape make_shape(Index n_inputs, const std::vector<Index>& hidden, bool bias) {
  if (n_inputs + (bias ? 1 : 0) < 1 || hidden.empty())
    throw std::invalid_argument("a network needs inputs and a hidden layer");
  if (Index(hidden.size()) > kMostHiddenLayers)
    throw std::invalid_argument("a network has at most " + std::to_string(kMostHiddenLayers) +
                                " hidden layers, got " + std::to_string(hidden.size()));
  for (const Index width : hidden)
    if (width < 1) throw std::invalid_argument("hidden layers need units");
  return {n_inputs, hidden, bias};
}

NetworkData make_data(const NetworkShape& shape, const Array<double>& x, const Array<double>& y,
                      const Optional& weight) {
  const Index n = y.shape(0);
  if (n < 1) throw std::invalid_argument("a network needs rows of data");
  require_shape(x, "x", {n, shape.n_inputs});
  require_shape(y, "y", {n});
  if (weight) require_shape(*weight, "weight", {n});
  return {n, x.data(), y.data(), weight ? weight->data() : nullptr};
}

// Owns references to the arrays that the engine reads, and lets one call at a time through.
class NetworkEngineHandle {
 public:
  NetworkEngineHandle(const std::string& kind, Index n_inputs, const std::vector<Index>& hidden, bool bias,
                      Array<double> x, Array<double> y, Optional weight)
      : shape_(make_shape(n_inputs, hidden, bias)), x_(std::move(x)), y_(std::move(y)), weight_(std::move(weight)) {
    const NetworkData data = make_data(shape_, x_, y_, weight_);
    py::gil_scoped_release release;
    engine_ = make_network_engine(kind, shape_, data);
  }

  Index n_terms() const { return engine_->n_terms(); }

  double evaluate(const Array<double>& table, std::optional<Array<double>> gradient, int n_threads) {
    require_shape(table, "table", {shape_.table_size()});
    if (gradient) require_shape(*gradient, "gradient_out", {shape_.table_size()});
    double* g = gradient ? gradient->mutable_data() : nullptr;
    const double* moments = table.data();
    py::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex_);
    return engine_->evaluate(moments, g, n_threads);
  }

  void predict(const Array<double>& table, const Array<double>& x, Array<double> mean,
               std::optional<Array<double>> variance, int n_threads) {
    require_shape(table, "table", {shape_.table_size()});
    const Index n = mean.shape(0);
    require_shape(x, "x", {n, shape_.n_inputs});
    require_shape(mean, "mean_out", {n});
    if (variance) require_shape(*variance, "variance_out", {n});
    double* m = mean.mutable_data();
    double* v = variance ? variance->mutable_data() : nullptr;
    const double *moments = table.data(), *rows = x.data();
    py::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex_);
    engine_->predict(moments, n, rows, m, v, n_threads);
  }

  double sweep(const Array<double>& levels, const Array<double>& log_prior, double tau, Array<double> q) {
    const TiltFamily family = tilt_family(levels, log_prior, shape_.n_weights());
    require_shape(q, "q", {shape_.n_weights(), family.n_levels});
    double* probabilities = q.mutable_data();
    py::gil_scoped_release release;
    // No lock: a sweep has its own memory and only reads the data; the engine takes no part.
    return network_sweep(shape_, make_data(shape_, x_, y_, weight_), family, tau, probabilities);
  }

 private:
  NetworkShape shape_;
  Array<double> x_, y_;
  Optional weight_;
  std::unique_ptr<NetworkEngine> engine_;
  std::mutex mutex_;
};

py::tuple cost(const std::string& kind, Index n_inputs, const std::vector<Index>& hidden, bool bias, Index n_rows) {
  const NetworkCost c = network_cost(kind, make_shape(n_inputs, hidden, bias), n_rows);
  return py::make_tuple(c.flops, c.bytes);
}

}  // namespace

void bind_quadratic_network(py::module_& m) {
  py::class_<NetworkEngineHandle>(m, "NetworkEngine")
      .def(py::init<const std::string&, Index, const std::vector<Index>&, bool, Array<double>, Array<double>,
                    Optional>(),
           "kind"_a, "n_inputs"_a, "hidden"_a, "bias"_a, "x"_array, "y"_array, "weight"_array)
      .def("evaluate", &NetworkEngineHandle::evaluate, "table"_array, "gradient_out"_array, "n_threads"_a)
      .def("predict", &NetworkEngineHandle::predict, "table"_array, "x"_array, "mean_out"_array, "variance_out"_array,
           "n_threads"_a)
      .def("sweep", &NetworkEngineHandle::sweep, "levels"_array, "log_prior"_array, "tau"_a, "q"_array)
      .def_property_readonly("n_terms", &NetworkEngineHandle::n_terms);
  m.def("network_cost", &cost, "kind"_a, "n_inputs"_a, "hidden"_a, "bias"_a, "n_rows"_a);
  m.def("network_table_size",
        [](Index n_inputs, const std::vector<Index>& hidden, bool bias) {
          return make_shape(n_inputs, hidden, bias).table_size();
        },
        "n_inputs"_a, "hidden"_a, "bias"_a);
}

}  // namespace pydirect
