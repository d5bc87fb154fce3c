#include <optional>

#include <pybind11/stl.h>

#include "arrays.hpp"
#include "pydirect/logistic/exponential.hpp"

namespace pydirect {
namespace {

void terms(const Array<double>& phi, const Array<double>& factor, const Array<double>& weight, const Array<double>& q,
           const Array<double>& first, const Array<double>& offsets, bool evenly_spaced, Array<double> log_terms,
           std::optional<Array<double>> gradient, int n_threads) {
  if (phi.ndim() != 2 || q.ndim() != 2) throw std::invalid_argument("phi and q must have two dimensions");
  const Index n = phi.shape(0), b = phi.shape(1), m = q.shape(0), padded = q.shape(1);
  if (m < 1 || padded < b || padded % kLevelPadding != 0) throw std::invalid_argument("q must be padded");
  require_shape(factor, "factor", {n});
  require_shape(weight, "weight", {n});
  require_shape(first, "first", {padded});
  require_shape(offsets, "offsets", {m, padded});
  require_shape(log_terms, "log_terms", {n});
  if (gradient) require_shape(*gradient, "gradient", {m, padded});
  const ExponentialRows rows{n, b, phi.data(), b, factor.data(), weight.data(), m, padded, q.data(), first.data(),
                             offsets.data(), evenly_spaced, nullptr, log_terms.mutable_data(),
                             gradient ? gradient->mutable_data() : nullptr};
  py::gil_scoped_release release;
  exponential_terms(rows, n_threads);
}

}  // namespace

void bind_exponential(py::module_& m) {
  m.def("exponential_terms", &terms, "phi"_array, "factor"_array, "weight"_array, "q"_array, "first"_array,
        "offsets"_array, "evenly_spaced"_a, "log_terms"_array, "gradient"_array, "n_threads"_a);
}

}  // namespace pydirect
