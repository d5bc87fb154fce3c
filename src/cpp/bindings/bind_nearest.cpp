#include <algorithm>
#include <cstdint>

#include "arrays.hpp"
#include "evidence.hpp"
#include "pydirect/data/nearest.hpp"

namespace pydirect {
namespace {

Array<std::int64_t> preceding(const Array<float>& x, const Array<std::int64_t>& targets, Index n_neighbours,
                              int n_threads) {
  if (x.ndim() != 2 || targets.ndim() != 1) throw std::invalid_argument("x must have two dimensions, targets one");
  const Index n_inputs = x.shape(0), stride = x.shape(1), n_targets = targets.shape(0);
  if (stride % kScanPadding != 0) throw std::invalid_argument("x must have padded columns");
  if (n_neighbours < 1) throw std::invalid_argument("n_neighbours must be positive");
  for (Index i = 0; i < n_targets; ++i)
    if (targets.data()[i] < 0 || targets.data()[i] >= stride) throw std::invalid_argument("targets must be columns of x");
  Array<std::int64_t> out({n_targets, n_neighbours});
  const NearestSearch problem{n_inputs, stride, n_targets, n_neighbours, x.data(), targets.data()};
  without_gil([&] { nearest_preceding(problem, out.mutable_data(), n_threads); });
  return out;
}

Array<std::uint64_t> moving_inputs(const Array<double>& x) {
  if (x.ndim() != 2) throw std::invalid_argument("x must have two dimensions");
  Array<std::uint64_t> out({x.shape(0), moving_words(x.shape(1))});
  std::fill_n(out.mutable_data(), out.size(), 0);
  without_gil([&] { mark_moving_inputs(x.data(), x.shape(0), x.shape(1), out.mutable_data()); });
  return out;
}

NearestRows make_rows(const Array<double>& x, const Array<std::int64_t>& rows, const Array<std::uint64_t>& moving) {
  if (x.ndim() != 2 || rows.ndim() != 2) throw std::invalid_argument("x and rows must have two dimensions");
  const Index n_rows = x.shape(0), n_targets = rows.shape(0), n_neighbours = rows.shape(1) - 1;
  if (n_neighbours < 1) throw std::invalid_argument("rows must be neighbours and a target");
  for (Index i = 0; i < rows.size(); ++i)
    if (rows.data()[i] < -1 || rows.data()[i] >= n_rows) throw std::invalid_argument("rows must be of x or -1");
  require_shape(moving, "moving", {n_rows, moving_words(x.shape(1))});
  return {n_rows, x.shape(1), n_targets, n_neighbours, x.data(), rows.data(), moving.data(), moving.shape(1)};
}

Array<double> distances(const Array<double>& x, const Array<std::int64_t>& rows, const Array<std::uint64_t>& moving,
                        int n_threads) {
  const NearestRows problem = make_rows(x, rows, moving);
  Array<double> out({problem.n_groups(), problem.n_pairs(), kTargetsTogether});
  without_gil([&] { nearest_distances(problem, out.mutable_data(), n_threads); });
  return out;
}

// Sums and whether they are finite.
py::tuple evidence(const Array<double>& x, const Array<std::int64_t>& rows, const Array<std::uint64_t>& moving,
                   const Array<double>& isotropic, const Array<double>& noise, const Array<double>& residual,
                   const Array<double>& kernel, int twice_smoothness, bool with_gradient, int n_threads,
                   py::object weights, py::object variances) {
  const NearestRows problem = make_rows(x, rows, moving);
  if (residual.ndim() != 2) throw std::invalid_argument("residual must have two dimensions");
  const Index n_outputs = residual.shape(1);
  require_shape(isotropic, "isotropic", {problem.n_groups(), problem.n_pairs(), kTargetsTogether});
  require_shape(noise, "noise", {problem.n_rows});
  require_shape(residual, "residual", {problem.n_rows, n_outputs});
  require_shape(kernel, "kernel", {3});
  require_smoothness(twice_smoothness);
  double *b = nullptr, *v = nullptr;
  if (!weights.is_none()) {
    auto of_rows = weights.cast<Array<double>>(), of_targets = variances.cast<Array<double>>();
    require_shape(of_rows, "weights", {problem.n_targets, problem.n_neighbours + 1});
    require_shape(of_targets, "variances", {problem.n_targets});
    b = of_rows.mutable_data(), v = of_targets.mutable_data();
  }
  Array<double> out(problem.n_inputs + 5);
  const double* const a = kernel.data();
  const NearestProblem whole{problem, n_outputs, isotropic.data(), noise.data(), residual.data(),
                             a[0],    a[1],      a[2],             twice_smoothness};
  const bool is_valid =
      without_gil([&] { return nearest_evidence(whole, with_gradient, out.mutable_data(), b, v, n_threads); });
  return py::make_tuple(out, is_valid);
}

}  // namespace

void bind_nearest(py::module_& m) {
  m.def("nearest_preceding", &preceding, "x"_array, "targets"_array, "n_neighbours"_a, "n_threads"_a);
  m.def("moving_inputs", &moving_inputs, "x"_array);
  m.def("nearest_distances", &distances, "x"_array, "rows"_array, "moving"_array, "n_threads"_a);
  m.def("nearest_evidence", &evidence, "x"_array, "rows"_array, "moving"_array, "isotropic"_array, "noise"_array,
        "residual"_array, "kernel"_array, "twice_smoothness"_a, "with_gradient"_a, "n_threads"_a,
        "weights"_a = py::none(), "variances"_a = py::none());
}

}  // namespace pydirect
