// Quadratic networks as polynomials in their weights: the paper's forward pass (appendix D) with equal terms merged.
#pragma once

#include <memory>

#include "pydirect/quadratic_network.hpp"

namespace pydirect {

// Largest number of products of terms that are formed to build an engine, and of bytes held meanwhile.
inline constexpr double kMaxMonomialProducts = 134217728.0;
inline constexpr double kMaxMonomialBytes = 2147483648.0;

struct MonomialBound {
  double n_terms;  // monomials of f² before equal ones are merged
  double n_bytes;  // for building and holding them
};

// By formula: a unit of h inputs' terms squares into h (h + 1) / 2. An upper bound; equal monomials are not known yet.
MonomialBound monomial_bound(const NetworkShape& shape);

// Any depth, small networks. Throws std::length_error, before the terms are formed, when there are too many of them.
std::unique_ptr<NetworkEngine> make_monomial_engine(const NetworkShape& shape, const NetworkData& data);

}  // namespace pydirect
