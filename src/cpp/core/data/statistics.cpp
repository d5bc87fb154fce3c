#include "pydirect/data/statistics.hpp"

#include <algorithm>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kRowsPerChunk = 64;

}  // namespace

template <class T>
void add_upper_triangle(Index n, const T* block, double* total, int n_threads) {
  for_chunks(n, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) kernels().rows<T>().add(n - i, block + i * n + i, total + i * n + i);
  });
}

template <class T>
void merge_upper_triangle(Index n, const T* block, double factor, const double* shift, double* total, int n_threads) {
  for_chunks(n, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      kernels().rows<T>().add_shifted(n - i, block + i * n + i, factor * shift[i], shift + i, total + i * n + i);
  });
}

void mirror_upper_triangle(Index n, double* matrix, int n_threads) {
  constexpr Index tile = 32;  // both tiles stay in the first-level cache
  for_chunks(n, tile, n_threads, [&](Index begin, Index end) {
    for (Index first = 0; first < end; first += tile)
      for (Index i = begin; i < end; ++i)
        for (Index k = first; k < std::min(first + tile, i); ++k) matrix[i * n + k] = matrix[k * n + i];
  });
}

template <class T>
void add_transposed_product(Index n_rows, Index n_columns, const T* rows, const double* y, double* out) {
  kernels().rows<T>().add_transposed(n_rows, n_columns, rows, n_columns, y, out);
}

void row_moments(Index n_rows, Index n_columns, const double* rows, const double* weight, const double* spread,
                 double* mean, double* variance, int n_threads) {
  for_chunks(n_rows, kRowsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().dense.row_moments(end - begin, n_columns, rows + begin * n_columns, n_columns, weight, spread,
                                mean + begin, variance + begin);
  });
}

template void add_upper_triangle(Index, const float*, double*, int);
template void add_upper_triangle(Index, const double*, double*, int);
template void merge_upper_triangle(Index, const float*, double, const double*, double*, int);
template void merge_upper_triangle(Index, const double*, double, const double*, double*, int);
template void add_transposed_product(Index, Index, const float*, const double*, double*);
template void add_transposed_product(Index, Index, const double*, const double*, double*);

}  // namespace pydirect
