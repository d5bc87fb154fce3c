#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "pydirect/kron.hpp"

namespace pydirect {
namespace {

using Integers = Array<std::int64_t>;
using Numbers = Array<std::int32_t>;

// The arrays of a sum: sizes, start, position, index, coefficient, exponent, offset, value. Holds references to them.
class Arrays {
 public:
  explicit Arrays(const py::tuple& arrays)
      : size_(arrays[0].cast<Integers>()), start_(arrays[1].cast<Integers>()), position_(arrays[2].cast<Numbers>()),
        index_(arrays[3].cast<Numbers>()), coefficient_(arrays[4].cast<Array<double>>()),
        exponent_(arrays[5].cast<Integers>()), offset_(arrays[6].cast<Integers>()),
        value_(arrays[7].cast<Array<double>>()) {
    if (coefficient_.ndim() != 2) throw std::invalid_argument("coefficients must have shape (n_terms, n_data)");
    const Index h = coefficient_.shape(0), n_factors = offset_.size() - 1;
    require_shape(size_, "sizes", {size_.size()});
    require_shape(start_, "start", {h + 1});
    require_shape(exponent_, "exponent", {h});
    require_shape(index_, "index", {index_.size()});
    require_shape(position_, "position", {index_.size()});
    require_shape(offset_, "offset", {n_factors + 1});
    require_shape(value_, "values", {value_.size()});
    if (n_factors < 0) throw std::invalid_argument("offset must have shape (n_factors + 1,), got (0,)");
    require_increasing("start", start_.data(), h, index_.size());
    require_increasing("offset", offset_.data(), n_factors, value_.size());
    for (Index t = 0; t < h; ++t)
      for (Index k = start_.data()[t]; k < start_.data()[t + 1]; ++k)
        require_factor(k, k == start_.data()[t] ? -1 : position_.data()[k - 1], n_factors);
  }

  KronView view() const {
    return {size_.shape(0),    size_.data(),  coefficient_.shape(0), coefficient_.shape(1),
            start_.data(),     position_.data(), index_.data(),      coefficient_.data(),
            exponent_.data(),  offset_.shape(0) - 1, offset_.data(), value_.data()};
  }

 private:
  [[noreturn]] static void refuse(const char* expected, std::int64_t got) {
    throw std::invalid_argument(std::string(expected) + ", got " + std::to_string(got));
  }

  static void require_increasing(const std::string& name, const std::int64_t* x, Index n, Index last) {
    if (x[0] != 0) refuse((name + " must begin with 0").c_str(), x[0]);
    if (x[n] != last) refuse((name + " must end with " + std::to_string(last)).c_str(), x[n]);
    for (Index k = 0; k < n; ++k)
      if (x[k + 1] < x[k]) refuse((name + " must not decrease from " + std::to_string(x[k])).c_str(), x[k + 1]);
  }

  void require_factor(Index k, std::int64_t position_before, Index n_factors) const {
    const std::int64_t p = position_.data()[k], f = index_.data()[k];
    if (p < 0 || p >= size_.size()) refuse(("position must be below " + std::to_string(size_.size())).c_str(), p);
    if (p <= position_before) refuse("position must increase within a term", p);
    if (f < 0 || f >= n_factors) refuse(("index must be below " + std::to_string(n_factors)).c_str(), f);
    const std::int64_t length = offset_.data()[f + 1] - offset_.data()[f], m = size_.data()[p];
    if (length != m)
      refuse(("factors at position " + std::to_string(p) + " must have " + std::to_string(m) + " entries").c_str(),
             length);
  }

  Integers size_, start_;
  Numbers position_, index_;
  Array<double> coefficient_;
  Integers exponent_, offset_;
  Array<double> value_;
};

void require_one_grid(const KronView& a, const KronView& b) {
  if (!std::equal(a.size, a.size + a.n_positions, b.size, b.size + b.n_positions) ||
      (a.n_data != b.n_data && a.n_data != 1 && b.n_data != 1))
    throw std::invalid_argument("sums must have the same sizes, and as many data points, or one");
}

py::tuple arrays_of(const KronSum& sum, Index n_data) {
  const Index h = Index(sum.start.size()) - 1;
  Array<double> coefficient({h, n_data});
  std::copy(sum.coefficient.begin(), sum.coefficient.end(), coefficient.mutable_data());
  return py::make_tuple(copy(sum.start), copy(sum.position), copy(sum.index), coefficient, copy(sum.exponent),
                        copy(sum.offset), copy(sum.value));
}

py::tuple compact_sum(const py::tuple& sum, std::uint64_t hash_mask) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  return arrays_of(without_gil([&] { return compact(view, hash_mask); }), view.n_data);
}

py::tuple multiply_sums(const py::tuple& a, const py::tuple& b, int n_threads) {
  const Arrays in_a(a), in_b(b);
  const KronView x = in_a.view(), y = in_b.view();
  require_one_grid(x, y);
  return arrays_of(without_gil([&] { return multiply(x, y, n_threads); }), std::max(x.n_data, y.n_data));
}

py::tuple square_sum(const py::tuple& sum, int n_threads) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  return arrays_of(without_gil([&] { return square(view, n_threads); }), view.n_data);
}

py::tuple inner(const py::tuple& a, const py::tuple& b, int n_threads, Index max_dots) {
  const Arrays in_a(a), in_b(b);
  const KronView x = in_a.view(), y = in_b.view();
  require_one_grid(x, y);
  const Index n = std::max(x.n_data, y.n_data);
  Array<double> mantissa(n);
  Integers exponent(n);
  const ScaledArray out{mantissa.mutable_data(), exponent.mutable_data()};
  without_gil([&] { inner_product(x, y, out, n_threads, max_dots); });
  return py::make_tuple(mantissa, exponent);
}

py::tuple entries(const py::tuple& sum, const Integers& points, int n_threads) {
  const Arrays arrays(sum);
  const KronView view = arrays.view();
  const Index n_points = points.shape(0);
  require_shape(points, "points", {n_points, view.n_positions});
  for (Index k = 0; k < points.size(); ++k)
    if (const std::int64_t i = points.data()[k]; i < 0 || i >= view.size[k % view.n_positions])
      throw std::invalid_argument("points must be indices into the factors, got " + std::to_string(i));
  Array<double> mantissa({n_points, view.n_data});
  Integers exponent({n_points, view.n_data});
  const ScaledArray out{mantissa.mutable_data(), exponent.mutable_data()};
  const std::int64_t* in = points.data();
  without_gil([&] { entries_at(view, n_points, in, out, n_threads); });
  return py::make_tuple(mantissa, exponent);
}

}  // namespace

void bind_kron(py::module_& m) {
  m.def("kron_check", [](const py::tuple& sum) { Arrays{sum}; }, "sum"_a);
  m.def("kron_compact", &compact_sum, "sum"_a, "hash_mask"_a = TermSet::kWholeHash);
  m.def("kron_multiply", &multiply_sums, "a"_a, "b"_a, "n_threads"_a);
  m.def("kron_square", &square_sum, "sum"_a, "n_threads"_a);
  m.def("kron_inner", &inner, "a"_a, "b"_a, "n_threads"_a, "max_dots"_a = kMaxDots);
  m.def("kron_entries", &entries, "sum"_a, "points"_array, "n_threads"_a);
}

}  // namespace pydirect
