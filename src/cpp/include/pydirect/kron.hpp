// Kronecker algebra: vectors over a grid of hypotheses, held as sums of terms Σ_t c_t ⊗_j f_j^(t).
//
// Most factors of a term are all ones; a term is the list of those that are not, in order of position.
#pragma once

#include <cstdint>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// A factor that is not all ones: where it stands, and which one it is (of a table of factors, or a power of the levels).
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

// Element-wise product of two terms: factors at the same position are multiplied, the others are kept. multiply(p, f, g)
// returns the index of a product of factors, or kUnit when it is all ones.
inline constexpr std::int32_t kUnit = -1;

template <class Multiply>
void multiply_terms(const Factor* a, const Factor* a_end, const Factor* b, const Factor* b_end, const Multiply& multiply,
                    std::vector<Factor>& out) {
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

}  // namespace pydirect
