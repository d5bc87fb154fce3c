// Distinct terms and factors, found by hashing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "pydirect/kron.hpp"
#include "scaled.hpp"

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
    std::vector<kron::Scaled> scaled(n);
    for (Index k = 0; k < n; ++k) scaled[k] = kron::Scaled::of(x[k]) * kron::Scaled::of(y[k]);
    exponent = kron::store_with_one_exponent(scaled.data(), n, values.data(), "entries of a product of factors");
  }
  return products_[pair] = {insert(values.data(), n), exponent};
}

}  // namespace pydirect
