#include "pydirect/regression/factorisation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/panels.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kPanel = 64;        // rows of the factor that are found together
constexpr Index kBlock = 6;         // groups of columns that the first-level cache holds of a panel
constexpr Index kRowChunk = 256;    // groups of a row: less is not worth a thread
constexpr Index kTile = kLanes * kLanes;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_pivot(double d) { return d > 0.0 && d < kInfinity; }

// x ← R⁻ᵀx for n_rows (a multiple of eight) rows of n_groups groups of columns; r_group(g) are the columns of R that
// belong to the g-th eight rows.
template <class Groups>
void forward_substitute(Index n_rows, const Groups& r_group, const double* inverse_diagonal, Index n_groups, double* x,
                        Index x_group) {
  const FactorisationKernels& k = kernels().factorisation;
  for (Index row = 0; row < n_rows; row += kLanes) {
    const double* r = r_group(row / kLanes);
    k.subtract_product(row, r, n_groups, x, x_group, x + row * kLanes, kLanes, x_group);
    k.solve(r + row * kLanes, inverse_diagonal + row, n_groups, x + row * kLanes, x_group);
  }
}

// In place: row r of the eight holds the entries right of the diagonal. Returns how many of the n pivots are good.
Index factorise_tile(Index n, double* tile, double* inverse_diagonal) {
  for (Index j = 0; j < n; ++j) {
    double* row = tile + j * kLanes;
    if (!is_pivot(row[j])) return j;
    const double root = std::sqrt(row[j]);
    inverse_diagonal[j] = 1.0 / root;
    row[j] = root;
    for (Index k = j + 1; k < kLanes; ++k) row[k] *= inverse_diagonal[j];
    for (Index i = j + 1; i < kLanes; ++i)
      for (Index k = i; k < kLanes; ++k) tile[i * kLanes + k] -= row[i] * row[k];
  }
  return n;
}

// Factorises the array in place, panel by panel of rows. Groups of columns count from the left of the whole matrix;
// what tiles on the diagonal leave below it is cleared at the end.
class Factorisation {
 public:
  Factorisation(Index n, double* matrix, int n_threads)
      : n_(n), matrix_(matrix), n_threads_(n_threads), packed_(n_panels(n) * kGroup) {}

  Index plain() {
    std::vector<double> inverse(kPanel);
    for (first_ = 0; first_ < n_; first_ += kPanel) {
      width_ = std::min(kPanel, n_ - first_);
      const auto own_group = [this](Index g) { return packed_.data() + g * kGroup; };
      const Index begin = first_ / kLanes, middle = begin + n_panels(width_), n_groups = n_panels(n_);
      pack_groups(begin, middle);
      const Index rank = diagonal_block(inverse.data());
      if (rank < width_) return first_ + rank;
      unpack_groups(begin, middle);
      for_chunks(n_groups - middle, kBlock, n_threads_, [&](Index from, Index to) {
        pack_groups(middle + from, middle + to);
        forward_substitute(kPanel, own_group, inverse.data(), to - from, group(middle + from), kGroup);
        unpack_groups(middle + from, middle + to);
      });
      update_rest();
    }
    clear_below();
    return n_;
  }

  // The pivot that comes next is the least times the sign; they end at n_pivots, or at one that is not above `least`.
  Index pivoted(std::int64_t* order, double sign, Index n_pivots, double least) {
    std::iota(order, order + n_, 0);
    sign_ = sign;
    diagonal_.assign(padded(n_), sign * kInfinity);
    pivots_.resize(n_);
    for (first_ = 0; first_ < n_; first_ += kPanel) {
      width_ = std::min(kPanel, n_ - first_);
      double smallest = kInfinity;
      for (Index k = first_; k < n_; ++k) {
        diagonal_[k] = row(k)[k];
        smallest = std::min(smallest, sign * diagonal_[k]);
      }
      for (done_ = 0; done_ < width_; ++done_) {
        const double pivot = sign * smallest;
        if (!is_pivot(pivot) || !(pivot > least) || first_ + done_ == n_pivots) return first_ + done_;
        smallest = next_row(pivot, order);
      }
      update_rest();
    }
    permute_finished_rows();
    clear_below();
    return n_;
  }

 private:
  static constexpr Index kGroup = kPanel * kLanes;

  double* row(Index i) { return matrix_ + i * n_; }
  double* group(Index g) { return packed_.data() + (g - first_ / kLanes) * kGroup; }
  double* entry(Index l, Index column) { return group(column / kLanes) + l * kLanes + column % kLanes; }

