// Sums over the terms of a polynomial as a tree of their common beginnings.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "pydirect/kron.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect::quadratic {

constexpr Index kNodesPerChunk = 16384;
constexpr Index kMaxGradientChunks = 32;

// Σ_t c_t Π M over a tree of the terms' common beginnings: every node multiplies its parent's product by one moment.
// Products from the root down and sums from the leaves up are the prefixes and suffixes of all terms, without division.
class MomentTree {
 public:
  // Terms of f² and of f; entry(f) is where the moment E w^power of a factor stands in the table.
  template <class Entry>
  MomentTree(const std::vector<const TermSet*>& parts, const Entry& entry) {
    std::vector<std::pair<const Factor*, const Factor*>> terms;
    std::vector<Index> part_begin{0};
    for (const TermSet* part : parts) {
      for (Index t = 0; t < part->size(); ++t) terms.emplace_back(part->begin(t), part->end(t));
      part_begin.push_back(Index(terms.size()));
    }
    std::vector<std::int32_t> order(terms.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return std::lexicographical_compare(terms[a].first, terms[a].second, terms[b].first, terms[b].second);
    });
    // In sorted order a term is a path that leaves the one before at the first different factor.
    std::vector<std::int32_t> parent{-1}, moment{-1}, depth{0}, path{0};
    std::vector<std::int32_t> node_of_term(terms.size());
    const Factor *before = nullptr, *before_end = nullptr;
    for (const std::int32_t t : order) {
      const auto [begin, end] = terms[t];
      Index shared = 0;
      while (begin + shared != end && before + shared != before_end && begin[shared] == before[shared]) ++shared;
      path.resize(shared + 1);
      for (const Factor* f = begin + shared; f != end; ++f) {
        parent.push_back(path.back());
        moment.push_back(std::int32_t(entry(*f)));
        depth.push_back(std::int32_t(path.size()));
        path.push_back(std::int32_t(parent.size()) - 1);
      }
      node_of_term[t] = path.back();
      before = begin, before_end = end;
    }
    number_by_depth(parent, moment, depth, node_of_term);
    for (std::size_t k = 0; k + 1 < part_begin.size(); ++k)
      term_nodes_.emplace_back(node_of_term.begin() + part_begin[k], node_of_term.begin() + part_begin[k + 1]);
    coefficient_.assign(n_nodes(), 0.0);
    product_.resize(n_nodes());
    rest_.resize(n_nodes());
  }

  Index n_nodes() const { return Index(parent_.size()); }
  double& coefficient(std::size_t part, Index t) { return coefficient_[term_nodes_[part][t]]; }
  double product(std::size_t part, Index t) const { return product_[term_nodes_[part][t]]; }
  double difference(std::size_t part, Index t) const { return rest_[term_nodes_[part][t]]; }

  // product = Π of the moments from the root to the node.
  void multiply_down(const double* moments, int n_threads) {
    product_[0] = 1.0;
    for (std::size_t d = 1; d + 1 < level_.size(); ++d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i)
          product_[i] = product_[parent_[i]] * moments[moment_[i]];
      });
  }

  // difference = Π E w^r − Π μ^r, after multiply_down, without cancellation: P M − P⁰ M⁰ = (P − P⁰) M⁰ + P (M − M⁰).
  // Held where sum_up has its sums.
  void difference_down(const double* powers, const double* excess, int n_threads) {
    rest_[0] = 0.0;
    for (std::size_t d = 1; d + 1 < level_.size(); ++d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i)
          rest_[i] = rest_[parent_[i]] * powers[moment_[i]] + product_[parent_[i]] * excess[moment_[i]];
      });
  }

  // rest = Σ over the terms at and below the node, of coefficient times moments below it; returns the root's.
  double sum_up(const double* moments, int n_threads) {
    for (Index d = Index(level_.size()) - 2; d >= 0; --d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i) {
          double sum = coefficient_[i];
          for (std::int32_t c = first_child_[i]; c < first_child_[i + 1]; ++c) sum += moments[moment_[c]] * rest_[c];
          rest_[i] = sum;
        }
      });
    return rest_[0];
  }

  // Derivatives in the moments, added to out: at every node, what stands above times what stands below.
  void gradient(Index table_size, double* out, int n_threads) {
    const Index count = n_nodes() - 1;
    const Index chunk = std::max(kNodesPerChunk, (count + kMaxGradientChunks - 1) / kMaxGradientChunks);
    const Index n_chunks = (count + chunk - 1) / chunk;
    partial_.assign(n_chunks * table_size, 0.0);
    for_chunks(count, chunk, n_threads, [&](Index begin, Index end) {
      double* slope = partial_.data() + begin / chunk * table_size;
      for (Index i = 1 + begin; i < 1 + end; ++i) slope[moment_[i]] += product_[parent_[i]] * rest_[i];
    });
    for (Index k = 0; k < n_chunks; ++k)
      for (Index j = 0; j < table_size; ++j) out[j] += partial_[k * table_size + j];
  }

 private:
  // Level by level, so that the nodes of a level are independent and the children of a node neighbours.
  void number_by_depth(const std::vector<std::int32_t>& parent, const std::vector<std::int32_t>& moment,
                       const std::vector<std::int32_t>& depth, std::vector<std::int32_t>& node_of_term) {
    const std::size_t n = parent.size();
    level_.assign(std::size_t(*std::max_element(depth.begin(), depth.end())) + 2, 0);
    for (const std::int32_t d : depth) ++level_[d + 1];
    std::partial_sum(level_.begin(), level_.end(), level_.begin());
    std::vector<Index> next(level_.begin(), level_.end() - 1);
    std::vector<std::int32_t> renumbered(n);
    for (std::size_t i = 0; i < n; ++i) renumbered[i] = std::int32_t(next[depth[i]]++);
    parent_.resize(n);
    moment_.resize(n);
    first_child_.assign(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
      parent_[renumbered[i]] = i == 0 ? -1 : renumbered[parent[i]];
      moment_[renumbered[i]] = moment[i];
    }
    for (std::size_t i = 1; i < n; ++i) ++first_child_[parent_[i] + 1];
    first_child_[0] = 1;  // node 0 is the root
    std::partial_sum(first_child_.begin(), first_child_.end(), first_child_.begin());
    for (std::int32_t& node : node_of_term) node = renumbered[node];
  }

  std::vector<std::int32_t> parent_, moment_, first_child_;
  std::vector<Index> level_;  // first node of every level
  std::vector<std::vector<std::int32_t>> term_nodes_;
  std::vector<double> coefficient_, product_, rest_, partial_;
};

}  // namespace pydirect::quadratic
