// The output of a quadratic network as a polynomial in its weights, all hypotheses at once (appendix D).
#pragma once

#include <algorithm>
#include <vector>

#include "pydirect/kron.hpp"
#include "pydirect/quadratic/network.hpp"

namespace pydirect::quadratic {

// A network's state for every hypothesis and datum: Kronecker terms whose factors are powers of the weights' levels.
// The coefficient of a term is an integer times a monomial in the inputs, and that monomial is known from the powers of
// the first layer's weights (w_ki comes with x_i). So the integer alone is kept: n never enters the algebra.
//
// Position of weight w is n_weights − 1 − w: deepest layer first, which makes common beginnings long.
struct Polynomial {
  TermSet terms;
  std::vector<double> count;

  void add(const std::vector<Factor>& term, double c) {
    const Index t = terms.insert(term);
    if (t == static_cast<Index>(count.size())) count.push_back(0.0);
    count[t] += c;
  }
};

// f as a polynomial: algorithm forward_pass for all hypotheses at once.
Polynomial forward_pass(const NetworkShape& shape);

// (Σ_t c_t m_t)² = Σ_t c_t² m_t² + 2 Σ_{s<t} c_s c_t m_s m_t, eq. (33).
Polynomial square(const NetworkShape& shape, Index layer, const Polynomial& sum);

// Monomials of the inputs that come with terms: x_i to the power that the first layer's weights of input i have in all.
class InputMonomials {
 public:
  static constexpr Index kRowsPerBlock = 128;

  InputMonomials(const NetworkShape& shape, const TermSet& terms);

  Index size() const { return distinct_.size(); }
  std::int32_t of_term(Index t) const { return of_term_[t]; }

  // Calls use(m, values) with the values of every monomial at the rows [begin, end) of x.
  template <class Use>
  void evaluate(const double* x, Index begin, Index end, const Use& use) const {
    const Index rows = end - begin;
    std::vector<double> powers(n_inputs_ * top_power_ * kRowsPerBlock), values(kRowsPerBlock);
    const auto power = [&](Index i, Index r) { return powers.data() + (i * top_power_ + r - 1) * kRowsPerBlock; };
    for (Index i = 0; i < n_inputs_ && top_power_ > 0; ++i) {
      for (Index l = 0; l < rows; ++l) power(i, 1)[l] = x[(begin + l) * n_inputs_ + i];
      for (Index r = 2; r <= top_power_; ++r)
        for (Index l = 0; l < rows; ++l) power(i, r)[l] = power(i, r - 1)[l] * power(i, 1)[l];
    }
    for (Index m = 0; m < size(); ++m) {
      std::fill(values.begin(), values.end(), 1.0);
      for (const Factor* f = distinct_.begin(m); f != distinct_.end(m); ++f)
        for (Index l = 0; l < rows; ++l) values[l] *= power(f->position, f->index)[l];
      use(m, values.data());
    }
  }

  // Σ_l factor_l x_l^α for every monomial.
  std::vector<double> sums(const NetworkData& data, const std::vector<double>& factor) const;

 private:
  Index n_inputs_;
  std::int32_t top_power_ = 0;
  TermSet distinct_;
  std::vector<std::int32_t> of_term_;
};

}  // namespace pydirect::quadratic
