// Minimisation of smooth functions between bounds.
#pragma once

#include <functional>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// L-BFGS (Nocedal & Wright 2006, chapter 7), one iteration at a time. Parameters at a bound that they are pushed
// against rest; steps that lead outside end at the bounds. Equal values lead to equal steps on every machine.
class Descent {
 public:
  using Numbers = std::vector<double>;
  // Writes the gradient, (n,), and returns the value.
  using Objective = std::function<double(const Numbers& x, Numbers& gradient)>;
  // How far an iteration moved x and the gradient, each (n,), and the inverse of their inner product.
  struct Step {
    Numbers x, gradient;
    double inverse;
  };

  // scale (n,): roots of a first guess of the inverse curvature.
  Descent(Numbers x, Numbers lower, Numbers upper, Numbers scale);

  // Remembers a step, of this function or one of about the same curvature, unless it is not convex along it.
  void remember(Numbers x, Numbers gradient);
  // Returns whether x has moved and the value has become less by more than rounding.
  bool iterate(const Objective& objective);
  // Of a function that is no longer the same, so far.
  void forget_value() { is_evaluated_ = false; }
  // Roots of the diagonal of the inverse curvature, as far as steps tell, (n,).
  Numbers learned_scale() const;

  const Numbers& x() const { return x_; }
  double value() const { return value_; }
  Index n_evaluations() const { return n_evaluations_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  double evaluate(const Objective& objective, const Numbers& x, Numbers& gradient);
  // The inverse curvature that the first steps tell of, starting from factor · scale², times a vector.
  Numbers newton(Numbers vector, std::size_t n_steps, double factor) const;

  Numbers x_, lower_, upper_, square_, gradient_;
  std::vector<Step> steps_;
  double value_ = 0.0;
  Index n_evaluations_ = 0;
  bool is_evaluated_ = false;
};

}  // namespace pydirect
