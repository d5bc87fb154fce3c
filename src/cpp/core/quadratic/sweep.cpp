// Exact coordinate ascent for one hidden layer. R is a polynomial of the fourth degree in a hidden weight and of the
// second in an output weight; a visit to a weight costs one pass over a column of the data.
#include <stdexcept>

#include "blocks.hpp"

namespace pydirect {
namespace {

using quadratic::Buffer;
using Part = Eigen::Map<Vector>;

struct Cumulants {
  double k[4];
};

class CoordinateAscent {
 public:
  CoordinateAscent(const NetworkShape& shape, const NetworkData& data, const TiltFamily& family, double tau,
                   double* q)
      : inputs_(shape.fan_in(0)),
        units_(shape.hidden[0]),
        bias_(shape.bias),
        rows_(padded(data.n_rows)),
        family_(family),
        tau_(tau),
        q_(q),
        columns_(inputs_ * rows_),
        y_(rows_),
        weight_(rows_),
        mean_(rows_),
        residual_(rows_),
        squares_(units_ * rows_),
        fourth_(units_),
        variance_(units_),
        unit_(4 * rows_),
        logits_(family.n_levels) {
    for (Index l = 0; l < data.n_rows; ++l) {
      for (Index i = 0; i < shape.n_inputs; ++i) columns_[i * rows_ + l] = data.x[l * shape.n_inputs + i];
      if (bias_) columns_[(inputs_ - 1) * rows_ + l] = 1.0;
      y_[l] = data.y[l];
      weight_[l] = data.weight ? data.weight[l] : 1.0;
      weight_sum_ += weight_[l];
    }
  }

  double sweep() {
    for (Index k = 0; k < units_; ++k) {
      collect(k);
      add_output(moments_of(output(k)).k[0], squares(k));
    }
    if (bias_) shift(moments_of(output(units_)).k[0]);
    for (Index k = 0; k < units_; ++k) visit_unit(k);
    for (Index k = 0; k < units_; ++k) visit_output(k);
    if (bias_) visit_bias();
    return squared_error();
  }

 private:
  Index hidden(Index k, Index i) const { return k * inputs_ + i; }
  Index output(Index k) const { return units_ * inputs_ + k; }
  Part squares(Index k) { return array(squares_.data() + k * rows_, rows_); }
  Part cumulant(Index r) { return array(unit_.data() + (r - 1) * rows_, rows_); }
  Eigen::Map<const Vector> levels(Index weight) const {
    return array(family_.levels + weight * family_.level_stride, family_.n_levels);
  }
  const double* column(Index i) const { return columns_.data() + i * rows_; }
  UnitCumulants unit() {
    double* k = unit_.data();
    return {rows_, {k, k + rows_, k + 2 * rows_, k + 3 * rows_}};
  }

  // Mean, variance, third and fourth cumulant of a weight under q.
  Cumulants moments_of(Index weight) const {
    const Eigen::Map<const Vector> level = levels(weight), q(q_ + weight * family_.n_levels, family_.n_levels);
    const double mean = (q * level).sum();
    double c2 = 0.0, c3 = 0.0, c4 = 0.0;  // side by side: each sum waits for itself
    for (Index m = 0; m < family_.n_levels; ++m) {
      const double centred = level[m] - mean, square = centred * centred;
      c2 += q[m] * square;
      c3 += q[m] * (square * centred);
      c4 += q[m] * (square * square);
    }
    return {{mean, c2, c3, c4 - 3.0 * c2 * c2}};
  }

  // q ∝ p exp(−½ τ (c_1 w + … + c_4 w⁴))
  void tilt(Index weight, const double* c) {
    const auto w = levels(weight);
    const auto log_prior = array(family_.log_prior + weight * family_.prior_stride, family_.n_levels);
    auto q = array(q_ + weight * family_.n_levels, family_.n_levels), logits = logits_.array();
    logits = log_prior - 0.5 * tau_ * (w * (c[0] + w * (c[1] + w * (c[2] + w * c[3]))));
    logits -= logits.maxCoeff();
    kernels().dense.exp(family_.n_levels, logits.data(), q.data());
    q /= q.sum();
  }

