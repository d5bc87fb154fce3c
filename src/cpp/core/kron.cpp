#include "pydirect/kron.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

// Finaliser of splitmix64: every bit of the input reaches every bit of the output.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t hash_of(const std::vector<Factor>& term) {
  std::uint64_t h = 0x9e3779b97f4a7c15ull;
  for (const Factor& f : term)
    h = mix(h ^ (std::uint64_t(std::uint32_t(f.position)) << 32 | std::uint32_t(f.index)));
  return h;
}

// mantissa · 2^exponent; the exponent of zero means nothing.
struct Scaled {
  double mantissa = 1.0;
  std::int64_t exponent = 0;

  static Scaled of(double x, std::int64_t exponent = 0) {
    int e;
    const double m = std::frexp(x, &e);
    return {m, exponent + e};
  }
  // Mantissas lie in [½, 1), or are the one of an empty product.
  friend Scaled operator*(const Scaled& a, const Scaled& b) {
    const double m = a.mantissa * b.mantissa;
    const std::int64_t e = a.exponent + b.exponent;
    return std::fabs(m) < 0.5 ? Scaled{2.0 * m, e - 1} : Scaled{m, e};
  }
};

double shifted(double mantissa, std::int64_t exponent) {  // mantissa · 2^exponent for exponents of any size, at most 0
  return exponent < -1100 ? 0.0 : std::ldexp(mantissa, static_cast<int>(exponent));
}

// total += x, the smaller of the two shifted to the exponent of the larger: a log-sum-exp in base two.
void add_to(Scaled& total, const Scaled& x) {
  if (x.mantissa == 0.0) return;
  if (total.mantissa == 0.0) {
    total = x;
    return;
  }
  const std::int64_t top = std::max(total.exponent, x.exponent);
  total = Scaled::of(shifted(total.mantissa, total.exponent - top) + shifted(x.mantissa, x.exponent - top), top);
}

struct ExponentRange {
  std::int64_t low = INT64_MAX, high = INT64_MIN;  // of what is not zero

  void include(const Scaled& x) {
    if (x.mantissa == 0.0) return;
    low = std::min(low, x.exponent);
    high = std::max(high, x.exponent);
  }
  bool empty() const { return low > high; }
  bool within(std::int64_t bound) const { return empty() || (low >= -bound && high <= bound); }
};

ExponentRange range_of(const double* x, Index n) {
  double low = HUGE_VAL, high = 0.0;
  for (Index k = 0; k < n; ++k) {
    const double size = std::fabs(x[k]);
    low = std::min(low, size > 0.0 ? size : HUGE_VAL);
    high = std::max(high, size);
  }
  ExponentRange range;
  if (high > 0.0) {
    range.include(Scaled::of(low));
    range.include(Scaled::of(high));
  }
  return range;
}

// Exponent to take out of numbers so that every one of them is a normal double: that of the largest, or less where the
// smallest needs it.
std::int64_t exponent_to_take_out(const ExponentRange& range, const char* name) {
  constexpr std::int64_t lowest = -1021, highest = 1024;  // of normal doubles with mantissas in [½, 1)
  const std::int64_t spread = range.high - range.low;
  if (spread <= -lowest) return range.high;
  if (spread <= highest - lowest) return range.high - highest;
  throw std::overflow_error(std::string(name) + " must lie within 2^" + std::to_string(highest - lowest) +
                            " of each other, got a ratio of 2^" + std::to_string(spread));
}

// Writes numbers as doubles times one power of two, whose exponent is returned: zero where doubles can hold them alone.
std::int64_t store_with_one_exponent(const Scaled* x, Index n, double* out, const char* name) {
  const auto without = [&](Index k, std::int64_t exponent) {
    const std::int64_t e = std::clamp<std::int64_t>(x[k].exponent - exponent, -3000, 3000);
    return x[k].mantissa == 0.0 ? 0.0 : std::ldexp(x[k].mantissa, static_cast<int>(e));
  };
  ExponentRange range;
  bool representable = true;  // subnormal numbers too, where no bit is lost
  for (Index k = 0; k < n; ++k) {
    range.include(x[k]);
    out[k] = without(k, 0);
    const Scaled back = Scaled::of(out[k]);
    representable = representable && back.mantissa == x[k].mantissa &&
                    (out[k] == 0.0 || back.exponent == x[k].exponent);
  }
  if (representable) return 0;
  const std::int64_t exponent = exponent_to_take_out(range, name);
  for (Index k = 0; k < n; ++k) out[k] = without(k, exponent);
  return exponent;
}

