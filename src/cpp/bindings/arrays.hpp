// NumPy arrays as pointers. Python has validated its user's input; these checks catch our own mistakes.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

namespace py = pybind11;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Names of arguments: anything, or an array of just the right type.
using py::literals::operator""_a;
inline py::arg operator""_array(const char* name, std::size_t) { return py::arg(name).noconvert(); }

template <class Operation>
auto without_gil(const Operation& operation) {
  py::gil_scoped_release release;
  return operation();
}

template <class T>
Array<T> copy(const std::vector<T>& v) {
  return Array<T>(py::ssize_t(v.size()), v.data());
}

inline void require_shape(const py::array& array, const char* name, std::initializer_list<Index> shape) {
  bool same = array.ndim() == static_cast<py::ssize_t>(shape.size());
  py::ssize_t axis = 0;
  std::string expected;
  for (const Index n : shape) {
    same = same && array.shape(axis) == n;
    expected += (axis++ ? ", " : "") + std::to_string(n);
  }
  if (!same) throw std::invalid_argument(std::string(name) + " must have shape (" + expected + ")");
}

// (n,) of indices below n
inline void require_order(const Array<std::int64_t>& order, Index n) {
  require_shape(order, "order", {n});
  for (Index j = 0; j < n; ++j)
    if (order.data()[j] < 0 || order.data()[j] >= n) throw std::invalid_argument("order must be a permutation");
}

}  // namespace pydirect
