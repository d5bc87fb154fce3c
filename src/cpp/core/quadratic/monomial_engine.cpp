#include "monomial_engine.hpp"

#include <algorithm>
#include <memory>

#include "moment_tree.hpp"
#include "polynomial.hpp"

namespace pydirect::quadratic {
namespace {

class Engine final : public NetworkEngine {
 public:
  Engine(const NetworkShape& shape, const NetworkData& data)
      : shape_(shape),
        f_(forward_pass(shape)),
        f2_(square(shape, shape.depth(), f_)),
        inputs_of_f_(shape, f_.terms),
        inputs_of_f2_(shape, f2_.terms),
        tree_({&f2_.terms, &f_.terms}, [&](const Factor& factor) { return entry(factor); }),
        raw_(shape.table_size()),
        raw_slope_(shape.table_size()) {
    n_terms_ = f2_.terms.size();
    f_.terms = f2_.terms = TermSet();  // the tree has them now
    set_coefficients(data);
  }

  Index n_terms() const override { return n_terms_; }

  double evaluate(const double* moments, double* gradient, int n_threads) override {
    raw_moments(moments);
    const double r = squares_ + tree_.sum_up(raw_.data(), n_threads);
    if (gradient != nullptr) {
      tree_.multiply_down(raw_.data(), n_threads);
      std::fill(raw_slope_.begin(), raw_slope_.end(), 0.0);
      tree_.gradient(Index(raw_.size()), raw_slope_.data(), n_threads);
      chain_to_central(moments, gradient);
    }
    return r;
  }

  void predict(const double* moments, Index n_rows, const double* x, double* mean, double* variance,
               int n_threads) override {
    raw_moments(moments);
    tree_.multiply_down(raw_.data(), n_threads);
    evaluate_polynomial(f_, inputs_of_f_, [&](Index t) { return tree_.product(1, t); }, n_rows, x, mean, n_threads);
    if (variance == nullptr) return;
    // With D_1 = E f − f(μ) and D_2 = E f² − f(μ)²:  Var f = D_2 − D_1 (2 E f − D_1), all of the size of the variance.
    std::vector<double> powers(raw_.size()), excess(raw_.size()), shift(n_rows);
    split_moments(moments, powers.data(), excess.data());
    tree_.difference_down(powers.data(), excess.data(), n_threads);
    const auto difference = [&](std::size_t part) {
      return [this, part](Index t) { return tree_.difference(part, t); };
    };
    evaluate_polynomial(f_, inputs_of_f_, difference(1), n_rows, x, shift.data(), n_threads);
    evaluate_polynomial(f2_, inputs_of_f2_, difference(0), n_rows, x, variance, n_threads);
    for (Index l = 0; l < n_rows; ++l) variance[l] -= shift[l] * (2.0 * mean[l] - shift[l]);
  }

 private:
  struct LayerPart {
    Index n_moments, count, first_weight, offset;
  };

  template <class Body>
  void for_layers(const Body& body) const {
    Index first = 0;
    for (Index k = 0; k < shape_.n_layers(); ++k) {
      const Index count = shape_.fan_out(k) * shape_.fan_in(k);
      body(LayerPart{shape_.n_moments(k), count, first, shape_.moment_offset(k)});
      first += count;
    }
  }

  Index entry(const Factor& factor) const {
    const Index weight = shape_.n_weights() - 1 - factor.position;
    Index at = -1;
    for_layers([&](const LayerPart& part) {
      if (weight >= part.first_weight && weight < part.first_weight + part.count)
        at = part.offset + (factor.index - 1) * part.count + weight - part.first_weight;
    });
    return at;
  }

  // R = Σ ω y² − 2 Σ_t (Σ_l ω_l y_l c_tl) E m_t + Σ_t (Σ_l ω_l c_tl) E m_t, the last sum over the terms of f²: the
  // table of V of eq. (39) is one of data moments.
  void set_coefficients(const NetworkData& data) {
    std::vector<double> weight(data.n_rows, 1.0), weighted_y(data.n_rows);
    if (data.weight != nullptr) std::copy(data.weight, data.weight + data.n_rows, weight.begin());
    squares_ = 0.0;
    for (Index l = 0; l < data.n_rows; ++l) {
      weighted_y[l] = weight[l] * data.y[l];
      squares_ += weighted_y[l] * data.y[l];
    }
    const std::vector<double> p = inputs_of_f_.sums(data, weighted_y), v = inputs_of_f2_.sums(data, weight);
    for (std::size_t t = 0; t < f2_.count.size(); ++t)
      tree_.coefficient(0, Index(t)) = f2_.count[t] * v[inputs_of_f2_.of_term(Index(t))];
    for (std::size_t t = 0; t < f_.count.size(); ++t)
      tree_.coefficient(1, Index(t)) = -2.0 * f_.count[t] * p[inputs_of_f_.of_term(Index(t))];
  }

