// Problems of kernels and solvers from their arrays.
#pragma once

#include <optional>

#include "arrays.hpp"
#include "pydirect/regression/mean_field.hpp"

namespace pydirect {

// Tables of levels and log priors, (n_weights or 1, n_levels).
inline TiltFamily tilt_family(const Array<double>& levels, const Array<double>& log_prior, Index n_weights) {
  const Index m = levels.shape(1);
  const bool same_levels = levels.shape(0) == 1, same_prior = log_prior.shape(0) == 1;
  if (m < 1 || m % kLevelPadding != 0) throw std::invalid_argument("levels must be padded");
  require_shape(levels, "levels", {same_levels ? 1 : n_weights, m});
  require_shape(log_prior, "log_prior", {same_prior ? 1 : n_weights, m});
  return {m, levels.data(), same_levels ? 0 : m, log_prior.data(), same_prior ? 0 : m};
}

// Points into the arrays, which the caller keeps alive.
inline MeanFieldProblem mean_field_problem(const Array<float>& a, const double* a_exact,
                                           const Array<double>& diagonal, const Array<double>& c, double yty,
                                           double n_samples, const TiltFamily& family,
                                           const Array<double>& prior_precision, const Array<double>& noise_levels,
                                           const Array<double>& noise_log_prior) {
  const Index b = c.shape(0);
  if (b < 1) throw std::invalid_argument("there must be weights");
  require_shape(a, "a", {b, b});
  require_shape(diagonal, "diagonal", {b});
  require_shape(prior_precision, "prior_precision", {b});
  require_shape(noise_log_prior, "noise_log_prior", {noise_levels.shape(0)});
  return {b,         a.data(), a_exact, diagonal.data(),        c.data(),              yty,
          n_samples, family,   prior_precision.data(), noise_levels.shape(0), noise_levels.data(),
          noise_log_prior.data()};
}

template <class Solve>
py::tuple run(const Solve& solve) {
  const Progress p = without_gil(solve);
  return py::make_tuple(p.n_iterations, p.converged, copy(p.trace));
}

}  // namespace pydirect