  // K_1 … K_4 of a unit's sum, and E a².
  void collect(Index k) {
    unit_.clear();
    for (Index i = 0; i < inputs_; ++i)
      kernels().quadratic.add_cumulants(unit(), moments_of(hidden(k, i)).k, column(i));
    update_squares(k);
  }

  void update_squares(Index k) { squares(k) = cumulant(1).square() + cumulant(2); }

  void add_output(double p, const Part& s) { mean_.array() += p * s; }

  void shift(double by) { mean_.array() += by; }

  void visit_unit(Index k) {
    const Cumulants out = moments_of(output(k));
    const double p = out.k[0], e = out.k[1] + p * p;
    collect(k);
    add_output(-p, squares(k));
    residual_.array() = mean_.array() - y_.array();
    for (Index i = 0; i < inputs_; ++i) {
      Cumulants weight = moments_of(hidden(k, i));
      for (double& kappa : weight.k) kappa = -kappa;
      kernels().quadratic.add_cumulants(unit(), weight.k, column(i));
      double coefficient[4];
      kernels().quadratic.quartic(unit(), column(i), weight_.data(), residual_.data(), p, e, coefficient);
      tilt(hidden(k, i), coefficient);
      kernels().quadratic.add_cumulants(unit(), moments_of(hidden(k, i)).k, column(i));
    }
    update_squares(k);
    add_output(p, squares(k));
    sum_fourth(k);
  }

  // Σ ω E a⁴ and Σ ω Var a², without raw fourth powers in the latter.
  void sum_fourth(Index k) {
    const auto k1 = cumulant(1), k2 = cumulant(2), k3 = cumulant(3), k4 = cumulant(4), s = squares(k);
    double fourth = 0.0, spread = 0.0;
    for (Index l = 0; l < rows_; ++l) {
      const double var = 4.0 * k1[l] * (k1[l] * k2[l] + k3[l]) + 2.0 * k2[l] * k2[l] + k4[l];
      spread += weight_[l] * var;
      fourth += weight_[l] * (s[l] * s[l] + var);
    }
    fourth_[k] = fourth;
    variance_[k] = spread;
  }

  void visit_output(Index k) {
    const double before = moments_of(output(k)).k[0];
    const auto s = squares(k);
    const double linear = (weight_.array() * (mean_.array() - before * s - y_.array()) * s).sum();
    const double coefficient[4] = {2.0 * linear, fourth_[k], 0.0, 0.0};
    tilt(output(k), coefficient);
    add_output(moments_of(output(k)).k[0] - before, s);
  }

  void visit_bias() {
    const double before = moments_of(output(units_)).k[0];
    const double linear = (weight_.array() * (mean_.array() - before - y_.array())).sum();
    const double coefficient[4] = {2.0 * linear, weight_sum_, 0.0, 0.0};
    tilt(output(units_), coefficient);
    shift(moments_of(output(units_)).k[0] - before);
  }

  // Σ ω (E f − y)² + Σ ω Var f, where Var (v a²) = Var v · E a⁴ + p² Var a².
  double squared_error() const {
    const auto error = mean_.array() - y_.array();
    double total = (weight_.array() * error * error).sum();
    for (Index k = 0; k < units_; ++k) {
      const Cumulants out = moments_of(output(k));
      total += out.k[1] * fourth_[k] + out.k[0] * out.k[0] * variance_[k];
    }
    return bias_ ? total + moments_of(output(units_)).k[1] * weight_sum_ : total;
  }

  Index inputs_, units_;
  bool bias_;
  Index rows_;
  TiltFamily family_;
  double tau_;
  double* q_;
  Buffer columns_;  // (inputs, rows)
  Buffer y_, weight_;
  double weight_sum_ = 0.0;
  Buffer mean_, residual_;  // E f; E f − y without the unit that is visited
  Buffer squares_;          // E a_k², (units, rows)
  Buffer fourth_, variance_;  // Σ ω E a⁴, Σ ω Var a²
  Buffer unit_, logits_;
};

}  // namespace

double network_sweep(const NetworkShape& shape, const NetworkData& data, const TiltFamily& family, double tau,
                     double* q) {
  if (shape.depth() != 1)
    throw std::invalid_argument("the sweep serves one hidden layer, got " + std::to_string(shape.depth()));
  return CoordinateAscent(shape, data, family, tau, q).sweep();
}

}  // namespace pydirect
