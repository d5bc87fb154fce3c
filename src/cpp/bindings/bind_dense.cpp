#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "pydirect/dense.hpp"

namespace pydirect {
namespace {

template <class T>
using View = py::array_t<T, 0>;

template <class T>
Strided<const T> read(const View<T>& a) {
  constexpr Index size = sizeof(T);
  if (a.ndim() != 2) throw std::invalid_argument("a matrix must have two axes");
  if (a.strides(0) % size != 0 || a.strides(1) % size != 0)
    throw std::invalid_argument("strides must be multiples of an entry");
  return {a.data(), Index(a.strides(0)) / size, Index(a.strides(1)) / size};
}

template <class T>
Strided<T> write(View<T>& a) {
  Strided<const T> in = read<T>(a);
  if (a.shape(1) <= 1) in.column = 1;  // whatever NumPy says of axes without steps
  if (a.shape(0) <= 1) in.row = 1;
  if (in.column != 1 && in.row != 1) throw std::invalid_argument("one of the strides must be that of an entry");
  return {a.mutable_data(), in.row, in.column};
}

template <class T>
void product(const View<T>& a, const View<T>& b, const std::optional<Array<T>>& weight, View<T> out, bool upper,
             double sign, int n_threads) {
  const Index n_rows = a.shape(0), n_inner = a.shape(1), n_columns = b.shape(1);
  require_shape(b, "b", {n_inner, n_columns});
  require_shape(out, "out", {n_rows, n_columns});
  if (weight) require_shape(*weight, "weight", {n_inner});
  if ((weight || upper) && n_columns > 1 && out.strides(1) != sizeof(T))
    throw std::invalid_argument("rows of out must be contiguous");
  const DenseProduct<T> p{n_rows, n_columns, n_inner, read<T>(a), read<T>(b), weight ? weight->data() : nullptr,
                          T(sign), write<T>(out), upper ? Part::kUpper : Part::kAll, Sum::kIsAdded};
  without_gil([&] { add_product(p, n_threads); });
}

template <class T>
Index factor(Array<T> a, int n_threads) {
  const Index n = a.shape(0);
  require_shape(a, "a", {n, n});
  T* data = a.mutable_data();
  return without_gil([&] { return factorise(n, data, n, n_threads); });
}

template <class T>
void solve(const View<T>& lower, View<T> x, int n_threads) {
  const Index n = lower.shape(0), m = x.shape(1);
  require_shape(lower, "lower", {n, n});
  require_shape(x, "x", {n, m});
  const Strided<const T> l = read<T>(lower);
  const Strided<T> out = write<T>(x);
  without_gil([&] { solve_lower(n, m, l, out, n_threads); });
}

template <class T>
void bind(py::module_& m) {
  m.def("add_product", &product<T>, "a"_array, "b"_array, py::arg("weight").noconvert().none(true), "out"_array,
        "upper"_a, "sign"_a, "n_threads"_a);
  m.def("factorise", &factor<T>, "a"_array, "n_threads"_a);
  m.def("solve_lower", &solve<T>, "lower"_array, "x"_array, "n_threads"_a);
}

}  // namespace

void bind_dense(py::module_& m) {
  bind<double>(m);
  bind<float>(m);
}

}  // namespace pydirect
