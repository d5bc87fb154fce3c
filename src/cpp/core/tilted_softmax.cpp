#include "tilted_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace pydirect::gaussian_network {
namespace {

constexpr int kMostSteps = 50, kMostHalvings = 30;
constexpr double kRest = 1e-13;

// The bound as a function of t; u is the softmax of its exponents.
class TiltedBound {
 public:
  TiltedBound(const OutputGaussian& output, double* product) : output_(output), product_(product) {}

  double covariance(Index i, Index k) const {
    if (i == k) return output_.variance[i];
    return output_.covariance ? output_.covariance[i * output_.n_outputs + k] : 0.0;
  }

  double operator()(const double* t, double* u) const {
    const Index n = output_.n_outputs;
    double quadratic = 0.0, highest = -INFINITY, total = 0.0;
    for (Index i = 0; i < n; ++i) {
      product_[i] = 0.0;
      for (Index k = 0; k < n; ++k) product_[i] += covariance(i, k) * t[k];
      quadratic += t[i] * product_[i];
      u[i] = output_.mean[i] + 0.5 * output_.variance[i] - product_[i];
      highest = std::max(highest, u[i]);
    }
    for (Index i = 0; i < n; ++i) total += u[i] = std::exp(u[i] - highest);
    for (Index i = 0; i < n; ++i) u[i] /= total;
    return 0.5 * quadratic + highest + std::log(total);
  }

 private:
  const OutputGaussian& output_;
  double* product_;
};

// Gaussian elimination with partial pivoting; the matrix (n, n) is destroyed, b becomes the solution.
void solve(Index n, double* matrix, double* b) {
  for (Index j = 0; j < n; ++j) {
    Index pivot = j;
    for (Index i = j + 1; i < n; ++i)
      if (std::fabs(matrix[i * n + j]) > std::fabs(matrix[pivot * n + j])) pivot = i;
    if (pivot != j) {
      std::swap_ranges(matrix + j * n, matrix + (j + 1) * n, matrix + pivot * n);
      std::swap(b[j], b[pivot]);
    }
    for (Index i = j + 1; i < n; ++i) {
      const double ratio = matrix[i * n + j] / matrix[j * n + j];
      for (Index k = j; k < n; ++k) matrix[i * n + k] -= ratio * matrix[j * n + k];
      b[i] -= ratio * b[j];
    }
  }
  for (Index j = n; j-- > 0;) {
    for (Index k = j + 1; k < n; ++k) b[j] -= matrix[j * n + k] * b[k];
    b[j] /= matrix[j * n + j];
  }
}

}  // namespace

double tilted_classification(Index label, const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  const Index n = output.n_outputs;
  thread_local std::vector<double> memory;
  memory.resize(size_t(n * (n + 6)));
  double *t = memory.data(), *u = t + n, *next = u + n, *next_u = next + n, *step = next_u + n, *matrix = step + n;
  const TiltedBound bound(output, matrix + n * n);

  std::fill_n(t, n, 1.0 / double(n));
  double value = bound(t, u);
  for (int iteration = 0; iteration < kMostSteps; ++iteration) {
    // Newton: (I + JΣ) step = u − t, J = diag u − uuᵀ the softmax' Jacobian.
    double furthest = 0.0;
    for (Index i = 0; i < n; ++i) {
      step[i] = u[i] - t[i];
      furthest = std::max(furthest, std::fabs(step[i]));
    }
    if (!(furthest > kRest)) break;
    for (Index k = 0; k < n; ++k) {
      double mean = 0.0;
      for (Index i = 0; i < n; ++i) mean += u[i] * bound.covariance(i, k);
      for (Index i = 0; i < n; ++i) matrix[i * n + k] = (i == k ? 1.0 : 0.0) + u[i] * (bound.covariance(i, k) - mean);
    }
    solve(n, matrix, step);
    double length = 1.0, next_value = value;
    for (int halving = 0; halving < kMostHalvings; ++halving, length *= 0.5) {
      for (Index i = 0; i < n; ++i) next[i] = t[i] + length * step[i];
      next_value = bound(next, next_u);
      if (next_value <= value + kRest * (1.0 + std::fabs(value))) break;
    }
    if (!(next_value <= value + kRest * (1.0 + std::fabs(value)))) break;
    std::copy_n(next, n, t);
    std::copy_n(next_u, n, u);
    value = next_value;
  }

  // t is at its optimum, so that only the direct dependence on the moments counts.
  for (Index k = 0; k < n; ++k) {
    adjoint.mean[k] = factor * ((k == label ? 1.0 : 0.0) - u[k]);
    adjoint.variance[k] = -0.5 * factor * (u[k] - 2.0 * u[k] * t[k] + t[k] * t[k]);
  }
  if (output.covariance)
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < n; ++k)
        if (i != k) adjoint.covariance[i * n + k] = 0.5 * factor * (u[i] * t[k] + t[i] * u[k] - t[i] * t[k]);
  return output.mean[label] - value;
}

}  // namespace pydirect::gaussian_network