constexpr Index kColumnsPerChunk = 512;
constexpr Index kTermsPerChunk = 256;
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
    for_chunks(n_data_, kColumnsPerChunk, n_threads_, [&](Index begin, Index end) {
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

// fᵀg of two factors; null is all ones.
Scaled dot(const double* f, const double* g, Index n, bool moderate) {
  if (f == nullptr && g == nullptr) return Scaled::of(double(n));
  if (f == nullptr) std::swap(f, g);
  if (moderate) {  // no product can leave the range of double, nor become subnormal
    double sum = 0.0;
    for (Index k = 0; k < n; ++k) sum += g == nullptr ? f[k] : f[k] * g[k];
    return Scaled::of(sum);
  }
  Scaled sum{0.0, 0};
  for (Index k = 0; k < n; ++k) add_to(sum, g == nullptr ? Scaled::of(f[k]) : Scaled::of(f[k]) * Scaled::of(g[k]));
  return sum;
}

// Factors of a sum as they stand at their positions, numbered from one at each; zero is all ones.
struct LocalFactors {
  std::vector<std::int32_t> number;                // of every factor of every term, from the first term's
  std::vector<std::vector<std::int32_t>> indices;  // per position: of the factors, in the table

  explicit LocalFactors(const KronView& sum)
      : number(sum.start[sum.n_terms] - sum.start[0]), indices(sum.n_positions) {
    std::unordered_map<std::uint64_t, std::int32_t> known;
    for (Index k = sum.start[0]; k < sum.start[sum.n_terms]; ++k) {
      auto& here = indices[sum.position[k]];
      std::int32_t& own = number[k - sum.start[0]];
      own = 1;
      if (!here.empty() && here.front() == sum.index[k]) continue;  // most positions know one factor only
      if (!here.empty()) {
        const std::uint64_t key = std::uint64_t(sum.position[k]) << 32 | std::uint32_t(sum.index[k]);
        const auto [found, is_new] = known.emplace(key, std::int32_t(here.size()) + 1);
        own = found->second;
        if (!is_new) continue;
      }
      here.push_back(sum.index[k]);
    }
  }
};

std::vector<char> moderate_factors(const KronView& sum) {
  std::vector<char> moderate(sum.n_factors);
  for (Index f = 0; f < sum.n_factors; ++f)
    moderate[f] = range_of(sum.value + sum.offset[f], sum.offset[f + 1] - sum.offset[f]).within(400);
  return moderate;
}

// Inner products of all pairs of factors that can meet at a position.
class DotTables {
 public:
  DotTables(const KronView& a, const LocalFactors& in_a, const std::vector<char>& of_a, const KronView& b,
            const LocalFactors& in_b, const std::vector<char>& of_b)
      : first_(a.n_positions), width_(a.n_positions) {
    for (Index p = 0; p < a.n_positions; ++p) {
      first_[p] = Index(dots_.size());
      width_[p] = Index(in_b.indices[p].size()) + 1;
      for (Index i = 0; i <= Index(in_a.indices[p].size()); ++i)
        for (Index j = 0; j < width_[p]; ++j) {
          const std::int32_t f = i > 0 ? in_a.indices[p][i - 1] : kUnit, g = j > 0 ? in_b.indices[p][j - 1] : kUnit;
          dots_.push_back(dot(f == kUnit ? nullptr : a.value + a.offset[f], g == kUnit ? nullptr : b.value + b.offset[g],
                              a.size[p], (f == kUnit || of_a[f]) && (g == kUnit || of_b[g])));
        }
    }
  }
  const Scaled& operator()(Index p, Index i, Index j) const { return dots_[first_[p] + i * width_[p] + j]; }

 private:
  std::vector<Index> first_, width_;
  std::vector<Scaled> dots_;
};

KronView terms_of(const KronView& sum, Index begin, Index end) {
  KronView part = sum;
  part.n_terms = end - begin;
  part.start += begin;
  part.coefficient += begin * sum.n_data;
  part.exponent += begin;
  return part;
}

// Where to cut the denser sum so that a block's tables of inner products have at most max_dots entries, unless one term
// alone needs more: as many as the sparser sum has factors, at most twice over.
std::vector<Index> blocks_of_terms(const KronView& dense, const LocalFactors& in_dense, const LocalFactors& in_sparse,
                                   Index max_dots) {
  std::vector<Index> first(dense.n_positions + 1, 0), cuts{0};
  Index with_ones = 0;
  for (Index p = 0; p < dense.n_positions; ++p) {
    first[p + 1] = first[p] + Index(in_dense.indices[p].size());
    with_ones += Index(in_sparse.indices[p].size()) + 1;
  }
  std::vector<Index> block_of(first.back(), -1);  // the last in which a factor was seen at its position
  Index count = with_ones;
  const auto cost = [&](Index t) {
    Index sum = 0;
    for (Index k = dense.start[t]; k < dense.start[t + 1]; ++k) {
      const Index p = dense.position[k];
      Index& seen = block_of[first[p] + in_dense.number[k] - 1];
      if (seen != Index(cuts.size())) sum += Index(in_sparse.indices[p].size()) + 1;
      seen = Index(cuts.size());
    }
    return sum;
  };
  for (Index t = 0; t < dense.n_terms; ++t) {
    count += cost(t);
    if (count <= max_dots || t == cuts.back()) continue;
    cuts.push_back(t);
    count = with_ones + cost(t);
  }
  cuts.push_back(dense.n_terms);
  return cuts;
}

// Products over any range of positions by one multiplication and no division, for entries may be zero. At every level
// blocks are halved; products run from the middle of a block to both sides.
class RangeProducts {
 public:
  explicit RangeProducts(Index n) : size_(1) {
    while (size_ < n) size_ *= 2, ++n_levels_;
    levels_.resize(size_ * n_levels_);
  }
  Scaled& leaf(Index p) { return levels_[p]; }

  void build() {
    for (Index d = 1; d < n_levels_; ++d) {
      const Index half = Index{1} << d;
      Scaled* level = levels_.data() + d * size_;
      for (Index middle = half; middle < size_; middle += 2 * half) {
        level[middle - 1] = levels_[middle - 1];
        for (Index p = middle - 2; p >= middle - half; --p) level[p] = levels_[p] * level[p + 1];
        level[middle] = levels_[middle];
        for (Index p = middle + 1; p < middle + half; ++p) level[p] = level[p - 1] * levels_[p];
      }
    }
  }

  Scaled product(Index begin, Index end) const {
    if (begin >= end) return Scaled{};
    if (begin + 1 == end) return levels_[begin];
    Index level = 0;  // the one at which the two ends lie on different sides of a middle
    for (Index differ = begin ^ (end - 1); differ > 1; differ /= 2) ++level;
    return levels_[level * size_ + begin] * levels_[level * size_ + end - 1];
  }

 private:
  Index size_, n_levels_ = 1;
  std::vector<Scaled> levels_;
};

// Σ_t c_tl x_t for every datum. In ordinary numbers, relative to the largest x, where no product can leave their range.
class Combination {
 public:
  explicit Combination(const KronView& sum)
      : sum_(sum), coefficients_(range_of(sum.coefficient, sum.n_terms * sum.n_data)), plain_(sum.n_terms),
        total_(sum.n_data) {}

  // Calls use(l, value) for every datum, in chunks.
  template <class Use>
  void operator()(const std::vector<Scaled>& x, int n_threads, const Use& use) {
    ExponentRange range;
    for (const Scaled& v : x) range.include(v);
    const std::int64_t top = range.empty() ? 0 : range.high;
    const bool plain = range.empty() || (coefficients_.within(450) && range.low - top >= -450);
    if (plain)
      for (Index t = 0; t < sum_.n_terms; ++t)
        plain_[t] = x[t].mantissa == 0.0 ? 0.0 : shifted(x[t].mantissa, x[t].exponent - top);
    const Index n = sum_.n_data;
    for_chunks(n, kColumnsPerChunk, n_threads, [&](Index begin, Index end) {
      if (plain) {
        std::fill(total_.begin() + begin, total_.begin() + end, 0.0);
        kernels().rows<double>().add_transposed(sum_.n_terms, end - begin, sum_.coefficient + begin, n, plain_.data(),
                                        total_.data() + begin);
        for (Index l = begin; l < end; ++l) use(l, Scaled::of(total_[l], top));
        return;
      }
      for (Index l = begin; l < end; ++l) {
        Scaled value{0.0, 0};
        for (Index t = 0; t < sum_.n_terms; ++t) add_to(value, Scaled::of(sum_.coefficient[t * n + l]) * x[t]);
        use(l, value);
      }
    });
  }

 private:
  const KronView& sum_;
  ExponentRange coefficients_;
  std::vector<double> plain_, total_;
};

void store(const std::vector<Scaled>& values, ScaledArray out) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    out.mantissa[k] = values[k].mantissa;
    out.exponent[k] = values[k].mantissa == 0.0 ? 0 : values[k].exponent;
  }
}

}  // namespace

