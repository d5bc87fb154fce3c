#include <pybind11/stl.h>

#include <vector>

#include "problems.hpp"
#include "pydirect/quadratic/moment_table.hpp"

namespace pydirect {
namespace {

// The stage for fixed levels and priors, with what its last forward pass left. Owns references to their arrays.
class NetworkMoments {
 public:
  NetworkMoments(Index n_inputs, std::vector<Index> hidden, bool bias, Array<double> levels, Array<double> log_prior,
                 int n_threads)
      : shape_{n_inputs, std::move(hidden), bias}, levels_(levels), log_prior_(log_prior), n_threads_(n_threads) {
    const Index b = shape_.n_weights(), m = levels.shape(1);
    family_ = tilt_family(levels, log_prior, b);
    q_.resize(b * m);
    log_ratio_.resize(b * m);
    divergence_.resize(b);
    moments_.resize(shape_.table_size());
  }

  Array<double> from_logits(const Array<double>& logits) {
    require_shape(logits, "logits", {shape_.n_weights(), family_.n_levels});
    without_gil(
        [&] { moments_from_logits(shape_, family_, rows(logits.data()), moments_.data(), n_threads_); });
    return copy(moments_);
  }

  Array<double> from_probabilities(const Array<double>& q) {
    require_shape(q, "q", {shape_.n_weights(), family_.n_levels});
    without_gil([&] { moments_from_probabilities(shape_, family_, q.data(), moments_.data(), n_threads_); });
    return copy(moments_);
  }

  Array<double> probability_slopes(const Array<double>& gradient) {
    require_shape(gradient, "gradient", {shape_.table_size()});
    Array<double> out({shape_.n_weights(), family_.n_levels});
    double* data = out.mutable_data();
    without_gil([&] {
      pydirect::probability_slopes(shape_, family_, moments_.data(), gradient.data(), data, n_threads_);
    });
    return out;
  }

  Array<double> logit_gradient(const Array<double>& gradient, double factor) {
    require_shape(gradient, "gradient", {shape_.table_size()});
    Array<double> out({shape_.n_weights(), family_.n_levels});
    double* data = out.mutable_data();
    without_gil([&] {
      pydirect::logit_gradient(shape_, family_, rows(nullptr), moments_.data(), gradient.data(), factor, data,
                               n_threads_);
    });
    return out;
  }

  Array<double> q() const { return Array<double>({shape_.n_weights(), family_.n_levels}, q_.data()); }
  Array<double> divergence() const { return copy(divergence_); }

 private:
  CategoricalRows rows(const double* logits) { return {logits, q_.data(), log_ratio_.data(), divergence_.data()}; }

  NetworkShape shape_;
  Array<double> levels_, log_prior_;
  int n_threads_;
  TiltFamily family_;
  std::vector<double> q_, log_ratio_, divergence_, moments_;
};

}  // namespace

void bind_moment_table(py::module_& m) {
  using N = NetworkMoments;
  py::class_<N>(m, "NetworkMoments")
      .def(py::init<Index, std::vector<Index>, bool, Array<double>, Array<double>, int>(), "n_inputs"_a, "hidden"_a,
           "bias"_a, "levels"_array, "log_prior"_array, "n_threads"_a)
      .def("from_logits", &N::from_logits, "logits"_array)
      .def("from_probabilities", &N::from_probabilities, "q"_array)
      .def("probability_slopes", &N::probability_slopes, "gradient"_array)
      .def("logit_gradient", &N::logit_gradient, "gradient"_array, "factor"_a)
      .def_property_readonly("q", &N::q)
      .def_property_readonly("divergence", &N::divergence);
}

}  // namespace pydirect
