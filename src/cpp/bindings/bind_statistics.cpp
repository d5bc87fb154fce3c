#include "pydirect/data/statistics.hpp"

#include "arrays.hpp"

namespace pydirect {
namespace {

template <class T>
void add_triangle(const Array<T>& block, Array<double> total, int n_threads) {
  const Index n = total.shape(0);
  require_shape(total, "total", {n, n});
  require_shape(block, "block", {n, n});
  without_gil([&] { add_upper_triangle(n, block.data(), total.mutable_data(), n_threads); });
}

template <class T>
void merge_triangle(const Array<T>& block, double factor, const Array<double>& shift, Array<double> total,
                    int n_threads) {
  const Index n = total.shape(0);
  require_shape(total, "total", {n, n});
  require_shape(block, "block", {n, n});
  require_shape(shift, "shift", {n});
  without_gil([&] { merge_upper_triangle(n, block.data(), factor, shift.data(), total.mutable_data(), n_threads); });
}

void mirror(Array<double> matrix, int n_threads) {
  const Index n = matrix.shape(0);
  require_shape(matrix, "matrix", {n, n});
  without_gil([&] { mirror_upper_triangle(n, matrix.mutable_data(), n_threads); });
}

template <class T>
void add_rows_times_target(const Array<T>& rows, const Array<double>& y, Array<double> out) {
  const Index n_rows = rows.shape(0), n_columns = rows.shape(1);
  require_shape(y, "y", {n_rows});
  require_shape(out, "out", {n_columns});
  without_gil([&] { add_transposed_product(n_rows, n_columns, rows.data(), y.data(), out.mutable_data()); });
}

void moments_of_rows(const Array<double>& rows, const Array<double>& weight, const Array<double>& spread,
                     Array<double> mean, Array<double> variance, int n_threads) {
  const Index n_rows = rows.shape(0), n_columns = rows.shape(1);
  require_shape(weight, "weight", {n_columns});
  require_shape(spread, "spread", {n_columns});
  require_shape(mean, "mean", {n_rows});
  require_shape(variance, "variance", {n_rows});
  without_gil([&] {
    row_moments(n_rows, n_columns, rows.data(), weight.data(), spread.data(), mean.mutable_data(),
                variance.mutable_data(), n_threads);
  });
}

}  // namespace

void bind_statistics(py::module_& m) {
  m.def("add_upper_triangle", &add_triangle<double>, "block"_array, "total"_array, "n_threads"_a);
  m.def("add_upper_triangle", &add_triangle<float>, "block"_array, "total"_array, "n_threads"_a);
  m.def("merge_upper_triangle", &merge_triangle<double>, "block"_array, "factor"_a, "shift"_array, "total"_array,
        "n_threads"_a);
  m.def("merge_upper_triangle", &merge_triangle<float>, "block"_array, "factor"_a, "shift"_array, "total"_array,
        "n_threads"_a);
  m.def("mirror_upper_triangle", &mirror, "matrix"_array, "n_threads"_a);
  m.def("add_transposed_product", &add_rows_times_target<double>, "rows"_array, "y"_array, "out"_array);
  m.def("add_transposed_product", &add_rows_times_target<float>, "rows"_array, "y"_array, "out"_array);
  m.def("row_moments", &moments_of_rows, "rows"_array, "weight"_array, "spread"_array, "mean"_array, "variance"_array,
        "n_threads"_a);
}

}  // namespace pydirect
