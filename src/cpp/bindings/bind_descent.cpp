#include <pybind11/stl.h>

#include <algorithm>

#include "evidence.hpp"
#include "pydirect/descent.hpp"

namespace pydirect {
namespace {

std::vector<double> numbers(const Array<double>& a) { return {a.data(), a.data() + a.size()}; }

// steps (n_steps, 2, n): of parameters and of gradients.
Descent make_descent(const Array<double>& x, const Array<double>& lower, const Array<double>& upper,
                     const Array<double>& scale, const Array<double>& steps) {
  const Index n = x.size();
  require_shape(x, "x", {n});
  require_shape(lower, "lower", {n});
  require_shape(upper, "upper", {n});
  require_shape(scale, "scale", {n});
  if (steps.ndim() != 3) throw std::invalid_argument("steps must have three dimensions");
  require_shape(steps, "steps", {Index(steps.shape(0)), 2, n});
  Descent out(numbers(x), numbers(lower), numbers(upper), numbers(scale));
  for (const double* step = steps.data(); step != steps.data() + steps.size(); step += 2 * n)
    out.remember({step, step + n}, {step + n, step + 2 * n});
  return out;
}

// Values and gradients are divided by `unit`.
bool iterate_on_python(Descent& own, const py::function& function, double unit) {
  return own.iterate([&](const std::vector<double>& x, std::vector<double>& gradient) {
    const auto found = function(copy(x)).cast<std::pair<double, Array<double>>>();
    require_shape(found.second, "gradient", {Index(x.size())});
    std::transform(found.second.data(), found.second.data() + x.size(), gradient.begin(),
                   [unit](double each) { return each / unit; });
    return found.first / unit;
  });
}

bool iterate_on_evidence(Descent& own, Evidence& function, double unit) {
  if (Index(own.x().size()) != function.posterior().n_parameters()) throw std::invalid_argument("x must be of function");
  return without_gil([&] {
    return own.iterate([&](const std::vector<double>& x, std::vector<double>& gradient) {
      const double value = function(x.data(), gradient.data());
      for (double& each : gradient) each /= unit;
      return value / unit;
    });
  });
}

Array<double> steps_of(const Descent& own) {
  const Index n = Index(own.x().size());
  Array<double> out({Index(own.steps().size()), Index(2), n});
  double* to = out.mutable_data();
  for (const Descent::Step& step : own.steps()) {
    to = std::copy(step.x.begin(), step.x.end(), to);
    to = std::copy(step.gradient.begin(), step.gradient.end(), to);
  }
  return out;
}

}  // namespace

void bind_descent(py::module_& m) {
  py::class_<Descent>(m, "Descent")
      .def(py::init(&make_descent), "x"_array, "lower"_array, "upper"_array, "scale"_array, "steps"_array)
      .def("iterate", &iterate_on_evidence, "function"_a, "unit"_a)
      .def("iterate", &iterate_on_python, "function"_a, "unit"_a)
      .def("forget_value", &Descent::forget_value)
      .def_property_readonly("x", [](const Descent& own) { return copy(own.x()); })
      .def_property_readonly("value", &Descent::value)
      .def_property_readonly("n_evaluations", &Descent::n_evaluations)
      .def_property_readonly("scale", [](const Descent& own) { return copy(own.learned_scale()); })
      .def_property_readonly("steps", &steps_of);
}

}  // namespace pydirect
