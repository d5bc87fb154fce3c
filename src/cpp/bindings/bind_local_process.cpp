#include "arrays.hpp"
#include "pydirect/regression/local_process.hpp"

namespace pydirect {
namespace {

Array<double> distances_of(const Array<float>& rows, const Array<float>& points, const Array<std::int64_t>& chosen,
                           int n_threads) {
  const Index n_rows = rows.shape(0), n_columns = rows.shape(1), k = chosen.shape(1);
  require_shape(points, "points", {points.shape(0), n_columns});
  require_shape(chosen, "chosen", {n_rows, k});
  for (Index i = 0; i < n_rows * k; ++i)
    if (chosen.data()[i] < 0 || chosen.data()[i] >= points.shape(0))
      throw std::invalid_argument("chosen must be rows of points");
  Array<double> out({n_rows, n_distances(k)});
  const Neighbourhoods n{n_rows, n_columns, k, rows.data(), points.data(), chosen.data()};
  double* data = out.mutable_data();
  without_gil([&] { neighbour_distances(n, data, n_threads); });
  return out;
}

Array<double> factors_of(const Array<double>& distances, const Array<float>& weight, double rho, double eta,
                         int n_threads) {
  const Index n_rows = weight.shape(0), k = weight.shape(1);
  require_shape(distances, "distances", {n_rows, n_distances(k)});
  Array<double> out({n_rows, n_factor_entries(k)});
  const double* in = distances.data();
  double* data = out.mutable_data();
  without_gil([&] { neighbour_factors(n_rows, k, in, weight.data(), rho, eta, data, n_threads); });
  return out;
}

Array<double> moments_of(const Array<double>& factors, const Array<float>& residuals, int n_threads) {
  const Index n_rows = residuals.shape(0), k = residuals.shape(1);
  require_shape(factors, "factors", {n_rows, n_factor_entries(k)});
  Array<double> out({Index(3), n_rows});
  const double* in = factors.data();
  double* mean = out.mutable_data();
  without_gil([&] {
    krige(n_rows, k, in, residuals.data(), {mean, mean + n_rows, mean + 2 * n_rows}, n_threads);
  });
  return out;
}

}  // namespace

void bind_local_process(py::module_& m) {
  m.def("neighbour_distances", &distances_of, "rows"_array, "points"_array, "chosen"_array, "n_threads"_a);
  m.def("neighbour_factors", &factors_of, "distances"_array, "weight"_array, "rho"_a, "eta"_a, "n_threads"_a);
  m.def("krige", &moments_of, "factors"_array, "residuals"_array, "n_threads"_a);
}

}  // namespace pydirect
