// Sums of Kronecker terms merged, multiplied and squared.
#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "kernels/kernel_table.hpp"
#include "pydirect/kron.hpp"
#include "pydirect/parallel.hpp"
#include "scaled.hpp"

namespace pydirect {
namespace {

using namespace kron;

constexpr Index kDataColumnsPerChunk = 512;
constexpr std::size_t kPairsPerBlock = std::size_t{1} << 18;

// A sum whose factors have entered a table; terms with a factor of zeros are left out.
struct Interned {
  std::vector<std::vector<Factor>> terms;
  std::vector<Index> source;  // where they were in the sum

  Interned(const KronView& sum, FactorTable& table) {
    std::vector<std::int32_t> number(sum.n_factors);
    for (Index f = 0; f < sum.n_factors; ++f)
      number[f] = table.insert(sum.value + sum.offset[f], sum.offset[f + 1] - sum.offset[f]);
    for (Index t = 0; t < sum.n_terms; ++t) {
      std::vector<Factor> term;
      bool zero = false;
      for (Index k = sum.start[t]; k < sum.start[t + 1]; ++k) {
        const std::int32_t index = number[sum.index[k]];
        zero = zero || index == kZero;
        if (index != kUnit) term.push_back({sum.position[k], index});
      }
      if (zero) continue;
      terms.push_back(std::move(term));
      source.push_back(t);
    }
  }
};

// Coefficients (n_terms, n_data) under construction: plain numbers until one might leave their range.
class Coefficients {
 public:
  explicit Coefficients(Index n_data) : n_data_(n_data) {}

  void resize(Index n_terms) {
    if (wide_)
      scaled_.resize(n_terms * n_data_, Scaled{0.0, 0});
    else
      plain_.resize(n_terms * n_data_, 0.0);
  }
  void widen() {
    if (wide_) return;
    for (const double c : plain_) scaled_.push_back(Scaled::of(c));
    plain_ = {};
    wide_ = true;
  }
  bool wide() const { return wide_; }
  double* plain(Index t) { return plain_.data() + t * n_data_; }
  Scaled* scaled(Index t) { return scaled_.data() + t * n_data_; }

  // Into n_data numbers; returns the exponent they have in common.
  std::int64_t store(Index t, double* out) const {
    if (wide_) return store_with_one_exponent(scaled_.data() + t * n_data_, n_data_, out, "coefficients of a term");
    std::copy_n(plain_.data() + t * n_data_, n_data_, out);
    return 0;
  }

 private:
  Index n_data_;
  bool wide_ = false;
  std::vector<double> plain_;
  std::vector<Scaled> scaled_;
};

// Terms as arrays, without those whose coefficients are all zero and the factors that only they have.
KronSum collect(const TermSet& terms, const FactorTable& table, const Coefficients& coefficients, Index n_data) {
  KronSum out;
  std::vector<double> row(n_data);
  std::unordered_map<std::int32_t, std::int32_t> renumbered;
  for (Index t = 0; t < terms.size(); ++t) {
    const std::int64_t exponent = coefficients.store(t, row.data());
    if (std::all_of(row.begin(), row.end(), [](double c) { return c == 0.0; })) continue;
    for (const Factor* f = terms.begin(t); f != terms.end(t); ++f) {
      const auto [known, is_new] = renumbered.emplace(f->index, std::int32_t(renumbered.size()));
      if (is_new) {
        out.value.insert(out.value.end(), table.begin(f->index), table.end(f->index));
        out.offset.push_back(std::int64_t(out.value.size()));
      }
      out.position.push_back(f->position);
      out.index.push_back(known->second);
    }
    out.start.push_back(std::int64_t(out.index.size()));
    out.coefficient.insert(out.coefficient.end(), row.begin(), row.end());
    out.exponent.push_back(exponent);
  }
  return out;
}

[[noreturn]] void refuse_product(Index n_terms, double n_bytes) {
  std::ostringstream message;
  message.precision(3);
  message << "products must take at most " << kMaxProductBytes << " bytes, got " << n_bytes << " for " << n_terms
          << " terms so far";
  throw std::length_error(message.str());
}

// A product of two terms on its way into the sum of all, times factor · 2^exponent.
struct Pair {
  Index a, b, target;
  double factor;
  std::int64_t exponent;
};

// Multiplies pairs of interned terms; a pair whose product is zero is left out.
class Multiplier {
 public:
  Multiplier(FactorTable& table, const KronView& a, const KronView& b, int n_threads)
      : table_(table), a_(a), b_(b), n_threads_(n_threads), n_data_(std::max(a.n_data, b.n_data)),
        coefficients_(n_data_) {
    if (!range_of(a.coefficient, a.n_terms * a.n_data).within(400) ||
        !range_of(b.coefficient, b.n_terms * b.n_data).within(400))
      coefficients_.widen();
  }

