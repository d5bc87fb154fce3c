// The marginal likelihood of a kernel on fixed rows, as minimisers take it.
#pragma once

#include <algorithm>
#include <memory>

#include "arrays.hpp"
#include "pydirect/data/gaussian_process.hpp"

namespace pydirect {

inline void require_smoothness(int twice_smoothness) {
  if (twice_smoothness != 0 && twice_smoothness != 1 && twice_smoothness != 3 && twice_smoothness != 5)
    throw std::invalid_argument("twice_smoothness must be 0, 1, 3 or 5");
}

// Rows whose marginal likelihood is evaluated again and again, in memory of their own.
class Evidence {
 public:
  Evidence(Array<double> x, Array<double> y, Array<double> weight, Array<double> distances, Array<double> linear,
           Array<std::int64_t> tied, Index n_linear, Array<double> mean, Array<double> sd, Array<double> axes,
           bool of_pairs, int twice_smoothness, double slope, double rest, int n_threads)
      : held_{x, y, weight, distances, linear, tied, mean, sd, axes}, n_threads_(n_threads) {
    if (x.ndim() != 2 || y.ndim() != 2 || distances.ndim() != 2 || axes.ndim() != 2)
      throw std::invalid_argument("x, y, distances and axes must have two dimensions");
    const Index n = x.shape(0), n_inputs = x.shape(1), stride = distances.shape(1), n_axes = axes.shape(0);
    if (stride % kLevelPadding != 0 || stride < n) throw std::invalid_argument("distances must have padded rows");
    if (n < 1 || y.shape(1) < 1) throw std::invalid_argument("x and y must not be empty");
    require_shape(y, "y", {n, Index(y.shape(1))});
    require_shape(weight, "weight", {n});
    require_shape(distances, "distances", {n, stride});
    require_shape(linear, "linear", {n, stride});
    require_shape(tied, "tied", {n_inputs});
    if (n_axes > 0) require_shape(axes, "axes", {n_axes, stride});
    const Index n_scales = mean.size() - 4 - std::max<Index>(1, n_axes);
    for (Index j = 0; j < n_inputs; ++j)
      if (tied.data()[j] < 0 || tied.data()[j] >= n_scales) throw std::invalid_argument("tied must be length-scales");
    require_shape(mean, "mean", {Index(mean.size())});
    require_shape(sd, "sd", {Index(mean.size())});
    require_smoothness(twice_smoothness);
    own_.rows = {n, stride, n_inputs, Index(y.shape(1)), x.data(), y.data(), nullptr, distances.data(), linear.data(),
                 nullptr, 0.0, 0.0, 0.0, 0.0, twice_smoothness, nullptr, axes.data(), n_axes, of_pairs};
    own_.tied = tied.data(), own_.weight = weight.data(), own_.mean = mean.data(), own_.sd = sd.data();
    own_.n_scales = n_scales, own_.n_linear = n_linear, own_.slope = slope, own_.rest = rest;
  }

  const KernelPosterior& posterior() const { return own_; }

  double operator()(const double* theta, double* gradient) {
    if (!work_) work_.reset(new double[4 * own_.rows.n * own_.rows.stride]);
    return own_(theta, gradient, work_.get(), n_threads_);
  }

 private:
  std::vector<py::array> held_;
  KernelPosterior own_{};
  int n_threads_;
  std::unique_ptr<double[]> work_;
};

}  // namespace pydirect