  // Of the panel, in packed form: eight rows at a time. Returns its rank.
  Index diagonal_block(double* inverse) {
    const FactorisationKernels& k = kernels().factorisation;
    const Index n_groups = n_panels(width_);
    for (Index g = 0; g < n_groups; ++g) {
      const Index l = g * kLanes, n_rows = std::min(kLanes, width_ - l);
      double* r = packed_.data() + g * kGroup;
      k.subtract_product(l, r, n_groups - g, r, kGroup, r + l * kLanes, kLanes, kGroup);
      const Index rank = factorise_tile(n_rows, r + l * kLanes, inverse + l);
      if (rank < n_rows) return l + rank;
      k.solve(r + l * kLanes, inverse + l, n_groups - g - 1, r + kGroup + l * kLanes, kGroup);
    }
    return width_;
  }

  void pack_groups(Index begin, Index end) {
    for (Index g = begin; g < end; ++g)
      pack(width_, std::min(kLanes, n_ - g * kLanes), row(first_) + g * kLanes, n_, group(g));
  }

  void unpack_groups(Index begin, Index end) {
    for (Index l = 0; l < width_; ++l)
      for (Index column = begin * kLanes; column < std::min(end * kLanes, n_); column += kLanes)
        std::copy_n(entry(l, column), std::min(kLanes, n_ - column), row(first_ + l) + column);
  }

  // Moves the pivot to its place and finds its row of the factor; returns the smallest of the remaining diagonal times
  // the sign.
  double next_row(double pivot, std::int64_t* order) {
    const Index j = first_ + done_;
    Index p = -1;
    for (Index k = j; k < n_; ++k)
      if (diagonal_[k] == pivot && (p < 0 || order[k] < order[p])) p = k;
    pivots_[j] = p;
    std::swap(order[j], order[p]);
    swap_in_rest(j, p);
    double coefficient[kPanel];
    for (Index l = 0; l < done_; ++l) {
      coefficient[l] = *entry(l, p);
      *entry(l, p) = *entry(l, j);
    }
    diagonal_[p] = diagonal_[j];
    diagonal_[j] = sign_ * kInfinity;

    const double root = std::sqrt(pivot);
    const Index begin = (j + 1) / kLanes, n_groups = n_panels(n_) - begin;
    double smallest = kInfinity;
    std::vector<double>& minima = minima_;
    minima.assign(n_groups / kRowChunk + 1, kInfinity);
    for_chunks(n_groups, kRowChunk, n_threads_, [&](Index from, Index to) {
      const Index column = (begin + from) * kLanes;
      minima[from / kRowChunk] = kernels().factorisation.pivoted_row(
          {done_, coefficient, group(begin + from), kGroup, row(j) + column,
           std::min(n_ - column, (to - from) * kLanes), 1.0 / root, diagonal_.data() + column, sign_});
    });
    for (const double d : minima) smallest = std::min(smallest, d);
    row(j)[j] = root;
    return smallest;
  }

  // Rows and columns j <= p of the upper triangle from row j on. The diagonal entry of j, now the pivot's, is not kept.
  void swap_in_rest(Index j, Index p) {
    if (j == p) return;
    row(p)[p] = row(j)[j];
    for (Index k = j + 1; k < p; ++k) std::swap(row(j)[k], row(k)[p]);
    std::swap_ranges(row(j) + p + 1, row(j) + n_, row(p) + p + 1);
  }

  // The matrix right of and below the panel, minus the panel's part.
  void update_rest() {
    const FactorisationKernels& k = kernels().factorisation;
    const Index begin = (first_ + kPanel) / kLanes, n_groups = n_panels(n_), n_whole = n_ / kLanes;
    if (begin >= n_groups) return;
    for_chunks(n_groups - begin, kBlock, n_threads_, [&](Index from, Index to) {
      for (Index i = begin; i < begin + to; ++i) {
        const Index left = std::max(begin + from, i), right = std::min(begin + to, n_whole);
        double* c = row(i * kLanes) + left * kLanes;
        if (left < right) k.subtract_product(kPanel, group(i), right - left, group(left), kGroup, c, n_, kLanes);
        if (begin + to > n_whole) subtract_partial_group(i);
      }
    });
  }

  // Eight rows or what is left of them, in the last columns.
  void subtract_partial_group(Index i) {
    double tile[kTile] = {};
    const Index last = n_ / kLanes, n_rows = std::min(kLanes, n_ - i * kLanes);
    kernels().factorisation.subtract_product(kPanel, group(i), 1, group(last), kGroup, tile, kLanes, 0);
    for (Index r = 0; r < n_rows; ++r)
      for (Index q = 0; q < n_ % kLanes; ++q) row(i * kLanes + r)[last * kLanes + q] += tile[r * kLanes + q];
  }

