#include "arrays.hpp"
#include "pydirect/data/inputs.hpp"

namespace pydirect {
namespace {

void require_columns(const Array<std::int64_t>& columns, const char* name, Index n_columns) {
  if (columns.ndim() != 1) throw std::invalid_argument(std::string(name) + " must have one dimension");
  for (Index k = 0; k < columns.shape(0); ++k)
    if (columns.data()[k] < 0 || columns.data()[k] >= n_columns)
      throw std::invalid_argument(std::string(name) + " must be columns of x");
}

void map(const Array<double>& x, const Array<std::int64_t>& kept, const Array<double>& mean,
         const Array<double>& scale, double largest, const Array<std::int64_t>& scored, const Array<double>& knots,
         const Array<double>& scores, Array<double> out) {
  if (x.ndim() != 2 || knots.ndim() != 2) throw std::invalid_argument("x and knots must have two dimensions");
  const Index n_rows = x.shape(0), n_columns = x.shape(1);
  require_columns(kept, "kept", n_columns);
  require_columns(scored, "scored", n_columns);
  const InputColumns columns{n_columns,   kept.shape(0), scored.shape(0), knots.shape(1), kept.data(),  mean.data(),
                             scale.data(), largest,       scored.data(),   knots.data(),   scores.data()};
  require_shape(mean, "mean", {n_columns});
  require_shape(scale, "scale", {n_columns});
  require_shape(knots, "knots", {columns.n_scored, columns.n_knots});
  require_shape(scores, "scores", {columns.n_scored, columns.n_knots});
  require_shape(out, "out", {n_rows, columns.n_kept + columns.n_scored});
  if (columns.n_scored > 0 && columns.n_knots == 0) throw std::invalid_argument("knots must not be empty");
  without_gil([&] { map_inputs(columns, n_rows, x.data(), out.mutable_data()); });
}

}  // namespace

void bind_inputs(py::module_& m) {
  m.def("map_inputs", &map, "x"_array, "kept"_array, "mean"_array, "scale"_array, "largest"_a, "scored"_array,
        "knots"_array, "scores"_array, "out"_array);
}

}  // namespace pydirect
