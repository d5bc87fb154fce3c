#include <cstdint>

#include "arrays.hpp"
#include "pydirect/data/screen.hpp"

namespace pydirect {
namespace {

void screen(const Array<std::uint8_t>& classes, const Array<double>& y, Index n_classes, Array<double> between,
            Array<std::int32_t> cells, int n_threads) {
  if (classes.ndim() != 2 || y.ndim() != 2) throw std::invalid_argument("classes and y must have two dimensions");
  const Index n_columns = classes.shape(0), n_rows = classes.shape(1), n_outputs = y.shape(0);
  if (n_classes < 1 || n_classes > kMostClasses) throw std::invalid_argument("there must be 1 to 6 classes");
  for (Index i = 0; i < classes.size(); ++i)
    if (classes.data()[i] >= n_classes) throw std::invalid_argument("classes must be below n_classes");
  require_shape(y, "y", {n_outputs, n_rows});
  require_shape(between, "between", {n_outputs, n_columns, n_columns});
  require_shape(cells, "cells", {n_columns, n_columns});
  const PairScreen problem{n_rows, n_columns, n_outputs, n_classes, classes.data(), y.data()};
  without_gil([&] { pair_screen(problem, between.mutable_data(), cells.mutable_data(), n_threads); });
}

}  // namespace

void bind_screen(py::module_& m) {
  m.def("pair_screen", &screen, "classes"_array, "y"_array, "n_classes"_a, "between"_array, "cells"_array,
        "n_threads"_a);
}

}  // namespace pydirect
