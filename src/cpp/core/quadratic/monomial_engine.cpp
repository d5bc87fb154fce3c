#include "monomial_engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "pydirect/kron.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kNodesPerChunk = 16384;
constexpr Index kMaxGradientChunks = 32;
constexpr Index kRowsPerBlock = 128;

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

// (Σ_t c_t m_t)² = Σ_t c_t² m_t² + 2 Σ_{s<t} c_s c_t m_s m_t, eq. (33).
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

// f as a polynomial: algorithm forward_pass for all hypotheses at once.
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

// Monomials of the inputs that come with terms: x_i to the power that the first layer's weights of input i have together.
class InputMonomials {
 public:
  InputMonomials(const NetworkShape& shape, const TermSet& terms) : n_inputs_(shape.n_inputs) {
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
  std::vector<double> sums(const NetworkData& data, const std::vector<double>& factor) const {
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

 private:
  Index n_inputs_;
  std::int32_t top_power_ = 0;
  TermSet distinct_;
  std::vector<std::int32_t> of_term_;
};

// Σ_t c_t Π M over a tree of the terms' common beginnings: every node multiplies its parent's product by one moment.
// Products from the root down and sums from the leaves up are the prefixes and suffixes of all terms; nothing is divided.
class MomentTree {
 public:
  // Terms of f² and of f; entry(f) is where the moment E w^power of a factor stands in the table.
  template <class Entry>
  MomentTree(const std::vector<const TermSet*>& parts, const Entry& entry) {
    std::vector<std::pair<const Factor*, const Factor*>> terms;
    std::vector<Index> part_begin{0};
    for (const TermSet* part : parts) {
      for (Index t = 0; t < part->size(); ++t) terms.emplace_back(part->begin(t), part->end(t));
      part_begin.push_back(Index(terms.size()));
    }
    std::vector<std::int32_t> order(terms.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return std::lexicographical_compare(terms[a].first, terms[a].second, terms[b].first, terms[b].second);
    });
    // In sorted order a term is a path that leaves the one before at the first different factor.
    std::vector<std::int32_t> parent{-1}, moment{-1}, depth{0}, path{0};
    std::vector<std::int32_t> node_of_term(terms.size());
    const Factor *before = nullptr, *before_end = nullptr;
    for (const std::int32_t t : order) {
      const auto [begin, end] = terms[t];
      Index shared = 0;
      while (begin + shared != end && before + shared != before_end && begin[shared] == before[shared]) ++shared;
      path.resize(shared + 1);
      for (const Factor* f = begin + shared; f != end; ++f) {
        parent.push_back(path.back());
        moment.push_back(std::int32_t(entry(*f)));
        depth.push_back(std::int32_t(path.size()));
        path.push_back(std::int32_t(parent.size()) - 1);
      }
      node_of_term[t] = path.back();
      before = begin, before_end = end;
    }
    number_by_depth(parent, moment, depth, node_of_term);
    for (std::size_t k = 0; k + 1 < part_begin.size(); ++k)
      term_nodes_.emplace_back(node_of_term.begin() + part_begin[k], node_of_term.begin() + part_begin[k + 1]);
    coefficient_.assign(n_nodes(), 0.0);
    product_.resize(n_nodes());
    rest_.resize(n_nodes());
  }

  Index n_nodes() const { return Index(parent_.size()); }
  double& coefficient(std::size_t part, Index t) { return coefficient_[term_nodes_[part][t]]; }
  double product(std::size_t part, Index t) const { return product_[term_nodes_[part][t]]; }
  double difference(std::size_t part, Index t) const { return rest_[term_nodes_[part][t]]; }

  // product = Π of the moments from the root to the node.
  void multiply_down(const double* moments, int n_threads) {
    product_[0] = 1.0;
    for (std::size_t d = 1; d + 1 < level_.size(); ++d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i)
          product_[i] = product_[parent_[i]] * moments[moment_[i]];
      });
  }

  // difference = Π E w^r − Π μ^r, after multiply_down, without cancellation: P M − P⁰ M⁰ = (P − P⁰) M⁰ + P (M − M⁰).
  // Held where sum_up has its sums.
  void difference_down(const double* powers, const double* excess, int n_threads) {
    rest_[0] = 0.0;
    for (std::size_t d = 1; d + 1 < level_.size(); ++d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i)
          rest_[i] = rest_[parent_[i]] * powers[moment_[i]] + product_[parent_[i]] * excess[moment_[i]];
      });
  }

  // rest = Σ over the terms at and below the node, of coefficient times moments below it; returns the root's.
  double sum_up(const double* moments, int n_threads) {
    for (Index d = Index(level_.size()) - 2; d >= 0; --d)
      for_chunks(level_[d + 1] - level_[d], kNodesPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index i = level_[d] + begin; i < level_[d] + end; ++i) {
          double sum = coefficient_[i];
          for (std::int32_t c = first_child_[i]; c < first_child_[i + 1]; ++c) sum += moments[moment_[c]] * rest_[c];
          rest_[i] = sum;
        }
      });
    return rest_[0];
  }

  // Derivatives in the moments, added to out: at every node, what stands above times what stands below.
  void gradient(Index table_size, double* out, int n_threads) {
    const Index count = n_nodes() - 1;
    const Index chunk = std::max(kNodesPerChunk, (count + kMaxGradientChunks - 1) / kMaxGradientChunks);
    const Index n_chunks = (count + chunk - 1) / chunk;
    partial_.assign(n_chunks * table_size, 0.0);
    for_chunks(count, chunk, n_threads, [&](Index begin, Index end) {
      double* slope = partial_.data() + begin / chunk * table_size;
      for (Index i = 1 + begin; i < 1 + end; ++i) slope[moment_[i]] += product_[parent_[i]] * rest_[i];
    });
    for (Index k = 0; k < n_chunks; ++k)
      for (Index j = 0; j < table_size; ++j) out[j] += partial_[k * table_size + j];
  }

 private:
  // Level by level, so that the nodes of a level are independent and the children of a node neighbours.
  void number_by_depth(const std::vector<std::int32_t>& parent, const std::vector<std::int32_t>& moment,
                       const std::vector<std::int32_t>& depth, std::vector<std::int32_t>& node_of_term) {
    const std::size_t n = parent.size();
    level_.assign(std::size_t(*std::max_element(depth.begin(), depth.end())) + 2, 0);
    for (const std::int32_t d : depth) ++level_[d + 1];
    std::partial_sum(level_.begin(), level_.end(), level_.begin());
    std::vector<Index> next(level_.begin(), level_.end() - 1);
    std::vector<std::int32_t> renumbered(n);
    for (std::size_t i = 0; i < n; ++i) renumbered[i] = std::int32_t(next[depth[i]]++);
    parent_.resize(n);
    moment_.resize(n);
    first_child_.assign(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
      parent_[renumbered[i]] = i == 0 ? -1 : renumbered[parent[i]];
      moment_[renumbered[i]] = moment[i];
    }
    for (std::size_t i = 1; i < n; ++i) ++first_child_[parent_[i] + 1];
    first_child_[0] = 1;  // node 0 is the root
    std::partial_sum(first_child_.begin(), first_child_.end(), first_child_.begin());
    for (std::int32_t& node : node_of_term) node = renumbered[node];
  }

  std::vector<std::int32_t> parent_, moment_, first_child_;
  std::vector<Index> level_;  // first node of every level
  std::vector<std::vector<std::int32_t>> term_nodes_;
  std::vector<double> coefficient_, product_, rest_, partial_;
};

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
    for_chunks(n_rows, kRowsPerBlock, n_threads, [&](Index begin, Index end) {
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

}  // namespace pydirect
