#include "tilted_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace pydirect::gaussian_network {
namespace {

constexpr int kMostSteps = 50, kMostHalvings = 30;
// A decrease below this fraction of the value cannot be told from rounding.
constexpr double kRounding = 1e-13;
// Armijo's fraction of the decrease that the slope promises.
constexpr double kSufficient = 0.1;
constexpr double kCooling = 0.25;

// The bound as a function of t, its log Σ exp at a temperature τ; u is the softmax of its exponents over τ.
class TiltedBound {
 public:
  TiltedBound(const OutputGaussian& output, double* product) : output_(output), product_(product) {}

  double temperature = 1.0;

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
    for (Index i = 0; i < n; ++i) total += u[i] = std::exp((u[i] - highest) / temperature);
    for (Index i = 0; i < n; ++i) u[i] /= total;
    return 0.5 * quadratic + highest + temperature * std::log(total);
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

// Newton's step to the optimum of the bound, (I + JΣ/τ) step = u − t with J = diag u − uuᵀ, the softmax' Jacobian.
// Returns the step's decrement (u − t)ᵀ Σ step, the decrease that the slope promises.
double newton_step(const TiltedBound& bound, Index n, const double* t, const double* u, double* matrix, double* step) {
  for (Index k = 0; k < n; ++k) {
    step[k] = u[k] - t[k];
    double mean = 0.0;
    for (Index i = 0; i < n; ++i) mean += u[i] * bound.covariance(i, k);
    for (Index i = 0; i < n; ++i)
      matrix[i * n + k] = (i == k ? 1.0 : 0.0) + u[i] * (bound.covariance(i, k) - mean) / bound.temperature;
  }
  solve(n, matrix, step);
  double decrement = 0.0;
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < n; ++k) decrement += (u[i] - t[i]) * bound.covariance(i, k) * step[k];
  return decrement;
}

struct Iterate { double *t, *u, *next, *next_u, *step, *matrix; };

// Moves t to the optimum, to within `rest` of it; leaves u there and returns the value. Steps are held to a sufficient
// decrease while rounding lets it be seen, then to falling decrements, so that there is no cycle.
double minimise(const TiltedBound& bound, Index n, double rest, const Iterate& m) {
  double value = bound(m.t, m.u), last_decrement = INFINITY;
  for (int iteration = 0; iteration < kMostSteps; ++iteration) {
    const double decrement = newton_step(bound, n, m.t, m.u, m.matrix, m.step);
    if (!(decrement > rest)) break;
    const bool visible = decrement > kRounding * (1.0 + std::fabs(value));
    if (!visible && !(decrement < kCooling * last_decrement)) break;
    last_decrement = decrement;
    double length = 1.0, next_value = value;
    for (int halving = 0;; length *= 0.5) {
      for (Index i = 0; i < n; ++i) m.next[i] = m.t[i] + length * m.step[i];
      next_value = bound(m.next, m.next_u);
      if (!visible || next_value <= value - kSufficient * length * decrement || ++halving == kMostHalvings) break;
    }
    std::copy_n(m.next, n, m.t);
    std::copy_n(m.next_u, n, m.u);
    value = next_value;
  }
  return value;
}

}  // namespace

double tilted_classification(Index label, const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  const Index n = output.n_outputs;
  thread_local std::vector<double> memory;
  memory.resize(size_t(n * (n + 6)));
  double *t = memory.data(), *u = t + n, *matrix = u + 4 * n;
  TiltedBound bound(output, matrix + n * n);
  const Iterate work{t, u, u + n, u + 2 * n, u + 3 * n, matrix};

  // Large variances make corners of the exponents' ties, which Newton's method sees only from close by: the bound is
  // cooled to temperature one, each time to where the exponents are near enough for the next.
  const double widest = *std::max_element(output.variance, output.variance + n);
  std::fill_n(t, n, 1.0 / double(n));
  for (bound.temperature = kCooling * kCooling * widest; bound.temperature > 1.0; bound.temperature *= kCooling)
    minimise(bound, n, 0.01 * bound.temperature * bound.temperature / widest, work);
  bound.temperature = 1.0;
  const double value = minimise(bound, n, 0.0, work);

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
