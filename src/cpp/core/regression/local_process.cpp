#include "pydirect/regression/local_process.hpp"

#include <algorithm>
#include <cmath>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kNeighbourhoodsPerChunk = 16;

// In place, rows of k + 1 − j entries from the diagonal on. K has no negative direction: only rounding can bring a pivot
// below its own noise.
void factorise(Index k, const Vector& noise, double* rows) {
  for (Index j = 0; j < k; ++j) {
    const Index n = k + 1 - j;
    auto own = array(rows, n);
    own[0] = std::sqrt(std::max(own[0], noise[j]));
    own.tail(n - 1) /= own[0];
    rows += n;
    for (Index i = 1, below = 0; i < n - 1; below += n - i++)
      array(rows + below, n - i) -= own[i] * own.tail(n - i);
  }
}

}  // namespace

void neighbour_distances(const Neighbourhoods& n, double* out, int n_threads) {
  for_chunks(n.n_rows, kNeighbourhoodsPerChunk, n_threads, [&](Index begin, Index end) {
    // Points side by side, so that sums over columns run along many pairs at a time.
    Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> u(n.n_columns, n.k + 1);
    for (Index row = begin; row < end; ++row) {
      const auto point = [&](const float* p) { return array(p, n.n_columns).cast<double>(); };
      for (Index i = 0; i < n.k; ++i) u.col(i) = point(n.points + n.chosen[row * n.k + i] * n.n_columns);
      u.col(n.k) = point(n.rows + row * n.n_columns);
      double* squared = out + row * n_distances(n.k);
      for (Index j = 0; j < n.k; squared += n.k - j++) {
        auto own = array(squared, n.k - j);
        own.setZero();
        for (Index c = 0; c < n.n_columns; ++c) own += (u.row(c).tail(n.k - j).transpose() - u(c, j)).square();
      }
    }
  });
}

void neighbour_factors(Index n_rows, Index k, const double* distances, const float* weight, double rho, double eta,
                       double* out, int n_threads) {
  const Index size = n_distances(k);
  for_chunks(n_rows, kNeighbourhoodsPerChunk, n_threads, [&](Index begin, Index end) {
    Vector scaled(size), correlation(size), noise(k);
    for (Index row = begin; row < end; ++row) {
      // (1 + s) exp(−s), s = √3 ‖u − u'‖/ρ
      scaled = -std::sqrt(3.0) / rho * array(distances + row * size, size).sqrt();
      kernels().dense.exp(size, scaled.data(), correlation.data());
      correlation *= 1.0 - scaled;
      noise = eta / array(weight + row * k, k).cast<double>();
      double *factor = out + row * n_factor_entries(k), *entry = factor;
      const double* above = correlation.data();
      for (Index j = 0; j < k; above += k - j++) {
        *entry++ = 1.0 + noise[j];
        entry = std::copy_n(above, k - j, entry);
      }
      factorise(k, noise, factor);
    }
  });
}

void krige(Index n_rows, Index k, const double* factors, const float* residuals, const KrigingMoments& out,
           int n_threads) {
  for_chunks(n_rows, kNeighbourhoodsPerChunk, n_threads, [&](Index begin, Index end) {
    Vector z(k);
    for (Index row = begin; row < end; ++row) {
      const double* factor = factors + row * n_factor_entries(k);
      double mean = 0.0, explained = 0.0, scatter = 0.0;
      z = array(residuals + row * k, k).cast<double>();
      for (Index j = 0, n = k; j < k; ++j, --n) {
        const double l = factor[n], solved = z[j] / factor[0];
        z.tail(n - 1) -= solved * array(factor + 1, n - 1);
        mean += l * solved;
        explained += l * l;
        scatter += solved * solved;
        factor += n + 1;
      }
      out.mean[row] = mean;
      out.left[row] = std::max(1.0 - explained, 0.0);
      out.scatter[row] = scatter / double(k);
    }
  });
}

}  // namespace pydirect
