#include "pydirect/data/inputs.hpp"

#include <algorithm>
#include <cmath>

namespace pydirect {
namespace {

// As NumPy's interp: from the knot below, or from the one above where differences overflow.
double interpolated(Index n, const double* knots, const double* scores, double x) {
  if (std::isnan(x)) return x;
  if (x <= knots[0]) return scores[0];
  if (x >= knots[n - 1]) return scores[n - 1];
  const Index j = std::upper_bound(knots, knots + n, x) - knots - 1;
  if (x == knots[j]) return scores[j];
  const double slope = (scores[j + 1] - scores[j]) / (knots[j + 1] - knots[j]);
  const double y = slope * (x - knots[j]) + scores[j];
  return std::isnan(y) ? slope * (x - knots[j + 1]) + scores[j + 1] : y;
}

}  // namespace

void map_inputs(const InputColumns& c, Index n_rows, const double* x, double* out) {
  for (Index i = 0; i < n_rows; ++i, x += c.n_columns, out += c.n_kept + c.n_scored) {
    for (Index k = 0; k < c.n_kept; ++k) {
      const std::int64_t j = c.kept[k];
      out[k] = std::clamp((x[j] - c.mean[j]) / c.scale[j], -c.largest, c.largest);
    }
    for (Index k = 0; k < c.n_scored; ++k)
      out[c.n_kept + k] = interpolated(c.n_knots, c.knots + k * c.n_knots, c.scores + k * c.n_knots, x[c.scored[k]]);
  }
}

}  // namespace pydirect
