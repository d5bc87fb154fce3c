#include "pydirect/kron.hpp"

#include <algorithm>

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

}  // namespace pydirect
