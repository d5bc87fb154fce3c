// What a linear last layer needs of its weights' draws under a Gaussian likelihood: mean ξ and mean ξ ξᵀ.
#include "draw_loop.hpp"

namespace pydirect {

void mean_products(const BaseDraws& d, double* mean, double* products, int n_threads) {
  constexpr Index kRows = 4;
  const Index h = d.n_weights;
  std::vector<double> draws(kDrawRows * h);
  auto product = matrix(products, h, h);
  array(mean, h).setZero();
  product.setZero();
  for (Index first = 0; first < d.n_draws; first += kDrawRows) {
    BaseDraws block = d;
    block.first_draw = first;
    block.n_draws = std::min(kDrawRows, d.n_draws - first);
    base_draws(block, draws.data(), n_threads);
    for_chunks(h, kRows, n_threads, [&](Index begin, Index end) {
      for (Index i = 0; i < block.n_draws; ++i) {
        const auto xi = array(draws.data() + i * h, h);
        for (Index j = begin; j < end; ++j) product.row(j) += xi[j] * xi.transpose();
      }
    });
    for (Index i = 0; i < block.n_draws; ++i) kernels().rows<double>().add(h, draws.data() + i * h, mean);
  }
  const double each = 1.0 / double(d.n_draws);
  array(mean, h) *= each;
  product *= each;
}

}  // namespace pydirect
