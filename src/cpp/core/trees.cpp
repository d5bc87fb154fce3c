#include "pydirect/trees.hpp"

#include <algorithm>
#include <vector>

namespace pydirect {
namespace {

// Leaf of every row: the answers to the questions, the first one's the highest bit.
void find_leaves(const TreeRows& rows, const std::int64_t* splits, Index n_splits, std::vector<Index>& leaf) {
  std::fill(leaf.begin(), leaf.end(), 0);
  for (Index s = 0; s < n_splits; ++s) {
    const Index cell = splits[s] % rows.n_cells;
    const unsigned char* const column = rows.cells + splits[s] / rows.n_cells;
    for (Index r = 0; r < rows.n_rows; ++r) leaf[r] = 2 * leaf[r] + (column[r * rows.n_inputs] > cell);
  }
}

// The split of largest fall beside those that made `n_leaves` leaves. sums (n_leaves, n_inputs, n_cells, 1 + n_outputs):
// weights, and weighted targets, of the rows in each cell. kWidth: 1 + n_outputs, or zero where only the caller knows it.
template <Index kWidth>
std::int64_t best_split(const TreeRows& rows, const std::vector<Index>& leaf, Index n_leaves, std::vector<double>& sums) {
  const Index width = kWidth ? kWidth : 1 + rows.n_outputs;
  const Index of_input = rows.n_cells * width, of_leaf = rows.n_inputs * of_input;
  sums.assign(n_leaves * of_leaf, 0.0);
  std::vector<double> value(width), left(width), total(width), fall(rows.n_inputs * rows.n_cells, 0.0);
  for (Index r = 0; r < rows.n_rows; ++r) {
    if (!rows.is_seen[r]) continue;
    value[0] = rows.weight[r];
    for (Index k = 1; k < width; ++k) value[k] = rows.weight[r] * rows.target[r * rows.n_outputs + k - 1];
    double* sum = sums.data() + leaf[r] * of_leaf;
    for (Index i = 0; i < rows.n_inputs; ++i, sum += of_input) {
      double* const own = sum + rows.cells[r * rows.n_inputs + i] * width;
      for (Index k = 0; k < width; ++k) own[k] += value[k];
    }
  }
  for (Index l = 0; l < n_leaves; ++l)
    for (Index i = 0; i < rows.n_inputs; ++i) {
      const double* const sum = sums.data() + l * of_leaf + i * of_input;
      std::fill(left.begin(), left.end(), 0.0);
      std::fill(total.begin(), total.end(), 0.0);
      for (Index c = 0; c < rows.n_cells; ++c)
        for (Index k = 0; k < width; ++k) total[k] += sum[c * width + k];
      for (Index c = 0; c < rows.n_cells; ++c) {
        for (Index k = 0; k < width; ++k) left[k] += sum[c * width + k];
        double below = 0, above = 0;
        for (Index k = 1; k < width; ++k) {
          below += left[k] * left[k];
          above += (total[k] - left[k]) * (total[k] - left[k]);
        }
        fall[i * rows.n_cells + c] += below / (left[0] + rows.ridge) + above / (total[0] - left[0] + rows.ridge);
      }
    }
  return std::max_element(fall.begin(), fall.end()) - fall.begin();
}

}  // namespace

void improve_tree(const TreeRows& rows, Index depth, Index n_given, std::int64_t* splits, double* explained) {
  std::vector<Index> leaf(rows.n_rows);
  std::vector<double> sums;
  for (Index step = 0; step < depth; ++step) {
    const Index n_others = n_given > 0 ? depth - 1 : step;
    if (n_given > 0) std::rotate(splits, splits + 1, splits + depth);
    find_leaves(rows, splits, n_others, leaf);
    const auto find = rows.n_outputs == 1 ? best_split<2> : best_split<0>;
    splits[n_others] = find(rows, leaf, Index(1) << n_others, sums);
  }
  find_leaves(rows, splits, depth, leaf);
  const Index width = 1 + rows.n_outputs;
  sums.assign(width << depth, 0.0);
  for (Index r = 0; r < rows.n_rows; ++r) {
    double* const own = sums.data() + leaf[r] * width;
    own[0] += rows.weight[r];
    for (Index k = 1; k < width; ++k) own[k] += rows.weight[r] * rows.target[r * rows.n_outputs + k - 1];
  }
  for (Index r = 0; r < rows.n_rows; ++r) {
    const double* const own = sums.data() + leaf[r] * width;
    for (Index k = 1; k < width; ++k) explained[r * rows.n_outputs + k - 1] = own[k] / (own[0] + rows.ridge);
  }
}

}  // namespace pydirect
