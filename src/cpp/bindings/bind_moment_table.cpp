#include <pybind11/stl.h>

#include <vector>

#include "arrays.hpp"
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
    if (m < 1 || m % kLevelPadding != 0) throw std::invalid_argument("levels must be padded");
    require_shape(levels, "levels", {levels.shape(0) == 1 ? 1 : b, m});
    require_shape(log_prior, "log_prior", {log_prior.shape(0) == 1 ? 1 : b, m});
    family_ = {m, levels.data(), levels.shape(0) == 1 ? 0 : m, log_prior.data(), log_prior.shape(0) == 1 ? 0 : m};
    q_.resize(b * m);
    log_ratio_.resize(b * m);
    divergence_.resize(b);
    moments_.resize(shape_.table_size());
  }

  Array<double> from_logits(const Array<double>& logits) {
    require_shape(logits, "logits", {shape_.n_weights(), family_.n_levels});
    {
      py::gil_scoped_release release;
      moments_from_logits(shape_, family_, rows(logits.data()), moments_.data(), n_threads_);
    }
    return copy(moments_);
  }

  Array<double> from_probabilities(const Array<double>& q) {
    require_shape(q, "q", {shape_.n_weights(), family_.n_levels});
    {
      py::gil_scoped_release release;
      moments_from_probabilities(shape_, family_, q.data(), moments_.data(), n_threads_);
    }
    return copy(moments_);
  }

  Array<double> probability_slopes(const Array<double>& gradient) {
    require_shape(gradient, "gradient", {shape_.table_size()});
    Array<double> out({shape_.n_weights(), family_.n_levels});
    double* data = out.mutable_data();
    {
      py::gil_scoped_release release;
      pydirect::probability_slopes(shape_, family_, moments_.data(), gradient.data(), data, n_threads_);
    }
    return out;
  }

  Array<double> logit_gradient(const Array<double>& gradient, double factor) {
    require_shape(gradient, "gradient", {shape_.table_size()});
    Array<double> out({shape_.n_weights(), family_.n_levels});
    double* data = out.mutable_data();
    {
      py::gil_scoped_release release;
      pydirect::logit_gradient(shape_, family_, rows(nullptr), moments_.data(), gradient.data(), factor, data,
                               n_threads_);
    }
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
      .def(py::init<Index, std::vector<Index>, bool, Array<double>, Array<double>, int>(), py::arg("n_inputs"),
           py::arg("hidden"), py::arg("bias"), py::arg("levels").noconvert(), py::arg("log_prior").noconvert(),
           py::arg("n_threads"))
      .def("from_logits", &N::from_logits, py::arg("logits").noconvert())
      .def("from_probabilities", &N::from_probabilities, py::arg("q").noconvert())
      .def("probability_slopes", &N::probability_slopes, py::arg("gradient").noconvert())
      .def("logit_gradient", &N::logit_gradient, py::arg("gradient").noconvert(), py::arg("factor"))
      .def_property_readonly("q", &N::q)
      .def_property_readonly("divergence", &N::divergence);
}

}  // namespace pydirect
