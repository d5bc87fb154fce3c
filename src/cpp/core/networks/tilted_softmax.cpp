#include "tilted_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/arrays.hpp"

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

using Part = Eigen::Map<Vector>;

// The bound as a function of t, its log Σ exp at a temperature τ; u is the softmax of its exponents over τ.
class TiltedBound {
 public:
  explicit TiltedBound(const OutputGaussian& output) : output_(output) {}

  double temperature = 1.0;

  // out = Σx
  void times_covariance(const Part& x, Part& out) const {
    const Index n = output_.n_outputs;
    if (!output_.covariance) {
      out = array(output_.variance, n) * x;
      return;
    }
    out.setZero();
    for (Index k = 0; k < n; ++k) out += x[k] * array(output_.covariance + k * n, n);
  }

  double operator()(const Part& t, Part& u) const {
    const Index n = output_.n_outputs;
    times_covariance(t, u);
    double quadratic = 0.0, highest = -INFINITY, total = 0.0;
    for (Index i = 0; i < n; ++i) {
      quadratic += t[i] * u[i];
      u[i] = output_.mean[i] + 0.5 * output_.variance[i] - u[i];
      highest = std::max(highest, u[i]);
    }
    for (Index i = 0; i < n; ++i) total += u[i] = std::exp((u[i] - highest) / temperature);
    u /= total;
    return 0.5 * quadratic + highest + temperature * std::log(total);
  }

 private:
  const OutputGaussian& output_;
};

// The softmax' Jacobian J = diag u − uuᵀ is BBᵀ with B = diag √u (I − √u√uᵀ).
struct JacobianRoot {
  const Part& root;  // √u

  void apply(const Part& x, Part& out) const { out = root * (x - root * (root * x).sum()); }  // Bx
  void apply_transposed(Part& x) const {  // x becomes Bᵀx
    x *= root;
    x -= root * (root * x).sum();
  }
};

struct Iterate { Part t, u, next, next_u, step, root, slope, w, residual, direction, image, work; };
constexpr Index kVectors = 12;

// Newton's step to the optimum of the bound, (I + JΣ/τ) step = r, r = u − t: step = r − Bw with (τI + BᵀΣB) w = BᵀΣr.
// Conjugate gradients solve for w, in about as many products with Σ as there are classes that compete; wherever they
// stop, the step is one of descent. Its miss is at most |residual|²/τ, and the decrement rᵀΣ step, the decrease that
// the slope promises, falls from step to step. Returns the latter.
double newton_step(const TiltedBound& bound, Iterate& m) {
  const JacobianRoot jacobian{m.root};
  Part& r = m.next;
  m.root = m.u.sqrt();
  r = m.u - m.t;
  bound.times_covariance(r, m.slope);
  m.residual = m.slope;
  jacobian.apply_transposed(m.residual);
  m.direction = m.residual;
  m.w.setZero();
  double size = m.residual.square().sum(), decrement = (r * m.slope).sum();
  for (Index k = 0; k < 2 * r.size() && size > kLeft * bound.temperature * std::max(decrement, 0.0); ++k) {
    jacobian.apply(m.direction, m.work);
    bound.times_covariance(m.work, m.image);
    jacobian.apply_transposed(m.image);
    m.image += bound.temperature * m.direction;
    const double length = size / (m.direction * m.image).sum();
    m.w += length * m.direction;
    m.residual -= length * m.image;
    decrement -= length * size;
    const double last = std::exchange(size, m.residual.square().sum());
    m.direction = m.residual + size / last * m.direction;
  }
  jacobian.apply(m.w, m.step);
  m.step = r - m.step;
  return (m.slope * m.step).sum();
}

// Moves t to the optimum, to within `rest` of it; leaves u there and returns the value. Steps are held to a sufficient
// decrease while rounding lets it be seen, then to falling decrements, so that there is no cycle.
double minimise(const TiltedBound& bound, double rest, Iterate& m) {
  double value = bound(m.t, m.u), last_decrement = INFINITY;
  for (int iteration = 0; iteration < kMostSteps; ++iteration) {
    const double decrement = newton_step(bound, m);
    if (!(decrement > rest)) break;
    const bool visible = decrement > kRounding * (1.0 + std::fabs(value));
    if (!visible && !(decrement < kCooling * last_decrement)) break;
    last_decrement = decrement;
    double length = 1.0, next_value = value;
    for (int halving = 0;; length *= 0.5) {
      m.next = m.t + length * m.step;
      next_value = bound(m.next, m.next_u);
      if (!visible || next_value <= value - kSufficient * length * decrement || ++halving == kMostHalvings) break;
    }
    m.t = m.next;
    m.u = m.next_u;
    value = next_value;
  }
  return value;
}

}  // namespace

double tilted_classification(Index label, const OutputGaussian& output, double factor, const OutputAdjoint& adjoint) {
  const Index n = output.n_outputs;
  thread_local std::vector<double> memory;
  memory.resize(size_t(kVectors * n));
  const auto vector = [&](Index i) { return array(memory.data() + i * n, n); };
  Iterate work{vector(0), vector(1), vector(2), vector(3), vector(4),  vector(5),
                     vector(6), vector(7), vector(8), vector(9), vector(10), vector(11)};
  Part &t = work.t, &u = work.u;
  TiltedBound bound(output);

  // Large variances make corners of the exponents' ties, which Newton's method sees only from close by: the bound is
  // cooled to temperature one, each time to where the exponents are near enough for the next.
  const double widest = array(output.variance, n).maxCoeff();
  if (!std::isfinite(widest)) {  // cooling would not end
    std::fill_n(adjoint.mean, n, 0.0);
    std::fill_n(adjoint.variance, n, 0.0);
    if (output.covariance) std::fill_n(adjoint.covariance, n * n, 0.0);
    return -INFINITY;
  }
  t.setConstant(1.0 / double(n));
  for (bound.temperature = kCooling * kCooling * widest; bound.temperature > 1.0; bound.temperature *= kCooling)
    minimise(bound, 0.01 * bound.temperature * bound.temperature / widest, work);
  bound.temperature = 1.0;
  const double value = minimise(bound, 0.0, work);

  // t is at its optimum, so that only the direct dependence on the moments counts.
  array(adjoint.mean, n) = factor * (0.0 - u);
  adjoint.mean[label] = factor * (1.0 - u[label]);
  array(adjoint.variance, n) = -0.5 * factor * (u - 2.0 * u * t + t.square());
  if (output.covariance)
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < n; ++k)
        if (i != k) adjoint.covariance[i * n + k] = 0.5 * factor * (u[i] * t[k] + t[i] * u[k] - t[i] * t[k]);
  return output.mean[label] - value;
}

}  // namespace pydirect::gaussian_network