  void add(const Interned& a, Index s, const Interned& b, Index t, double factor) {
    bool zero = false;
    std::int64_t exponent = a_.exponent[a.source[s]] + b_.exponent[b.source[t]];
    const auto product = [&](std::int32_t, std::int32_t f, std::int32_t g) {
      const ScaledFactor p = table_.product(f, g);
      zero = zero || p.index == kZero;
      exponent += p.exponent;
      return p.index;
    };
    const std::vector<Factor>&x = a.terms[s], &y = b.terms[t];
    multiply_terms(x.data(), x.data() + x.size(), y.data(), y.data() + y.size(), product, term_);
    if (zero) return;
    pairs_.push_back({a.source[s], b.source[t], terms_.insert(term_), factor, exponent});
    if (pairs_.size() == kPairsPerBlock) add_pairs();
  }

  KronSum finish() {
    add_pairs();
    return collect(terms_, table_, coefficients_, n_data_);
  }

 private:
  void add_pairs() {
    if (std::any_of(pairs_.begin(), pairs_.end(), [](const Pair& pair) { return pair.exponent != 0; }))
      coefficients_.widen();
    // Coefficients are here, in the result, and in its copy for the caller.
    const double each = 2 * sizeof(double) + (coefficients_.wide() ? sizeof(Scaled) : sizeof(double));
    const double n_bytes = double(terms_.size()) * double(n_data_) * each + double(terms_.bytes());
    if (n_bytes > kMaxProductBytes) refuse_product(terms_.size(), n_bytes);
    coefficients_.resize(terms_.size());
    const Index a_step = a_.n_data > 1, b_step = b_.n_data > 1;
    for_chunks(n_data_, kDataColumnsPerChunk, n_threads_, [&](Index begin, Index end) {
      for (const Pair& pair : pairs_) {
        const double *x = a_.coefficient + pair.a * a_.n_data, *y = b_.coefficient + pair.b * b_.n_data;
        if (coefficients_.wide()) {
          const Scaled factor = Scaled::of(pair.factor, pair.exponent);
          Scaled* out = coefficients_.scaled(pair.target);
          for (Index l = begin; l < end; ++l)
            add_to(out[l], factor * Scaled::of(x[l * a_step]) * Scaled::of(y[l * b_step]));
        } else {
          double* out = coefficients_.plain(pair.target);
          for (Index l = begin; l < end; ++l) out[l] += pair.factor * x[l * a_step] * y[l * b_step];
        }
      }
    });
    pairs_.clear();
  }

  FactorTable& table_;
  const KronView &a_, &b_;
  int n_threads_;
  Index n_data_;
  Coefficients coefficients_;
  TermSet terms_;
  std::vector<Pair> pairs_;
  std::vector<Factor> term_;
};

}  // namespace

KronSum compact(const KronView& sum, std::uint64_t hash_mask) {
  FactorTable table(hash_mask);
  TermSet terms(hash_mask);
  const Interned interned(sum, table);
  Coefficients coefficients(sum.n_data);
  const bool exponents = std::any_of(sum.exponent, sum.exponent + sum.n_terms, [](std::int64_t e) { return e != 0; });
  if (exponents || !range_of(sum.coefficient, sum.n_terms * sum.n_data).within(900)) coefficients.widen();
  for (std::size_t k = 0; k < interned.terms.size(); ++k) {
    const Index t = terms.insert(interned.terms[k]), source = interned.source[k];
    const double* row = sum.coefficient + source * sum.n_data;
    coefficients.resize(terms.size());
    if (coefficients.wide())
      for (Index l = 0; l < sum.n_data; ++l)
        add_to(coefficients.scaled(t)[l], Scaled::of(row[l], sum.exponent[source]));
    else
      kernels().rows<double>().add(sum.n_data, row, coefficients.plain(t));
  }
  return collect(terms, table, coefficients, sum.n_data);
}

KronSum multiply(const KronView& a, const KronView& b, int n_threads) {
  FactorTable table;
  const Interned in_a(a, table), in_b(b, table);
  Multiplier products(table, a, b, n_threads);
  for (std::size_t s = 0; s < in_a.terms.size(); ++s)
    for (std::size_t t = 0; t < in_b.terms.size(); ++t) products.add(in_a, Index(s), in_b, Index(t), 1.0);
  return products.finish();
}

KronSum square(const KronView& sum, int n_threads) {
  FactorTable table;
  const Interned interned(sum, table);
  Multiplier products(table, sum, sum, n_threads);
  for (std::size_t t = 0; t < interned.terms.size(); ++t)
    for (std::size_t s = 0; s <= t; ++s) products.add(interned, Index(s), interned, Index(t), s < t ? 2.0 : 1.0);
  return products.finish();
}

}  // namespace pydirect
