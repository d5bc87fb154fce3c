// Forward selection: a Cholesky factorisation of A + ridge grows row by row. What the projection on the chosen columns
// leaves of A's diagonal, of the pairs' products and of c gives the fall of every other column in closed form.
#include "pydirect/selection.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/arrays.hpp"

namespace pydirect {
namespace {

constexpr double kSmallestPivot = 1e-12, kSmallestDeterminant = 1e-9;  // relative

class Residuals {
 public:
  explicit Residuals(const Selection& s)
      : s_(s),
        diagonal_(matrix(s.a, s.n_columns, s.n_columns).matrix().diagonal().array() + s.ridge),
        left_(diagonal_),
        product_(matrix(s.a, s.n_columns, s.n_columns).block(0, s.n_pairs, s.n_pairs, s.n_pairs).matrix().diagonal()),
        residual_(matrix(s.c, s.n_columns, s.n_outputs).matrix()) {}

  void take(Index j) {
    Vector row = array(s_.a + j * s_.n_columns, s_.n_columns);
    for (const Vector& other : rows_) row -= other[j] * other;
    row[j] += s_.ridge;
    row /= std::sqrt(std::max(row[j], kSmallestPivot * diagonal_[j]));
    const Eigen::RowVectorXd step = residual_.row(j) / row[j];
    residual_ -= row.matrix() * step;
    left_ = (left_ - row.square()).max(kSmallestPivot * diagonal_);
    product_ -= row.head(s_.n_pairs) * row.segment(s_.n_pairs, s_.n_pairs);
    rows_.push_back(std::move(row));
  }

  // Fall of the error by each pair, then by each single column.
  Vector falls() const {
    const Index m = s_.n_pairs, n_single = s_.n_columns - 1 - 2 * m;
    const Vector squares = residual_.rowwise().squaredNorm();
    const Vector both = residual_.topRows(m).cwiseProduct(residual_.middleRows(m, m)).rowwise().sum();
    const Vector g = left_.head(m), h = left_.segment(m, m);
    const Vector determinant = (g * h - product_.square()).max(kSmallestDeterminant * g * h);
    Vector out(m + n_single);
    out.head(m) = (h * squares.head(m) + g * squares.segment(m, m) - 2.0 * product_ * both) / determinant;
    out.tail(n_single) = squares.segment(2 * m, n_single) / left_.segment(2 * m, n_single);
    return out;
  }

 private:
  const Selection& s_;
  const Vector diagonal_;
  Vector left_, product_;
  Eigen::MatrixXd residual_;
  std::vector<Vector> rows_;
};

}  // namespace

std::vector<std::int64_t> select_columns(const Selection& s, Index most) {
  Residuals residuals(s);
  residuals.take(s.n_columns - 1);
  std::vector<std::int64_t> taken;
  bool has_pair = false;
  while (Index(taken.size()) < most || !has_pair) {
    const Vector falls = residuals.falls();
    Vector gain = (falls - s.least) / s.single_cost;
    gain.head(s.n_pairs) = (falls.head(s.n_pairs) - 2.0 * s.least) / s.pair_cost;
    for (const std::int64_t k : taken) gain[k] = -std::numeric_limits<double>::infinity();
    Index best;
    if (Index(taken.size()) >= most || !(gain.maxCoeff(&best) > 0)) {
      if (has_pair) break;
      falls.head(s.n_pairs).maxCoeff(&best);
    }
    taken.push_back(best);
    has_pair = has_pair || best < s.n_pairs;
    if (best < s.n_pairs) residuals.take(best);
    residuals.take(s.n_pairs + best);
  }
  return taken;
}

}  // namespace pydirect
