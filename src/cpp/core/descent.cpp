#include "pydirect/descent.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/arrays.hpp"

namespace pydirect {
namespace {

constexpr std::size_t kSteps = 20;  // that are remembered
constexpr int kTrials = 20;         // of a line search at most
// Shares of the slope: that must be gained, and that may be left.
constexpr double kGain = 1e-3, kLeft = 0.9;
// Length of a first step in units of the scale: the whole of it led to the valleys of other starts.
constexpr double kFirst = 1.0;
// While a line search goes on outward, and how near to its ends it looks inside.
constexpr double kFarther = 4.0, kNearEnd = 0.1;
// Relative to the value, what is rounding; of the lengths of both, what makes a step one of curvature; least scale.
constexpr double kRounding = 1e-7, kCurved = 1e-10, kLeastShare = 1e-4;

struct Point {
  double at, value, slope;
};

// Minimum of the cubic polynomial through two points, not close to either.
double between(const Point& low, const Point& high) {
  const double width = high.at - low.at;
  const double mean = low.slope + high.slope - 3.0 * (high.value - low.value) / width;
  const double root = std::sqrt(std::max(mean * mean - low.slope * high.slope, 0.0));
  const double at = high.at - width * (high.slope + root - mean) / (high.slope - low.slope + 2.0 * root);
  return std::isfinite(at) ? std::clamp(at, low.at + kNearEnd * width, high.at - kNearEnd * width)
                           : low.at + 0.5 * width;
}

double inner(const Descent::Numbers& a, const Descent::Numbers& b) { return (array(a) * array(b)).sum(); }

}  // namespace

Descent::Descent(Numbers x, Numbers lower, Numbers upper, Numbers scale)
    : x_(std::move(x)), lower_(std::move(lower)), upper_(std::move(upper)), square_(std::move(scale)),
      gradient_(x_.size()) {
  array(square_) = array(square_).square();
  for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = std::clamp(x_[i], lower_[i], upper_[i]);
}

void Descent::remember(Numbers x, Numbers gradient) {
  const double product = inner(x, gradient);
  const double lengths = (array(x).square() / array(square_)).sum() * (array(gradient).square() * array(square_)).sum();
  if (!(product > kCurved * std::sqrt(lengths))) return;
  if (steps_.size() == kSteps) steps_.erase(steps_.begin());
  steps_.push_back({std::move(x), std::move(gradient), 1.0 / product});
}

double Descent::evaluate(const Objective& objective, const Numbers& x, Numbers& gradient) {
  ++n_evaluations_;
  return objective(x, gradient);
}

Descent::Numbers Descent::newton(Numbers vector, std::size_t n_steps, double factor) const {
  std::vector<double> along(n_steps);
  for (std::size_t k = n_steps; k-- > 0;) {
    const Step& step = steps_[k];
    along[k] = step.inverse * inner(step.x, vector);
    array(vector) -= along[k] * array(step.gradient);
  }
  array(vector) *= factor * array(square_);
  for (std::size_t k = 0; k < n_steps; ++k) {
    const Step& step = steps_[k];
    array(vector) += (along[k] - step.inverse * inner(step.gradient, vector)) * array(step.x);
  }
  return vector;
}

Descent::Numbers Descent::learned_scale() const {
  // H ← (1 − ρ s yᵀ) H (1 − ρ y sᵀ) + ρ s sᵀ, of which the diagonal needs H y alone.
  Vector diagonal = array(square_);
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    const Step& step = steps_[k];
    const Numbers image = newton(step.gradient, k, 1.0);
    const double square = step.inverse * (1.0 + step.inverse * inner(step.gradient, image));
    diagonal += array(step.x) * (square * array(step.x) - 2.0 * step.inverse * array(image));
  }
  Numbers out(square_.size());
  array(out) = diagonal.max(kLeastShare * array(square_)).sqrt();
  return out;
}

bool Descent::iterate(const Objective& objective) {
  if (!is_evaluated_) value_ = evaluate(objective, x_, gradient_);
  is_evaluated_ = true;
  const std::size_t n = x_.size();
  Numbers pull(n), direction(n), x(n), gradient(n);
  const auto rests = [&](std::size_t i) {
    return (x_[i] <= lower_[i] && gradient_[i] > 0.0) || (x_[i] >= upper_[i] && gradient_[i] < 0.0);
  };
  for (std::size_t i = 0; i < n; ++i) pull[i] = rests(i) ? 0.0 : gradient_[i];
  const auto set_direction = [&] {
    double factor = 1.0;
    if (!steps_.empty()) {
      const Step& last = steps_.back();
      factor = 1.0 / (last.inverse * (array(last.gradient).square() * array(square_)).sum());
    }
    direction = newton(pull, steps_.size(), factor);
    for (std::size_t i = 0; i < n; ++i) direction[i] = rests(i) ? 0.0 : -direction[i];
    return inner(direction, gradient_);
  };
  double slope = set_direction();
  if (!(slope < 0.0)) {
    steps_.clear();
    slope = set_direction();
  }
  if (!(slope < 0.0)) return false;
  double length = steps_.empty() ? kFirst / std::sqrt((array(direction).square() / array(square_)).sum()) : 1.0;
  Point low{0.0, value_, slope}, high{INFINITY, 0.0, 0.0}, found = low;
  Numbers best_x, best_gradient;
  for (int trial = 0; trial < kTrials; ++trial) {
    for (std::size_t i = 0; i < n; ++i) x[i] = std::clamp(x_[i] + length * direction[i], lower_[i], upper_[i]);
    Point here{length, evaluate(objective, x, gradient), 0.0};
    double gained = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      gained += gradient_[i] * (x[i] - x_[i]);
      if (x[i] > lower_[i] && x[i] < upper_[i]) here.slope += gradient[i] * direction[i];
    }
    if (here.value <= value_ + kGain * gained) {
      found = low = here;
      best_x = x;
      best_gradient = gradient;
      if (here.slope >= kLeft * slope) break;
    } else {
      high = here;
    }
    length = std::isfinite(high.at) ? between(low, high) : kFarther * length;
  }
  if (found.at == 0.0) return false;
  array(x) = array(best_x) - array(x_);
  array(gradient) = array(best_gradient) - array(gradient_);
  remember(x, gradient);
  const double fallen = value_ - found.value, size = std::max({std::abs(value_), std::abs(found.value), 1.0});
  x_ = std::move(best_x);
  gradient_ = std::move(best_gradient);
  value_ = found.value;
  return fallen > kRounding * size;
}

}  // namespace pydirect