Index TermSet::insert(const std::vector<Factor>& term) {
  const std::uint64_t h = hash_of(term) & hash_mask_;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = h & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    const Index t = slots_[slot];
    if (hash_[t] == h && std::equal(begin(t), end(t), term.begin(), term.end())) return t;
  }
  const Index t = size();
  slots_[slot] = t;
  hash_.push_back(h);
  factors_.insert(factors_.end(), term.begin(), term.end());
  start_.push_back(n_factors());
  if (2 * hash_.size() > slots_.size()) grow();
  return t;
}

void TermSet::grow() {
  slots_.assign(2 * slots_.size(), -1);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t t = 0; t < hash_.size(); ++t) {
    std::size_t slot = hash_[t] & mask;
    while (slots_[slot] >= 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<Index>(t);
  }
}

std::int32_t FactorTable::insert(const double* values, Index n) {
  if (std::all_of(values, values + n, [](double v) { return v == 1.0; })) return kUnit;
  if (std::all_of(values, values + n, [](double v) { return v == 0.0; })) return kZero;
  std::uint64_t h = mix(std::uint64_t(n));
  for (Index k = 0; k < n; ++k) {
    const double v = values[k] + 0.0;  // one zero, not two
    std::uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    h = mix(h ^ bits);
  }
  const auto [low, high] = by_hash_.equal_range(h &= hash_mask_);
  for (auto known = low; known != high; ++known)
    if (std::equal(begin(known->second), end(known->second), values, values + n)) return known->second;
  const auto index = std::int32_t(offset_.size()) - 1;
  values_.insert(values_.end(), values, values + n);
  offset_.push_back(std::int64_t(values_.size()));
  by_hash_.emplace(h, index);
  return index;
}

