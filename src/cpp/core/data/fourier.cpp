#include "pydirect/data/fourier.hpp"

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kFourierRowsPerChunk = 64;

}  // namespace

template <class T>
void fourier_features(const FourierBlock<T>& rows, int n_threads) {
  for_chunks(rows.n_rows, kFourierRowsPerChunk, n_threads, [&](Index begin, Index end) {
    FourierBlock<T> part = rows;
    part.n_rows = end - begin;
    part.x = rows.x + begin * rows.x_stride;
    part.out = rows.out + begin * rows.out_stride;
    kernels().fourier(part);
  });
}

template void fourier_features(const FourierBlock<double>&, int);
template void fourier_features(const FourierBlock<float>&, int);

}  // namespace pydirect
