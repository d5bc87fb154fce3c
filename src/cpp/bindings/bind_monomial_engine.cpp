#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "pydirect/monomial_engine.hpp"

namespace pydirect {
namespace {

class BoundMonomialEngine {
 public:
  BoundMonomialEngine(Index n_inputs, std::vector<Index> hidden, bool bias, const Array<double>& x,
                      const Array<double>& y, const std::optional<Array<double>>& weight)
      : shape_{n_inputs, std::move(hidden), bias} {
    const Index n = x.shape(0);
    require_shape(x, "x", {n, n_inputs});
    require_shape(y, "y", {n});
    if (weight) require_shape(*weight, "weight", {n});
    const NetworkData data{n, x.data(), y.data(), weight ? weight->data() : nullptr};
    py::gil_scoped_release release;
    engine_ = make_monomial_engine(shape_, data);
  }

  double evaluate(const Array<double>& table, std::optional<Array<double>> gradient, int n_threads) {
    require_shape(table, "table", {shape_.table_size()});
    if (gradient) require_shape(*gradient, "gradient", {shape_.table_size()});
    const double* in = table.data();
    double* out = gradient ? gradient->mutable_data() : nullptr;
    py::gil_scoped_release release;
    return engine_->evaluate(in, out, n_threads);
  }

  void predict(const Array<double>& table, const Array<double>& x, Array<double> mean,
               std::optional<Array<double>> variance, int n_threads) {
    const Index n = x.shape(0);
    require_shape(table, "table", {shape_.table_size()});
    require_shape(x, "x", {n, shape_.n_inputs});
    require_shape(mean, "mean", {n});
    if (variance) require_shape(*variance, "variance", {n});
    const double *in = table.data(), *rows = x.data();
    double* m = mean.mutable_data();
    double* v = variance ? variance->mutable_data() : nullptr;
    py::gil_scoped_release release;
    engine_->predict(in, n, rows, m, v, n_threads);
  }

  Index n_terms() const { return engine_->n_terms(); }

 private:
  NetworkShape shape_;
  std::unique_ptr<MonomialEngine> engine_;
};

}  // namespace

void bind_monomial_engine(py::module_& m) {
  using E = BoundMonomialEngine;
  py::class_<E>(m, "MonomialEngine")
      .def(py::init<Index, std::vector<Index>, bool, const Array<double>&, const Array<double>&,
                    const std::optional<Array<double>>&>(),
           py::arg("n_inputs"), py::arg("hidden"), py::arg("bias"), py::arg("x").noconvert(),
           py::arg("y").noconvert(), py::arg("weight").noconvert() = py::none())
      .def("evaluate", &E::evaluate, py::arg("table").noconvert(), py::arg("gradient").noconvert(),
           py::arg("n_threads"))
      .def("predict", &E::predict, py::arg("table").noconvert(), py::arg("x").noconvert(),
           py::arg("mean").noconvert(), py::arg("variance").noconvert(), py::arg("n_threads"))
      .def_property_readonly("n_terms", &E::n_terms);
  m.def(
      "monomial_bound",
      [](Index n_inputs, std::vector<Index> hidden, bool bias) {
        const MonomialBound bound = monomial_bound({n_inputs, std::move(hidden), bias});
        return py::make_tuple(bound.n_terms, bound.n_bytes);
      },
      py::arg("n_inputs"), py::arg("hidden"), py::arg("bias"));
}

}  // namespace pydirect