ScaledFactor FactorTable::product(std::int32_t a, std::int32_t b) {
  if (b < a) std::swap(a, b);
  const std::uint64_t pair = std::uint64_t(a) << 32 | std::uint32_t(b);
  const auto known = products_.find(pair);
  if (known != products_.end()) return known->second;
  const double *x = begin(a), *y = begin(b);
  const Index n = end(a) - x;
  std::vector<double> values(n);
  bool exact_range = true;
  for (Index k = 0; k < n; ++k) {
    values[k] = x[k] * y[k];
    exact_range = exact_range && (std::isnormal(values[k]) || x[k] == 0.0 || y[k] == 0.0);
  }
  std::int64_t exponent = 0;
  if (!exact_range) {
    std::vector<Scaled> scaled(n);
    for (Index k = 0; k < n; ++k) scaled[k] = Scaled::of(x[k]) * Scaled::of(y[k]);
    exponent = store_with_one_exponent(scaled.data(), n, values.data(), "entries of a product of factors");
  }
  return products_[pair] = {insert(values.data(), n), exponent};
}

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

void inner_product(const KronView& a, const KronView& b, ScaledArray out, int n_threads, Index max_dots) {
  // Every term of `dense` costs all positions, every pair of terms only the factors of the sparse one.
  const bool a_is_denser = a.start[a.n_terms] * b.n_terms > b.start[b.n_terms] * a.n_terms;
  const KronView &dense = a_is_denser ? a : b, &sparse = a_is_denser ? b : a;
  const LocalFactors in_dense(dense), in_sparse(sparse);
  const auto of_dense = moderate_factors(dense), of_sparse = moderate_factors(sparse);
  const Index n_positions = dense.n_positions, dense_step = dense.n_data > 1;

  std::vector<Scaled> total(std::max(a.n_data, b.n_data), Scaled{0.0, 0}), overlap(sparse.n_terms);
  std::vector<std::int32_t> local(n_positions);
  RangeProducts products(n_positions);
  Combination combine(sparse);
  const std::vector<Index> blocks = blocks_of_terms(dense, in_dense, in_sparse, max_dots);
  for (std::size_t k = 0; k + 1 < blocks.size(); ++k) {
    const KronView block = terms_of(dense, blocks[k], blocks[k + 1]);
    const LocalFactors in_block(block);
    const DotTables dots(sparse, in_sparse, of_sparse, block, in_block, of_dense);
    for (Index t = 0; t < block.n_terms; ++t) {
      std::fill(local.begin(), local.end(), 0);
      for (Index f = block.start[t]; f < block.start[t + 1]; ++f)
        local[block.position[f]] = in_block.number[f - block.start[0]];
      for (Index p = 0; p < n_positions; ++p) products.leaf(p) = dots(p, 0, local[p]);
      products.build();
      for_chunks(sparse.n_terms, kTermsPerChunk, n_threads, [&](Index begin, Index end) {
        for (Index s = begin; s < end; ++s) {
          Scaled value{1.0, sparse.exponent[s]};
          Index next = 0;
          for (Index f = sparse.start[s]; f < sparse.start[s + 1]; ++f) {
            const Index p = sparse.position[f];
            value = value * products.product(next, p) * dots(p, in_sparse.number[f], local[p]);
            next = p + 1;
          }
          overlap[s] = value * products.product(next, n_positions);
        }
      });
      const double* c = block.coefficient + t * block.n_data;
      const std::int64_t exponent = block.exponent[t];
      combine(overlap, n_threads, [&](Index l, const Scaled& value) {
        if (sparse.n_data == 1)
          for (Index j = 0; j < Index(total.size()); ++j)
            add_to(total[j], value * Scaled::of(c[j * dense_step], exponent));
        else
          add_to(total[l], value * Scaled::of(c[l * dense_step], exponent));
      });
    }
  }
  store(total, out);
}

void entries_at(const KronView& sum, Index n_points, const std::int64_t* points, ScaledArray out, int n_threads) {
  std::vector<Scaled> value(sum.n_terms), total(n_points * sum.n_data);
  Combination combine(sum);
  for (Index i = 0; i < n_points; ++i) {
    const std::int64_t* point = points + i * sum.n_positions;
    for (Index t = 0; t < sum.n_terms; ++t) {
      value[t] = Scaled{1.0, sum.exponent[t]};
      for (Index k = sum.start[t]; k < sum.start[t + 1]; ++k)
        value[t] = value[t] * Scaled::of(sum.value[sum.offset[sum.index[k]] + point[sum.position[k]]]);
    }
    combine(value, n_threads, [&](Index l, const Scaled& v) { total[i * sum.n_data + l] = v; });
  }
  store(total, out);
}

}  // namespace pydirect
