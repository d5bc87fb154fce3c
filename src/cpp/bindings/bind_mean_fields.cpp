#include <algorithm>

#include "arrays.hpp"
#include "pydirect/regression/mean_fields.hpp"

namespace pydirect {
namespace {

// What models of the same A share, and their tables of levels and log priors; owns references to the arrays.
class LaneProblem {
 public:
  LaneProblem(Array<float> a, Array<double> diagonal, Array<double> levels, Array<double> log_prior,
              Array<double> prior_precision, int n_threads)
      : a_(a), diagonal_(diagonal), levels_(levels), log_prior_(log_prior), precision_(prior_precision),
        n_threads_(n_threads) {
    const Index b = n_weights(), m = levels.shape(1);
    if (stride() < kLanePack || stride() % kLanePack != 0) throw std::invalid_argument("lanes must be padded");
    require_shape(a, "a", {b, b});
    require_shape(diagonal, "diagonal", {b});
    require_shape(levels, "levels", {levels.shape(0) == 1 ? 1 : b, m, stride()});
    require_shape(log_prior, "log_prior", {log_prior.shape(0) == 1 ? 1 : b, m, stride()});
  }

  Index n_weights() const { return precision_.shape(0); }
  Index stride() const { return precision_.shape(1); }
  int n_threads() const { return n_threads_; }
  const float* a() const { return a_.data(); }
  const double* diagonal() const { return diagonal_.data(); }
  const double* prior_precision() const { return precision_.data(); }
  LaneFamily family() const {
    const Index m = levels_.shape(1), size = m * stride();
    return {m, levels_.data(), levels_.shape(0) == 1 ? 0 : size, log_prior_.data(), log_prior_.shape(0) == 1 ? 0 : size,
            stride()};
  }
  void require(const py::array& array, const char* name) const { require_shape(array, name, {n_weights(), stride()}); }
  void require_lanes(const py::array& array, const char* name) const { require_shape(array, name, {stride()}); }

 private:
  Array<float> a_;
  Array<double> diagonal_, levels_, log_prior_, precision_;
  int n_threads_;
};

// Natural parameters, moments and gains of all weights of all models.
class LaneState {
 public:
  explicit LaneState(const LaneProblem& p)
      : eta_({p.n_weights(), p.stride()}), kappa_({p.n_weights(), p.stride()}), mean_({p.n_weights(), p.stride()}),
        second_({p.n_weights(), p.stride()}), gain_({p.n_weights(), p.stride()}) {}

  LaneMoments moments() {
    return {eta_.mutable_data(), kappa_.mutable_data(), mean_.mutable_data(), second_.mutable_data(),
            gain_.mutable_data()};
  }

  Array<double> eta_, kappa_, mean_, second_, gain_;
};

void tilt(const LaneProblem& p, LaneState& s) {
  p.require(s.eta_, "eta");
  const LaneFamily family = p.family();
  const LaneMoments moments = s.moments();
  py::gil_scoped_release release;
  tilt_lanes(family, moments, p.n_weights(), p.n_threads());
}

Array<double> sweep(const LaneProblem& p, LaneState& s, const Array<double>& residual, Array<float> drift,
                    const Array<double>& tau, const Array<double>& threshold) {
  p.require(s.eta_, "eta");
  p.require(residual, "residual");
  p.require(drift, "drift");
  p.require_lanes(tau, "tau");
  p.require_lanes(threshold, "threshold");
  Array<double> moved(p.stride());
  const LaneFamily family = p.family();
  const LaneSweep pass{p.n_weights(), p.a(), p.diagonal(), p.prior_precision(), residual.data(), drift.mutable_data(),
                       tau.data(), threshold.data(), s.moments(), moved.mutable_data()};
  without_gil([&] { sweep_lanes(family, pass, p.n_threads()); });
  return moved;
}

void start_from_lattice(const LaneProblem& p, LaneState& s, const Array<float>& factor, const Array<double>& ridge,
                        const Array<double>& tau) {
  p.require(s.eta_, "eta");
  require_shape(factor, "factor", {p.n_weights(), p.n_weights()});
  p.require(ridge, "ridge");
  p.require_lanes(tau, "tau");
  Array<float> excess({p.n_weights(), p.stride()}), pull({p.n_weights(), p.stride()});
  std::fill(pull.mutable_data(), pull.mutable_data() + pull.size(), 0.0f);
  const LaneFamily family = p.family();
  const LaneLattice lattice{p.n_weights(), factor.data(), ridge.data(), p.diagonal(), p.prior_precision(), tau.data(),
                            excess.mutable_data(), pull.mutable_data(), s.moments()};
  py::gil_scoped_release release;
  start_lanes_from_lattice(family, lattice, p.n_threads());
}

template <class T>
Array<T> multiply(const Array<T>& a, const Array<T>& x, int n_threads) {
  const Index n = x.shape(0), stride = x.shape(1);
  require_shape(a, "a", {n, n});
  if (stride % kLanePack != 0) throw std::invalid_argument("lanes must be padded");
  Array<T> y({n, stride});
  const T *left = a.data(), *right = x.data();
  T* out = y.mutable_data();
  without_gil([&] { multiply_lanes(n, left, right, out, stride, n_threads); });
  return y;
}

}  // namespace

void bind_mean_fields(py::module_& m) {
  m.attr("LANE_PACK") = kLanePack;
  py::class_<LaneProblem>(m, "LaneProblem")
      .def(py::init<Array<float>, Array<double>, Array<double>, Array<double>, Array<double>, int>(),
           "a"_array, "diagonal"_array, "levels"_array, "log_prior"_array, "prior_precision"_array, "n_threads"_a)
      .def("tilt", &tilt, "state"_a)
      .def("sweep", &sweep, "state"_a, "residual"_array, "drift"_array, "tau"_array, "threshold"_array)
      .def("start_from_lattice", &start_from_lattice, "state"_a, "factor"_array, "ridge"_array, "tau"_array);
  py::class_<LaneState>(m, "LaneState")
      .def(py::init<const LaneProblem&>(), "problem"_a)
      .def_readonly("eta", &LaneState::eta_)
      .def_readonly("kappa", &LaneState::kappa_)
      .def_readonly("mean", &LaneState::mean_)
      .def_readonly("second", &LaneState::second_)
      .def_readonly("gain", &LaneState::gain_);
  m.def("multiply_lanes", &multiply<float>, "a"_array, "x"_array, "n_threads"_a);
  m.def("multiply_lanes", &multiply<double>, "a"_array, "x"_array, "n_threads"_a);
}

}  // namespace pydirect
