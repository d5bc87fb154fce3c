// Rows of a stream one by one: each is predicted, then learned; from a row of X to the posterior without Python.
#pragma once

#include <vector>

#include "pydirect/data/gaussian_process.hpp"
#include "pydirect/data/inputs.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

// From rows of X to Φ = L⁻¹k(x, Z) of landmarks Z, and to a constant.
struct RowMap {
  InputColumns columns;
  double largest_input;
  CrossCovariance kernel;  // of one row; x, x_linear, strips and out are set for each
  double linear_reach;
  int twice_smoothness;
  const double* whitening;  // L⁻¹, (n_functions, n_functions), zero above the diagonal
  double mean_missing;      // residual variance that the noise has already
  double constant;          // value of the constant basis function
  Index n_functions() const { return kernel.n_others; }
};

// What rows change: memory of the caller, and numbers that it takes over in the end.
struct RowState {
  // N(m, S), S = covariance_scale · covariance − Σ s d dᵀ over `n_waiting` rows, times `ratio` by which all have faded
  const double* covariance;  // (n_functions + 1, n_functions + 1)
  double covariance_scale;
  double *directions, *signs, *mean;  // (≥ n_waiting + n_left, n_functions + 1), (≥ n_waiting + n_left,)
  Index n_waiting;
  double noise_variance, prior_variance;
  const double *noise_weights, *noise_factors;  // (n_noises,) of the normals whose mixture the noise is
  Index n_noises;
  // Sums wait for rows of k or Φ, the constant and the target, with weights to be multiplied by `sum_scale`
  double *sum_rows, *sum_weights;  // (≥ n_left, n_functions + 2), (≥ n_left,)
  bool sums_of_kernel;
  double sum_scale;
  // Rows as they came, and the weight of all rows with each
  double *x, *y, *weight, *clock, *n_samples_then;  // (≥ n_left, n_columns), (≥ n_left,)
  const double *lowest, *highest;                   // (n_inputs,) range of the inputs that the map was learned from
  double location, scale;                           // units of y
  double score_kept, calibration_kept, calibration_rows, largest_watched, largest_calibration;  // see `Stream`
  double gross, gross_scales;  // misses, in deviations of a prediction and of all targets, that are not learned here
  double least_faded;
  Index n_left;  // rows that may come
  Index n_rows = 0;
  double ratio = 1.0, faded, n_samples, posterior_samples, n_outside = 0.0, squares = 0.0;
  double calibration_sum, calibration_weight, score_sum, score_weight;
  double calibration() const { return (calibration_rows + calibration_sum) / (calibration_rows + calibration_weight); }
};

struct RowPrediction {
  double mean, deviation, log_density;  // of y
};

class RowStream {
 public:
  RowStream(const RowMap& map, const RowState& state);
  // Of a target, noise included. False if the row holds anything but finite numbers.
  bool predict(const double* x, RowPrediction* out);
  // Predict, then learn. False, and nothing has changed, if the caller has to take the row: it is not of finite numbers
  // and positive weight, the target is gross, or no rows are left.
  bool learn(const double* x, double y, double weight, double decay, double clock, RowPrediction* out);

  RowState state;

 private:
  bool map_row(const double* x);
  bool look_at(const double* x);

  RowMap map_;
  std::vector<double> inputs_, linear_, functions_, phi_, image_, last_, along_;
  double missing_ = 0.0, mean_ = 0.0, latent_ = 0.0;
  bool seen_ = false;
};

}  // namespace pydirect
