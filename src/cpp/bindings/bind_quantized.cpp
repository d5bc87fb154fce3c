#include <pybind11/stl.h>

#include <memory>

#include "arrays.hpp"
#include "pydirect/quantized.hpp"
#include "pydirect/selection.hpp"
#include "pydirect/trees.hpp"

namespace pydirect {
namespace {

template <class T>
std::vector<T> vector_of(const Array<T>& a) {
  return std::vector<T>(a.data(), a.data() + a.size());
}

// Numbers of the levels that are not zero, by code; −1 for the others. `kept` gets their values.
template <class T>
std::vector<int> number_levels(const Array<T>& levels, std::vector<T>& kept) {
  std::vector<int> taken(256, -1);
  for (Index k = 0; k < levels.size(); ++k)
    if (levels.data()[k] != 0) {
      taken[k] = int(kept.size());
      kept.push_back(levels.data()[k]);
    }
  return taken;
}

template <class T>
void require_codes(const Array<unsigned char>& codes, const Array<T>& levels) {
  if (codes.ndim() != 2 || levels.ndim() != 1 || levels.size() > 256)
    throw std::invalid_argument("codes must have shape (n_features, n_columns), levels (n_levels,)");
  for (Index k = 0; k < codes.size(); ++k)
    if (codes.data()[k] >= levels.size()) throw std::invalid_argument("codes must be below the number of levels");
}

std::unique_ptr<IntegerProgram> make_program(Index n_columns_in, const Array<int>& columns, const Array<float>& origin,
                                             const Array<float>& multiplier, int limit,
                                             const Array<unsigned>& frequencies,
                                             const Array<int>& linear, const Array<int>& gain,
                                             const Array<unsigned char>& codes, const Array<int>& multipliers,
                                             int total_shift) {
  require_codes(codes, multipliers);
  const Index n_inputs = columns.size(), n_frequencies = frequencies.shape(0), n_features = codes.shape(0);
  require_shape(frequencies, "frequencies", {n_frequencies, n_inputs});
  for (const py::array& a : {py::array(origin), py::array(multiplier)})
    require_shape(a, "origin and multiplier", {n_inputs});
  require_shape(gain, "gain", {n_features});
  if (2 * n_frequencies + linear.size() > n_features)
    throw std::invalid_argument("codes must have a row for every basis function");
  if (total_shift < 0 || total_shift > 30) throw std::invalid_argument("total_shift must be 0 to 30");
  std::vector<int> levels;
  const std::vector<int> taken = number_levels(multipliers, levels);
  LevelIndex index(codes.data(), n_features, codes.shape(1), taken, Index(levels.size()));
  auto p = std::make_unique<IntegerProgram>(IntegerProgram{
      n_columns_in, n_inputs, vector_of(columns), vector_of(origin), vector_of(multiplier), limit, n_frequencies,
      vector_of(frequencies), vector_of(linear), vector_of(gain), std::move(index), std::move(levels),
      total_shift});
  for (const int c : p->columns)
    if (c < 0 || c >= n_columns_in) throw std::invalid_argument("columns must be among those of a row");
  for (const int i : p->linear)
    if (i < 0 || i >= n_inputs) throw std::invalid_argument("linear must be inputs");
  return p;
}

void run_program(const IntegerProgram& p, const Array<double>& x, Array<int> totals, int n_threads) {
  const Index n_rows = x.shape(0);
  require_shape(x, "x", {n_rows, p.n_columns_in});
  require_shape(totals, "totals", {n_rows, p.index.n_columns});
  without_gil([&] { p.run(x.data(), n_rows, totals.mutable_data(), n_threads); });
}

// Splits and what the tree explains at all rows.
py::tuple improved_tree(const Array<unsigned char>& cells, const Array<bool>& is_seen, const Array<double>& weight,
                        const Array<double>& target, const std::vector<std::int64_t>& given, Index depth, Index n_cells,
                        double ridge) {
  if (cells.ndim() != 2 || target.ndim() != 2) throw std::invalid_argument("cells and target must have two dimensions");
  const Index n_rows = cells.shape(0), n_inputs = cells.shape(1), n_outputs = target.shape(1);
  require_shape(is_seen, "is_seen", {n_rows});
  require_shape(weight, "weight", {n_rows});
  require_shape(target, "target", {n_rows, n_outputs});
  if (depth < 1 || depth > 8 || !(given.empty() || Index(given.size()) == depth))
    throw std::invalid_argument("given must have no splits or depth, which is 1 to 8");
  for (const std::int64_t split : given)
    if (split < 0 || split >= n_inputs * n_cells) throw std::invalid_argument("given must be cells of inputs");
  for (Index k = 0; k < cells.size(); ++k)
    if (cells.data()[k] >= n_cells) throw std::invalid_argument("cells must be below n_cells");
  std::vector<std::int64_t> splits(given);
  splits.resize(depth);
  Array<double> explained({n_rows, n_outputs});
  const TreeRows rows{n_rows,         n_inputs,      n_cells,       n_outputs, cells.data(),
                      is_seen.data(), weight.data(), target.data(), ridge};
  without_gil([&] { improve_tree(rows, depth, Index(given.size()), splits.data(), explained.mutable_data()); });
  return py::make_tuple(splits, explained);
}

std::vector<std::int64_t> selected_columns(const Array<double>& a, const Array<double>& c, double ridge, Index n_pairs,
                                           std::pair<double, double> costs, double least, Index most) {
  if (a.ndim() != 2 || c.ndim() != 2) throw std::invalid_argument("a and c must have two dimensions");
  const Index n = a.shape(0), n_outputs = c.shape(1);
  require_shape(a, "a", {n, n});
  require_shape(c, "c", {n, n_outputs});
  if (n_pairs < 1 || n < 2 * n_pairs + 1) throw std::invalid_argument("n_pairs must be positive, with columns for them");
  const Selection selection{n, n_outputs, n_pairs, a.data(), c.data(), ridge, costs.first, costs.second, least};
  std::vector<std::int64_t> taken;
  without_gil([&] { taken = select_columns(selection, most); });
  return taken;
}

}  // namespace

void bind_quantized(py::module_& m) {
  py::class_<IntegerProgram>(m, "IntegerProgram")
      .def(py::init(&make_program), "n_columns_in"_a, "columns"_array, "origin"_array, "multiplier"_array,
           "limit"_a, "frequencies"_array, "linear"_array, "gain"_array, "codes"_array, "multipliers"_array,
           "total_shift"_a)
      .def("run", &run_program, "x"_array, "totals"_array, "n_threads"_a);
  m.def("improved_tree", &improved_tree, "cells"_array, "is_seen"_array, "weight"_array, "target"_array, "given"_a,
        "depth"_a, "n_cells"_a, "ridge"_a);
  m.def("selected_columns", &selected_columns, "a"_array, "c"_array, "ridge"_a, "n_pairs"_a, "costs"_a, "least"_a,
        "most"_a);
}

}  // namespace pydirect
