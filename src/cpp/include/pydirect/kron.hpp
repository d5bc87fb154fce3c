// Kronecker algebra: vectors over a grid of hypotheses, held as sums of terms Σ_t c_t ⊗_j f_j^(t).
//
// Most factors of a term are all ones; a term is the list of those that are not, in order of position.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// A factor that is not all ones: where it stands, and which it is (in a table of factors, or a power of the levels).
struct Factor {
  std::int32_t position;
  std::int32_t index;
  bool operator==(const Factor& other) const { return position == other.position && index == other.index; }
  bool operator<(const Factor& other) const {
    return position != other.position ? position < other.position : index < other.index;
  }
};

// Distinct terms, numbered in order of arrival and found by hashing; a match of hashes is confirmed on the factors.
class TermSet {
 public:
  static constexpr std::uint64_t kWholeHash = ~std::uint64_t{0};

  explicit TermSet(std::uint64_t hash_mask = kWholeHash) : hash_mask_(hash_mask), slots_(16, -1) {}

  // Number of the term of these factors, added if it is new.
  Index insert(const std::vector<Factor>& term);

  Index size() const { return static_cast<Index>(start_.size()) - 1; }
  Index n_factors() const { return static_cast<Index>(factors_.size()); }
  const Factor* begin(Index t) const { return factors_.data() + start_[t]; }
  const Factor* end(Index t) const { return factors_.data() + start_[t + 1]; }
  std::size_t bytes() const {
    return factors_.capacity() * sizeof(Factor) +
           (start_.capacity() + hash_.capacity() + slots_.capacity()) * sizeof(Index);
  }

 private:
  void grow();

  std::uint64_t hash_mask_;
  std::vector<Index> start_{0};
  std::vector<Factor> factors_;
  std::vector<std::uint64_t> hash_;
  std::vector<Index> slots_;  // open addressing, a power of two of them, at most half full; -1 is empty
};

// Element-wise product of two terms: factors at the same position are multiplied, the others are kept.
// multiply(p, f, g) returns the index of a product of factors, or kUnit when it is all ones.
inline constexpr std::int32_t kUnit = -1;

template <class Multiply>
void multiply_terms(const Factor* a, const Factor* a_end, const Factor* b, const Factor* b_end,
                    const Multiply& multiply, std::vector<Factor>& out) {
  out.clear();
  while (a != a_end && b != b_end) {
    if (a->position < b->position) {
      out.push_back(*a++);
    } else if (b->position < a->position) {
      out.push_back(*b++);
    } else {
      const std::int32_t index = multiply(a->position, a->index, b->index);
      if (index != kUnit) out.push_back({a->position, index});
      ++a, ++b;
    }
  }
  out.insert(out.end(), a, a_end);
  out.insert(out.end(), b, b_end);
}

// Distinct factors by their values, numbered from zero; all ones is kUnit, all zeros kZero.
inline constexpr std::int32_t kZero = -2;

// A factor of a table times 2^exponent.
struct ScaledFactor {
  std::int32_t index;
  std::int64_t exponent;
};

class FactorTable {
 public:
  explicit FactorTable(std::uint64_t hash_mask = TermSet::kWholeHash) : hash_mask_(hash_mask) {}

  std::int32_t insert(const double* values, Index n);
  // Element-wise, remembered; a power of two is taken out where entries would leave the range of double.
  // std::overflow_error when they are too far apart for any.
  ScaledFactor product(std::int32_t a, std::int32_t b);

  const double* begin(std::int32_t f) const { return values_.data() + offset_[f]; }
  const double* end(std::int32_t f) const { return values_.data() + offset_[f + 1]; }

 private:
  std::uint64_t hash_mask_;
  std::vector<std::int64_t> offset_{0};
  std::vector<double> values_;
  std::unordered_multimap<std::uint64_t, std::int32_t> by_hash_;
  std::unordered_map<std::uint64_t, ScaledFactor> products_;  // by pair
};

// A sum of terms for n_data data points, which share the factors and differ in the coefficients. Not owned.
struct KronView {
  Index n_positions;
  const std::int64_t* size;  // (n_positions,) entries of a factor at each position
  Index n_terms, n_data;
  const std::int64_t* start;     // (n_terms + 1,) of each term among its factors
  const std::int32_t* position;  // in increasing order within a term
  const std::int32_t* index;     // of the factor in the table
  const double* coefficient;     // (n_terms, n_data), each times 2^exponent of its term
  const std::int64_t* exponent;  // (n_terms,)
  Index n_factors;
  const std::int64_t* offset;  // (n_factors + 1,)
  const double* value;
};

struct KronSum {
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> position, index;
  std::vector<double> coefficient;
  std::vector<std::int64_t> exponent;
  std::vector<std::int64_t> offset{0};
  std::vector<double> value;
};

// Merges terms of equal factors, drops those that are zero, and factors that are all ones. hash_mask keeps some bits of
// the hashes only: with few of them collisions are sure.
KronSum compact(const KronView& sum, std::uint64_t hash_mask = TermSet::kWholeHash);
// Terms and coefficients that a product may take; std::length_error before more are allocated.
inline constexpr double kMaxProductBytes = 8.0 * 1073741824.0;
// Element-wise product, eq. (30) where one of them is a row of W; coefficients of one datum serve all of the other's.
KronSum multiply(const KronView& a, const KronView& b, int n_threads);
// Element-wise square with its cross terms, eq. (33).
KronSum square(const KronView& sum, int n_threads);

// Numbers mantissa · 2^exponent with mantissas in ±[½, 1) or zero: the logarithm's whole part apart from the rest, so
// that neither the range nor the precision of a product depends on the size of its factors.
struct ScaledArray {
  double* mantissa;
  std::int64_t* exponent;
};

// aᵀb, Proposition 1, datum by datum: O(b (m + log b)) for every pair of distinct factors or denser term. About
// max_dots inner products of factors are held at a time.
inline constexpr Index kMaxDots = Index{1} << 22;
void inner_product(const KronView& a, const KronView& b, ScaledArray out, int n_threads, Index max_dots = kMaxDots);
// Entries at points of the grid, (n_points, n_data); points (n_points, n_positions) are indices into the factors.
void entries_at(const KronView& sum, Index n_points, const std::int64_t* points, ScaledArray out, int n_threads);

}  // namespace pydirect
