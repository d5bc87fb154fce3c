// Quadratic networks as polynomials in their weights: the paper's forward pass (appendix D) with equal terms merged.
#pragma once

#include <memory>

#include "pydirect/quadratic/network.hpp"

namespace pydirect::quadratic {

// Largest number of products of terms that are formed to build an engine, and of bytes held meanwhile.
inline constexpr double kMaxMonomialProducts = 134217728.0;
inline constexpr double kMaxMonomialBytes = 2147483648.0;

// Any depth, small networks. Variances are formed from deviations from the network of mean weights, so that they are
// accurate for nearly certain weights too. Throws std::length_error, before the terms are formed, when there are too
// many of them.
std::unique_ptr<NetworkEngine> make_monomial_engine(const NetworkShape& shape, const NetworkData& data);

}  // namespace pydirect::quadratic