  // E w^r = Σ_i C(r, i) μ^{r−i} E (w − μ)^i by Horner in μ, from μ^r down: ((μ + 0) μ + C(r,2) κ_2) μ + …
  // Starting from zero instead of one leaves E w^r − μ^r.
  void combine_moments(const double* moments, double start, double* combined) const {
    for_layers([&](const LayerPart& part) {
      for (Index w = 0; w < part.count; ++w) {
        const double* in = moments + part.offset + w;
        double* out = combined + part.offset + w;
        for (Index r = 1; r <= part.n_moments; ++r) {
          double value = start, binomial = 1.0;
          for (Index i = 1; i <= r; ++i) {
            binomial = binomial * double(r - i + 1) / double(i);
            value = value * in[0] + (i > 1 ? binomial * in[(i - 1) * part.count] : 0.0);
          }
          out[(r - 1) * part.count] = value;
        }
      }
    });
  }

  void raw_moments(const double* moments) { combine_moments(moments, 1.0, raw_.data()); }

  // μ^r and E w^r − μ^r.
  void split_moments(const double* moments, double* powers, double* excess) const {
    combine_moments(moments, 0.0, excess);
    for_layers([&](const LayerPart& part) {
      for (Index w = 0; w < part.count; ++w) {
        double power = 1.0;
        for (Index r = 0; r < part.n_moments; ++r)
          powers[part.offset + r * part.count + w] = power *= moments[part.offset + w];
      }
    });
  }

  // ∂E w^r/∂μ = r E w^{r−1};  ∂E w^r/∂κ_i = C(r, i) μ^{r−i}
  void chain_to_central(const double* moments, double* gradient) const {
    for_layers([&](const LayerPart& part) {
      for (Index w = 0; w < part.count; ++w) {
        const double mean = moments[part.offset + w];
        const double* slope = raw_slope_.data() + part.offset + w;
        const double* raw = raw_.data() + part.offset + w;
        double* out = gradient + part.offset + w;
        out[0] = slope[0];
        for (Index r = 2; r <= part.n_moments; ++r)
          out[0] += slope[(r - 1) * part.count] * double(r) * raw[(r - 2) * part.count];
        for (Index i = 2; i <= part.n_moments; ++i) {
          double sum = 0.0, factor = 1.0;  // C(r, i) μ^{r−i}
          for (Index r = i; r <= part.n_moments; ++r) {
            sum += slope[(r - 1) * part.count] * factor;
            factor = factor * mean * double(r + 1) / double(r + 1 - i);
          }
          out[(i - 1) * part.count] = sum;
        }
      }
    });
  }

  // Σ_t c_t x^α(t) value(t) at rows of x: a polynomial in x whose coefficients are summed first.
  template <class Value>
  void evaluate_polynomial(const Polynomial& polynomial, const InputMonomials& inputs, const Value& value, Index n_rows,
                           const double* x, double* out, int n_threads) const {
    std::vector<double> coefficient(inputs.size(), 0.0);
    for (std::size_t t = 0; t < polynomial.count.size(); ++t)
      coefficient[inputs.of_term(Index(t))] += polynomial.count[t] * value(Index(t));
    for_chunks(n_rows, InputMonomials::kRowsPerBlock, n_threads, [&](Index begin, Index end) {
      std::fill(out + begin, out + end, 0.0);
      inputs.evaluate(x, begin, end, [&](Index m, const double* values) {
        for (Index l = begin; l < end; ++l) out[l] += coefficient[m] * values[l - begin];
      });
    });
  }

  NetworkShape shape_;
  Polynomial f_, f2_;
  InputMonomials inputs_of_f_, inputs_of_f2_;
  MomentTree tree_;
  std::vector<double> raw_, raw_slope_;
  double squares_ = 0.0;  // Σ ω y²
  Index n_terms_ = 0;
};

}  // namespace

std::unique_ptr<NetworkEngine> make_monomial_engine(const NetworkShape& shape, const NetworkData& data) {
  return std::make_unique<Engine>(shape, data);
}

}  // namespace pydirect::quadratic