  // Rows of the factor have not seen the exchanges of columns that came after them: all at once, from the last.
  void permute_finished_rows() {
    std::vector<Index> source(n_), place(n_);
    std::vector<double> copy(n_);
    std::iota(source.begin(), source.end(), 0);
    place = source;
    for (Index j = n_; j-- > 0;) {
      std::copy(row(j) + j + 1, row(j) + n_, copy.begin() + j + 1);
      for (Index k = j + 1; k < n_; ++k) row(j)[k] = copy[source[k]];
      const Index p = pivots_[j];
      std::swap(source[place[j]], source[place[p]]);
      std::swap(place[j], place[p]);
    }
  }

  void clear_below() {
    for (Index j = 0; j < n_; ++j) std::fill(row(j) + j / kLanes * kLanes, row(j) + j, 0.0);
  }

  const Index n_;
  double* const matrix_;
  const int n_threads_;
  Index first_ = 0, width_ = 0, done_ = 0;  // rows of the panel; those that are finished
  double sign_ = 1.0;
  std::vector<double> packed_, diagonal_, minima_;
  std::vector<Index> pivots_;
};

}  // namespace

Index cholesky(const ScaledMatrix& m, bool pivot, double* factor, std::int64_t* order, int n_threads) {
  const Index n = m.n;
  for_chunks(n, kPanel, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const double *in = m.matrix + i * n, scale = m.scale[i];
      double* out = factor + i * n;
      for (Index k = i; k < n; ++k) out[k] = m.matrix_scale * in[k] * (scale * m.scale[k]);
      out[i] = (m.matrix_scale * in[i] + m.ridge[i]) * (scale * scale);
    }
  });
  Factorisation factorisation(n, factor, n_threads);
  if (pivot) return factorisation.pivoted(order, 1.0, n, 0.0);
  std::iota(order, order + n, 0);
  return factorisation.plain();
}

Index largest_pivots(Index n, double* matrix, Index n_order, double least, std::int64_t* order, int n_threads) {
  return Factorisation(n, matrix, n_threads).pivoted(order, -1.0, n_order, least);
}

void inverse_diagonal(Index n, const double* factor, double* out, int n_threads) {
  const FactorisationKernels& k = kernels().factorisation;
  const Index n_groups = n_panels(n);
  // Columns of R down to their last tile, group by group.
  const auto start = [](Index g) { return g * (g + 1) / 2 * kTile; };
  std::vector<double> packed(start(n_groups)), inverse(padded(n)), norms(padded(n));
  for (Index j = 0; j < n; ++j) inverse[j] = 1.0 / factor[j * n + j];
  for_chunks(n_groups, kBlock, n_threads, [&](Index begin, Index end) {
    for (Index g = begin; g < end; ++g)
      pack(std::min((g + 1) * kLanes, n), std::min(kLanes, n - g * kLanes), factor + g * kLanes, n,
           packed.data() + start(g));
  });
  // Columns of R⁻ᵀ, a block at a time: those of the identity, forward substituted.
  for_chunks(n_groups, kBlock, n_threads, [&](Index begin, Index end) {
    const Index n_rows = (n_groups - begin) * kLanes, x_group = n_rows * kLanes, width = end - begin;
    std::vector<double> x(width * x_group);
    for (Index q = 0; q < width * kLanes; ++q) x[q / kLanes * x_group + q * kLanes + q % kLanes] = 1.0;
    for (Index row = 0; row < n_rows; row += kPanel) {
      const Index first = begin * kLanes + row, n_panel = std::min(kPanel, n_rows - row);
      const auto r_group = [&](Index g) { return packed.data() + start(first / kLanes + g) + first * kLanes; };
      double* panel = x.data() + row * kLanes;
      forward_substitute(n_panel, r_group, inverse.data() + first, width, panel, x_group);
      for (Index later = row + kPanel; later < n_rows; later += kLanes)
        k.subtract_product(kPanel, r_group((later - row) / kLanes), width, panel, x_group,
                           x.data() + later * kLanes, kLanes, x_group);
    }
    for (Index g = 0; g < width; ++g)
      k.add_squared_norms(n_rows, x.data() + g * x_group, norms.data() + (begin + g) * kLanes);
  });
  std::copy_n(norms.data(), n, out);
}

}  // namespace pydirect
