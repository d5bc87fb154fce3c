#include "arrays.hpp"
#include "pydirect/regression/factorisation.hpp"

namespace pydirect {
namespace {

py::tuple cholesky_of(const Array<double>& matrix, const Array<double>& ridge, const Array<double>& scale, bool pivot,
                      double matrix_scale, int n_threads) {
  const Index n = ridge.size();
  require_shape(matrix, "matrix", {n, n});
  require_shape(ridge, "ridge", {n});
  require_shape(scale, "scale", {n});
  // NumPy's zeros cost nothing where they are not touched: below the diagonal.
  Array<double> factor = py::module_::import("numpy").attr("zeros")(py::make_tuple(n, n));
  Array<std::int64_t> order(n);
  const ScaledMatrix m{n, matrix.data(), matrix_scale, ridge.data(), scale.data()};
  double* out = factor.mutable_data();
  std::int64_t* out_order = order.mutable_data();
  const Index rank = without_gil([&] { return cholesky(m, pivot, out, out_order, n_threads); });
  return py::make_tuple(factor, order, rank);
}

Array<std::int64_t> largest_pivots_of(Array<double> matrix, Index n_order, double least, int n_threads) {
  const Index n = matrix.shape(0);
  require_shape(matrix, "matrix", {n, n});
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  double* const data = matrix.mutable_data();
  const Index rank = without_gil([&] { return largest_pivots(n, data, n_order, least, order.data(), n_threads); });
  order.resize(static_cast<std::size_t>(rank));
  return copy(order);
}

Array<double> inverse_diagonal_of(const Array<double>& factor, int n_threads) {
  const Index n = factor.shape(0);
  require_shape(factor, "factor", {n, n});
  Array<double> out(n);
  const double* in = factor.data();
  double* data = out.mutable_data();
  without_gil([&] { inverse_diagonal(n, in, data, n_threads); });
  return out;
}

}  // namespace

void bind_factorisation(py::module_& m) {
  m.def("cholesky", &cholesky_of, "matrix"_array, "ridge"_array, "scale"_array, "pivot"_a, "matrix_scale"_a,
        "n_threads"_a);
  m.def("largest_pivots", &largest_pivots_of, "matrix"_array, "n_order"_a, "least"_a, "n_threads"_a);
  m.def("inverse_diagonal", &inverse_diagonal_of, "factor"_array, "n_threads"_a);
}

}  // namespace pydirect
