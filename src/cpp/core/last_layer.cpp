// What a linear last layer needs of its weights' draws under a Gaussian likelihood: mean ξ and mean ξ ξᵀ.
#include "base_draws.hpp"

namespace pydirect {

void mean_products(const BaseDraws& d, double* mean, double* products, int n_threads) {
  const Index h = d.n_weights;
  std::vector<double> draws(d.n_draws * d.n_columns());
  base_draws(d, draws.data(), n_threads);
  const double each = 1.0 / double(d.n_draws);
  if (d.n_columns() == 1) {
    double sum = 0.0, squares = 0.0;
    for (const double xi : draws) {
      sum += xi;
      squares += xi * xi;
    }
    std::fill_n(mean, h, sum * each);
    std::fill_n(products, h * h, squares * each);
    return;
  }
  constexpr Index kRows = 4;
  for_chunks(h, kRows, n_threads, [&](Index begin, Index end) {
    std::fill(products + begin * h, products + end * h, 0.0);
    for (Index i = 0; i < d.n_draws; ++i) {
      const double* xi = draws.data() + i * h;
      for (Index j = begin; j < end; ++j)
        for (Index l = 0; l < h; ++l) products[j * h + l] += xi[j] * xi[l];
    }
    for (Index j = begin * h; j < end * h; ++j) products[j] *= each;
  });
  std::fill_n(mean, h, 0.0);
  for (Index i = 0; i < d.n_draws; ++i) kernels().add_double(h, draws.data() + i * h, mean);
  for (Index j = 0; j < h; ++j) mean[j] *= each;
}

}  // namespace pydirect
