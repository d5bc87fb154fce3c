#include "polynomial.hpp"

#include <sstream>
#include <stdexcept>

#include "monomial_engine.hpp"

namespace pydirect::quadratic {
namespace {

// Powers of the same levels multiply by adding exponents; there is no table of factors to look up.
std::int32_t add_powers(std::int32_t, std::int32_t a, std::int32_t b) { return a + b; }

double n_pairs(double h) { return 0.5 * h * (h + 1.0); }

// Terms of f when the output of a unit of hidden layer `layer` has h terms and nothing merges any more.
double terms_of_output(const NetworkShape& shape, Index layer, double h) {
  for (Index k = layer + 1; k < shape.n_layers(); ++k) {
    const double sum = double(shape.fan_out(k - 1)) * h + double(shape.bias);
    if (k == shape.depth()) return sum;
    h = n_pairs(sum);
  }
  return h;
}

// As many at least, whatever merges: the squares of a sum's terms are all different.
double fewest_terms_of_output(const NetworkShape& shape, Index layer, double h) {
  for (Index k = layer + 1; k < shape.n_layers(); ++k) h = double(shape.fan_out(k - 1)) * h + double(shape.bias);
  return h;
}

struct MonomialBound {
  double n_terms;  // monomials of f² before equal ones are merged
  double n_bytes;  // for building and holding them
};

MonomialBound bound_from_output(const NetworkShape& shape, double h) {
  // A term has at most degree factors; beside them its start, hash, two slots, count, place in the order, and its share
  // of the tree: four integers of four bytes and four doubles, for it and about half a node more.
  const double degree = double((Index{2} << (shape.depth() + 1)) - 2);
  return {n_pairs(h), n_pairs(h) * (8.0 * degree + 8.0 * 6.0 + 1.5 * 48.0)};
}

// Bounds of deep networks overflow.
std::string amount(double value) {
  std::ostringstream text;
  text.precision(3);
  if (value < 1e300)
    text << value;
  else
    text << "more than 1e300";
  return text.str();
}

[[noreturn]] void refuse(const NetworkShape& shape, const MonomialBound& bound) {
  std::ostringstream message;
  message.precision(3);
  message << "hidden_layer_sizes must be smaller for the monomial engine: f² of (";
  for (std::size_t k = 0; k < shape.hidden.size(); ++k) message << (k ? ", " : "") << shape.hidden[k];
  message << ") hidden units on " << shape.n_inputs << " inputs has up to " << amount(bound.n_terms)
          << " terms, " << amount(bound.n_bytes / 1073741824.0) << " GiB; at most " << kMaxMonomialProducts
          << " products of terms and " << kMaxMonomialBytes / 1073741824.0 << " GiB are allowed";
  throw std::length_error(message.str());
}

void refuse_if_hopeless(const NetworkShape& shape, Index layer, double h) {
  if (n_pairs(fewest_terms_of_output(shape, layer, h)) > kMaxMonomialProducts)
    refuse(shape, bound_from_output(shape, terms_of_output(shape, layer, h)));
}

// Weighted sum of the inputs of a layer's first unit, eqs. (30) and (31), from the output of the first unit below.
// Units of a layer differ in their own weights alone: unit i is unit 0 with its positions moved by i fan_in.
Polynomial weighted_sum(const NetworkShape& shape, Index layer, Index first_weight, const Polynomial* below) {
  const Index fan_in = shape.fan_in(layer), last = shape.n_weights() - 1;
  const Index n_units = layer == 0 ? shape.n_inputs : shape.fan_out(layer - 1);
  const std::int32_t below_fan_in = layer == 0 ? 0 : std::int32_t(shape.fan_in(layer - 1));
  const Index below_first = layer == 0 ? 0 : first_weight - n_units * below_fan_in;
  const auto own = [&](Index p) { return last - p >= below_first && last - p < below_first + below_fan_in; };
  Polynomial sum;
  std::vector<Factor> term;
  for (Index i = fan_in - 1; i >= 0; --i) {
    const Factor weight{std::int32_t(last - first_weight - i), 1};
    if (below == nullptr || i >= n_units) {  // an input of the network, or the bias
      sum.add({weight}, 1.0);
      continue;
    }
    for (Index t = 0; t < below->terms.size(); ++t) {
      term.assign(1, weight);
      for (const Factor* f = below->terms.begin(t); f != below->terms.end(t); ++f)
        term.push_back({own(f->position) ? f->position - std::int32_t(i) * below_fan_in : f->position, f->index});
      sum.add(term, below->count[t]);
    }
  }
  return sum;
}

}  // namespace

Polynomial square(const NetworkShape& shape, Index layer, const Polynomial& sum) {
  const Index h = sum.terms.size();
  const auto refuse_here = [&] {
    const double output = layer == shape.depth() ? double(h) : terms_of_output(shape, layer, n_pairs(double(h)));
    refuse(shape, bound_from_output(shape, output));
  };
  // What has merged so far is known here: the bound of the whole network, made before, would refuse too many.
  if (n_pairs(double(h)) > kMaxMonomialProducts) refuse_here();
  Polynomial out;
  std::vector<Factor> product;
  for (Index t = 0; t < h; ++t) {
    for (Index s = 0; s <= t; ++s) {
      multiply_terms(sum.terms.begin(s), sum.terms.end(s), sum.terms.begin(t), sum.terms.end(t), add_powers, product);
      out.add(product, (s < t ? 2.0 : 1.0) * sum.count[s] * sum.count[t]);
    }
    if (double(out.terms.bytes()) > 0.5 * kMaxMonomialBytes) refuse_here();  // the tree will take as much again
  }
  return out;
}

Polynomial forward_pass(const NetworkShape& shape) {
  Polynomial unit;
  Index first_weight = 0;
  refuse_if_hopeless(shape, 0, n_pairs(double(shape.fan_in(0))));
  for (Index k = 0;; ++k) {
    Polynomial sum = weighted_sum(shape, k, first_weight, k == 0 ? nullptr : &unit);
    if (k == shape.depth()) return sum;
    unit = square(shape, k, sum);
    refuse_if_hopeless(shape, k, double(unit.terms.size()));
    first_weight += shape.fan_out(k) * shape.fan_in(k);
  }
}

InputMonomials::InputMonomials(const NetworkShape& shape, const TermSet& terms) : n_inputs_(shape.n_inputs) {
  const Index fan_in = shape.fan_in(0), n_first = shape.fan_out(0) * fan_in, last = shape.n_weights() - 1;
  std::vector<std::int32_t> powers(fan_in);
  std::vector<Factor> monomial;
  of_term_.reserve(terms.size());
  for (Index t = 0; t < terms.size(); ++t) {
    std::fill(powers.begin(), powers.end(), 0);
    for (const Factor* f = terms.begin(t); f != terms.end(t); ++f)
      if (last - f->position < n_first) powers[(last - f->position) % fan_in] += f->index;
    monomial.clear();
    for (Index i = 0; i < n_inputs_; ++i)  // the bias is one, whatever its power
      if (powers[i] > 0) monomial.push_back({std::int32_t(i), powers[i]});
    of_term_.push_back(std::int32_t(distinct_.insert(monomial)));
  }
  for (Index m = 0; m < size(); ++m)
    for (const Factor* f = distinct_.begin(m); f != distinct_.end(m); ++f) top_power_ = std::max(top_power_, f->index);
}

std::vector<double> InputMonomials::sums(const NetworkData& data, const std::vector<double>& factor) const {
  std::vector<double> total(size(), 0.0);
  for (Index begin = 0; begin < data.n_rows; begin += kRowsPerBlock) {
    const Index end = std::min(begin + kRowsPerBlock, data.n_rows);
    evaluate(data.x, begin, end, [&](Index m, const double* values) {
      double sum = 0.0;
      for (Index l = begin; l < end; ++l) sum += factor[l] * values[l - begin];
      total[m] += sum;
    });
  }
  return total;
}

}  // namespace pydirect::quadratic
