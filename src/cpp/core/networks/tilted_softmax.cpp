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
// Part of the decrement by which a step may miss Newton's, in the norm of the bound's curvature.
constexpr double kLeft = 1e-8;

// The bound as a function of t, its log Σ exp at a temperature τ; u is the softmax of its exponents over τ.
class TiltedBound {
 public:
  explicit TiltedBound(const OutputGaussian& output) : output_(output) {}

  double temperature = 1.0;

  // Σx
  void times_covariance(const double* x, double* out) const {
    const Index n = output_.n_outputs;
    if (!output_.covariance) {
      for (Index i = 0; i < n; ++i) out[i] = output_.variance[i] * x[i];
      return;
    }
    std::fill_n(out, n, 0.0);
    for (Index k = 0; k < n; ++k)
      for (Index i = 0; i < n; ++i) out[i] += x[k] * output_.covariance[k * n + i];
  }

  double operator()(const double* t, double* u) const {
    const Index n = output_.n_outputs;
    times_covariance(t, u);
    double quadratic = 0.0, highest = -INFINITY, total = 0.0;
    for (Index i = 0; i < n; ++i) {
      quadratic += t[i] * u[i];
      u[i] = output_.mean[i] + 0.5 * output_.variance[i] - u[i];
      highest = std::max(highest, u[i]);
    }
    for (Index i = 0; i < n; ++i) total += u[i] = std::exp((u[i] - highest) / temperature);
    for (Index i = 0; i < n; ++i) u[i] /= total;
    return 0.5 * quadratic + highest + temperature * std::log(total);
  }

 private:
  const OutputGaussian& output_;
};

double product(Index n, const double* x, const double* y) {
  double sum = 0.0;
  for (Index i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// The softmax' Jacobian J = diag u − uuᵀ is BBᵀ with B = diag √u (I − √u√uᵀ).
struct JacobianRoot {
  Index n;
  double* root;  // √u

  void set(const double* u) const {
    for (Index i = 0; i < n; ++i) root[i] = std::sqrt(u[i]);
  }
  void apply(const double* x, double* out) const {  // Bx
    const double along = product(n, root, x);
    for (Index i = 0; i < n; ++i) out[i] = root[i] * (x[i] - root[i] * along);
  }
  void apply_transposed(double* x) const {  // x becomes Bᵀx
    for (Index i = 0; i < n; ++i) x[i] *= root[i];
    const double along = product(n, root, x);
    for (Index i = 0; i < n; ++i) x[i] -= root[i] * along;
  }
};

struct Iterate { double *t, *u, *next, *next_u, *step, *root, *slope, *w, *residual, *direction, *image, *work; };
constexpr Index kVectors = 12;

// Newton's step to the optimum of the bound, (I + JΣ/τ) step = r, r = u − t: step = r − Bw with (τI + BᵀΣB) w = BᵀΣr.
// Conjugate gradients solve for w, in about as many products with Σ as there are classes that compete; wherever they
// stop, the step is one of descent. Its miss is at most |residual|²/τ, and the decrement rᵀΣ step, the decrease that
// the slope promises, falls from step to step. Returns the latter.
double newton_step(const TiltedBound& bound, Index n, const Iterate& m) {
  const JacobianRoot jacobian{n, m.root};
  jacobian.set(m.u);
  double* r = m.next;
  for (Index i = 0; i < n; ++i) r[i] = m.u[i] - m.t[i];
  bound.times_covariance(r, m.slope);
  std::copy_n(m.slope, n, m.residual);
  jacobian.apply_transposed(m.residual);
  std::copy_n(m.residual, n, m.direction);
  std::fill_n(m.w, n, 0.0);
  double size = product(n, m.residual, m.residual), decrement = product(n, r, m.slope);
  for (Index k = 0; k < 2 * n && size > kLeft * bound.temperature * std::max(decrement, 0.0); ++k) {
    jacobian.apply(m.direction, m.work);
    bound.times_covariance(m.work, m.image);
    jacobian.apply_transposed(m.image);
    for (Index i = 0; i < n; ++i) m.image[i] += bound.temperature * m.direction[i];
    const double length = size / product(n, m.direction, m.image);
    for (Index i = 0; i < n; ++i) {
      m.w[i] += length * m.direction[i];
      m.residual[i] -= length * m.image[i];
    }
    decrement -= length * size;
    const double last = std::exchange(size, product(n, m.residual, m.residual));
    for (Index i = 0; i < n; ++i) m.direction[i] = m.residual[i] + size / last * m.direction[i];
  }
  jacobian.apply(m.w, m.step);
  for (Index i = 0; i < n; ++i) m.step[i] = r[i] - m.step[i];
  return product(n, m.slope, m.step);
}

// Moves t to the optimum, to within `rest` of it; leaves u there and returns the value. Steps are held to a sufficient
// decrease while rounding lets it be seen, then to falling decrements, so that there is no cycle.
double minimise(const TiltedBound& bound, Index n, double rest, const Iterate& m) {
  double value = bound(m.t, m.u), last_decrement = INFINITY;
  for (int iteration = 0; iteration < kMostSteps; ++iteration) {
    const double decrement = newton_step(bound, n, m);
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
  memory.resize(size_t(kVectors * n));
  const auto vector = [&](Index i) { return memory.data() + i * n; };
  const Iterate work{vector(0), vector(1), vector(2), vector(3), vector(4),  vector(5),
                     vector(6), vector(7), vector(8), vector(9), vector(10), vector(11)};
  double *const t = work.t, *const u = work.u;
  TiltedBound bound(output);

  // Large variances make corners of the exponents' ties, which Newton's method sees only from close by: the bound is
  // cooled to temperature one, each time to where the exponents are near enough for the next.
  const double widest = *std::max_element(output.variance, output.variance + n);
  if (!std::isfinite(widest)) {  // cooling would not end
    std::fill_n(adjoint.mean, n, 0.0);
    std::fill_n(adjoint.variance, n, 0.0);
    if (output.covariance) std::fill_n(adjoint.covariance, n * n, 0.0);
    return -INFINITY;
  }
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
