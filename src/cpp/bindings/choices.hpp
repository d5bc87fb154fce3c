// Names that Python gives for choices.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

#include "pydirect/types.hpp"

namespace pydirect {

template <class Choice>
Choice choose(const std::map<std::string, Choice>& choices, const std::string& name) {
  const auto found = choices.find(name);
  if (found == choices.end()) throw std::invalid_argument("unknown choice '" + name + "'");
  return found->second;
}

inline Activation activation_of(const std::string& name) {
  return choose<Activation>({{"relu", Activation::kRelu}, {"heaviside", Activation::kHeaviside}}, name);
}

inline PairKernel pair_kernel_of(const std::string& name) {
  return choose<PairKernel>(
      {{"exact", PairKernel::kExact}, {"paper", PairKernel::kPaper}, {"fast", PairKernel::kFast}}, name);
}

}  // namespace pydirect
