#include <algorithm>
#include <vector>

#include "arrays.hpp"
#include "pydirect/kron.hpp"

namespace pydirect {
namespace {

using Integers = Array<std::int64_t>;
using Numbers = Array<std::int32_t>;

// The arrays of a sum: sizes, start, position, index, coefficient, offset, value. Holds references to them.
class Arrays {
 public:
  explicit Arrays(const py::tuple& arrays)
      : size_(arrays[0].cast<Integers>()), start_(arrays[1].cast<Integers>()), position_(arrays[2].cast<Numbers>()),
        index_(arrays[3].cast<Numbers>()), coefficient_(arrays[4].cast<Array<double>>()),
        offset_(arrays[5].cast<Integers>()), value_(arrays[6].cast<Array<double>>()) {
    const Index h = coefficient_.shape(0);
    require_shape(start_, "start", {h + 1});
    require_shape(position_, "position", {index_.shape(0)});
    require_shape(index_, "index", {Index(start_.at(h))});
    require_shape(value_, "value", {Index(offset_.at(offset_.shape(0) - 1))});
  }

  KronView view() const {
    return {size_.shape(0),    size_.data(),  coefficient_.shape(0), coefficient_.shape(1),
            start_.data(),     position_.data(), index_.data(),      coefficient_.data(),
            offset_.shape(0) - 1, offset_.data(), value_.data()};
  }

 private:
  Integers size_, start_;
  Numbers position_, index_;
  Array<double> coefficient_;
  Integers offset_;
  Array<double> value_;
};

template <class T>
Array<T> copy(const std::vector<T>& v) {
  return Array<T>(py::ssize_t(v.size()), v.data());
}

py::tuple arrays_of(const KronSum& sum, Index n_data) {
  const Index h = Index(sum.start.size()) - 1;
  Array<double> coefficient({h, n_data});
  std::copy(sum.coefficient.begin(), sum.coefficient.end(), coefficient.mutable_data());
  return py::make_tuple(copy(sum.start), copy(sum.position), copy(sum.index), coefficient, copy(sum.offset),
                        copy(sum.value));
}

template <class Operation>
KronSum without_gil(const Operation& operation) {
  py::gil_scoped_release release;
  return operation();
}

py::tuple compact_sum(const py::tuple& sum, std::uint64_t hash_mask) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  return arrays_of(without_gil([&] { return compact(view, hash_mask); }), view.n_data);
}

py::tuple multiply_sums(const py::tuple& a, const py::tuple& b, int n_threads) {
  const Arrays in_a(a), in_b(b);
  const KronView x = in_a.view(), y = in_b.view();
  return arrays_of(without_gil([&] { return multiply(x, y, n_threads); }), std::max(x.n_data, y.n_data));
}

py::tuple square_sum(const py::tuple& sum, int n_threads) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  return arrays_of(without_gil([&] { return square(view, n_threads); }), view.n_data);
}

py::tuple inner(const py::tuple& a, const py::tuple& b, int n_threads) {
  const Arrays in_a(a), in_b(b);
  const KronView x = in_a.view(), y = in_b.view();
  const Index n = std::max(x.n_data, y.n_data);
  Array<double> mantissa(n);
  Integers exponent(n);
  const ScaledArray out{mantissa.mutable_data(), exponent.mutable_data()};
  {
    py::gil_scoped_release release;
    inner_product(x, y, out, n_threads);
  }
  return py::make_tuple(mantissa, exponent);
}

py::tuple entries(const py::tuple& sum, const Integers& points, int n_threads) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  const Index n_points = points.shape(0);
  require_shape(points, "points", {n_points, view.n_positions});
  Array<double> mantissa({n_points, view.n_data});
  Integers exponent({n_points, view.n_data});
  const ScaledArray out{mantissa.mutable_data(), exponent.mutable_data()};
  const std::int64_t* in = points.data();
  {
    py::gil_scoped_release release;
    entries_at(view, n_points, in, out, n_threads);
  }
  return py::make_tuple(mantissa, exponent);
}

}  // namespace

void bind_kron(py::module_& m) {
  m.def("kron_compact", &compact_sum, py::arg("sum"), py::arg("hash_mask") = TermSet::kWholeHash);
  m.def("kron_multiply", &multiply_sums, py::arg("a"), py::arg("b"), py::arg("n_threads"));
  m.def("kron_square", &square_sum, py::arg("sum"), py::arg("n_threads"));
  m.def("kron_inner", &inner, py::arg("a"), py::arg("b"), py::arg("n_threads"));
  m.def("kron_entries", &entries, py::arg("sum"), py::arg("points").noconvert(), py::arg("n_threads"));
}

}  // namespace pydirect
