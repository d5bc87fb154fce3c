#include <pybind11/stl.h>

#include <memory>
#include <optional>

#include "problems.hpp"

namespace pydirect {
namespace {

using Optional = std::optional<Array<double>>;

// Owns references to the arrays that the problem points into.
class MeanFieldHandle {
 public:
  MeanFieldHandle(Array<float> a, Optional a_exact, Array<double> diagonal, Array<double> c, double yty,
                  double n_samples, Array<double> levels, Array<double> log_prior, Array<double> prior_precision,
                  Array<double> noise_levels, Array<double> noise_log_prior, int n_threads)
      : n_threads_(n_threads) {
    const Index b = c.shape(0);
    if (a_exact) require_shape(*a_exact, "a_exact", {b, b});
    problem_ = mean_field_problem(a, a_exact ? a_exact->data() : nullptr, diagonal, c, yty, n_samples,
                                  tilt_family(levels, log_prior, b), prior_precision, noise_levels, noise_log_prior);
    kept_ = py::make_tuple(a, a_exact ? py::object(*a_exact) : py::none(), diagonal, c, levels, log_prior,
                           prior_precision, noise_levels, noise_log_prior);
    solver_ = std::make_unique<MeanField>(problem_, n_threads);
  }

  MeanField& solver() { return *solver_; }
  py::object a() const { return kept_[0]; }
  const MeanFieldProblem& problem() const { return problem_; }
  int n_threads() const { return n_threads_; }

 private:
  MeanFieldProblem problem_;
  py::tuple kept_;
  std::unique_ptr<MeanField> solver_;
  int n_threads_;
};

}  // namespace

void bind_mean_field(py::module_& m) {
  using H = MeanFieldHandle;
  m.attr("LEVEL_PADDING") = kLevelPadding;
  py::class_<H>(m, "MeanField")
      .def(py::init<Array<float>, Optional, Array<double>, Array<double>, double, double, Array<double>, Array<double>,
                    Array<double>, Array<double>, Array<double>, int>(),
           "a"_array, "a_exact"_array, "diagonal"_array, "c"_array, "yty"_a, "n_samples"_a, "levels"_array,
           "log_prior"_array, "prior_precision"_array, "noise_levels"_array, "noise_log_prior"_array, "n_threads"_a)
      .def("start_from_lattice",
           [](H& h, const Array<float>& factor, const Array<std::int64_t>& order, const Array<double>& ridge) {
             require_order(order, h.problem().n_weights);
             require_shape(ridge, "ridge", {h.problem().n_weights});
             require_shape(factor, "factor", {h.problem().n_weights, h.problem().n_weights});
             py::gil_scoped_release release;
             h.solver().start_from_lattice(factor.data(), order.data(), ridge.data());
           },
           "factor"_array, "order"_array, "ridge"_array)
      .def("start_from_naturals",
           [](H& h, const Array<double>& eta, const Array<double>& kappa) {
             require_shape(eta, "eta", {h.problem().n_weights});
             require_shape(kappa, "kappa", {h.problem().n_weights});
             py::gil_scoped_release release;
             h.solver().start_from_naturals(eta.data(), kappa.data());
           },
           "eta"_array, "kappa"_array)
      .def("set_noise",
           [](H& h, const Array<double>& q_noise) {
             require_shape(q_noise, "q_noise", {h.problem().n_noise});
             h.solver().set_noise(q_noise.data());
           },
           "q_noise"_array)
      .def("coordinate_ascent",
           [](H& h, Index max_sweeps, double threshold, double relative_rise, bool exact) {
             return run([&] {
               return h.solver().coordinate_ascent(max_sweeps, threshold, relative_rise, exact);
             });
           },
           "max_sweeps"_a, "threshold"_a, "relative_rise"_a, "exact"_a)
      .def("newton",
           [](H& h, Index max_iterations, double tolerance, Index max_cg, double cg_tolerance, double relative_rise,
              bool exact) {
             return run([&] {
               return h.solver().newton(max_iterations, tolerance, max_cg, cg_tolerance, relative_rise, exact);
             });
           },
           "max_iterations"_a, "tolerance"_a, "max_cg"_a, "cg_tolerance"_a, "relative_rise"_a, "exact"_a)
      .def("elbo",
           [](H& h) { return without_gil([&] { return h.solver().elbo(); }); })
      .def("elbo_and_gradient",
           [](const H& h, Index n_levels, const Array<double>& logits, const Array<double>& noise_logits) {
             const MeanFieldProblem& p = h.problem();
             if (n_levels > p.family.n_levels) throw std::invalid_argument("n_levels must fit into the levels");
             require_shape(logits, "logits", {p.n_weights, n_levels});
             require_shape(noise_logits, "noise_logits", {p.n_noise});
             Array<double> gradient({p.n_weights, n_levels}), noise_gradient(p.n_noise);
             double *g = gradient.mutable_data(), *ng = noise_gradient.mutable_data();
             const double value = without_gil([&] {
               return elbo_and_gradient(p, n_levels, logits.data(), noise_logits.data(), g, ng, h.n_threads());
             });
             return py::make_tuple(value, gradient, noise_gradient);
           },
           "n_levels"_a, "logits"_array, "noise_logits"_array)
      .def("probabilities",
           [](H& h) {
             Array<double> q({h.problem().n_weights, h.problem().family.n_levels});
             without_gil([&] { h.solver().probabilities(q.mutable_data()); });
             return q;
           })
      .def_property_readonly("a", [](H& h) { return h.a(); })
      .def_property_readonly("tau", [](H& h) { return h.solver().tau(); })
      .def_property_readonly("eta", [](H& h) { return copy(h.solver().eta()); })
      .def_property_readonly("kappa", [](H& h) { return copy(h.solver().kappa()); })
      .def_property_readonly("mean", [](H& h) { return copy(h.solver().mean()); })
      .def_property_readonly("second_moment", [](H& h) { return copy(h.solver().second_moment()); })
      .def_property_readonly("q_noise", [](H& h) { return copy(h.solver().q_noise()); });
}

}  // namespace pydirect
