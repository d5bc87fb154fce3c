// Vectors and matrices of others as Eigen's arrays, so that loops over them read like formulas.
#pragma once

#include <Eigen/Core>
#include <type_traits>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

using Vector = Eigen::ArrayXd;

template <class T, class Array>
using MapOf = Eigen::Map<std::conditional_t<std::is_const_v<T>, const Array, Array>>;

// (n,)
template <class T>
auto array(T* data, Index n) {
  return MapOf<T, Eigen::Array<std::remove_const_t<T>, Eigen::Dynamic, 1>>(data, n);
}
template <class T>
auto array(std::vector<T>& v) {
  return array(v.data(), Index(v.size()));
}
template <class T>
auto array(const std::vector<T>& v) {
  return array(v.data(), Index(v.size()));
}

// (n_rows, n_columns), row by row
template <class T>
auto matrix(T* data, Index n_rows, Index n_columns) {
  using Rows = Eigen::Array<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return MapOf<T, Rows>(data, n_rows, n_columns);
}

}  // namespace pydirect
