// What a linear last layer needs of its weights' draws under a Gaussian likelihood: mean ξ and mean ξ ξᵀ.
#include "draw_loop.hpp"

namespace pydirect {

void mean_products(const BaseDraws& d, double* mean, double* products, int n_threads) {
  constexpr Index kRows = 4;
  const Index h = d.n_weights;
  std::vector<double> draws(kDrawRows * h);
  std::fill_n(mean, h, 0.0);
  std::fill_n(products, h * h, 0.0);
  for (Index first = 0; first < d.n_draws; first += kDrawRows) {
    BaseDraws block = d;
    block.first_draw = first;
    block.n_draws = std::min(kDrawRows, d.n_draws - first);
    base_draws(block, draws.data(), n_threads);
    for_chunks(h, kRows, n_threads, [&](Index begin, Index end) {
      for (Index i = 0; i < block.n_draws; ++i) {
        const double* xi = draws.data() + i * h;
        for (Index j = begin; j < end; ++j)
          for (Index l = 0; l < h; ++l) products[j * h + l] += xi[j] * xi[l];
      }
    });
    for (Index i = 0; i < block.n_draws; ++i) kernels().rows<double>().add(h, draws.data() + i * h, mean);
  }
  const double each = 1.0 / double(d.n_draws);
  for (Index j = 0; j < h; ++j) mean[j] *= each;
  for (Index j = 0; j < h * h; ++j) products[j] *= each;
}

}  // namespace pydirect
