// Standardised columns of X and their normal scores.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

struct InputColumns {
  Index n_columns, n_kept, n_scored, n_knots;
  const std::int64_t* kept;    // (n_kept,) columns of X that come out standardised, within ±largest
  const double *mean, *scale;  // (n_columns,)
  double largest;
  const std::int64_t* scored;  // (n_scored,) columns whose scores follow
  const double *knots, *scores;  // (n_scored, n_knots), knots ascending
};

// out (n_rows, n_kept + n_scored) from x (n_rows, n_columns). Scores are interpolated between knots and constant beyond.
void map_inputs(const InputColumns& columns, Index n_rows, const double* x, double* out);

}  // namespace pydirect
