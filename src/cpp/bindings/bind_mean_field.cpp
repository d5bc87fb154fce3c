#include <pybind11/stl.h>

#include <memory>
#include <optional>

#include "arrays.hpp"
#include "pydirect/regression/mean_field.hpp"

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
    const Index b = c.shape(0), m = levels.shape(1);
    if (b < 1 || m < 1 || m % kLevelPadding != 0) throw std::invalid_argument("levels must be padded");
    require_shape(a, "a", {b, b});
    if (a_exact) require_shape(*a_exact, "a_exact", {b, b});
    require_shape(diagonal, "diagonal", {b});
    require_shape(levels, "levels", {levels.shape(0) == 1 ? 1 : b, m});
    require_shape(log_prior, "log_prior", {log_prior.shape(0) == 1 ? 1 : b, m});
    require_shape(prior_precision, "prior_precision", {b});
    require_shape(noise_log_prior, "noise_log_prior", {noise_levels.shape(0)});
    problem_ = {b,
                a.data(),
                a_exact ? a_exact->data() : nullptr,
                diagonal.data(),
                c.data(),
                yty,
                n_samples,
                {m, levels.data(), levels.shape(0) == 1 ? 0 : m, log_prior.data(), log_prior.shape(0) == 1 ? 0 : m},
                prior_precision.data(),
                noise_levels.shape(0),
                noise_levels.data(),
                noise_log_prior.data()};
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

py::tuple as_tuple(const Progress& p) { return py::make_tuple(p.n_iterations, p.converged, copy(p.trace)); }

template <class Call>
py::tuple run(const Call& call) {
  Progress progress;
  {
    py::gil_scoped_release release;
    progress = call();
  }
  return as_tuple(progress);
}

}  // namespace

void bind_mean_field(py::module_& m) {
  using H = MeanFieldHandle;
  m.attr("LEVEL_PADDING") = kLevelPadding;
  py::class_<H>(m, "MeanField")
      .def(py::init<Array<float>, Optional, Array<double>, Array<double>, double, double, Array<double>, Array<double>,
                    Array<double>, Array<double>, Array<double>, int>(),
           py::arg("a").noconvert(), py::arg("a_exact").noconvert(), py::arg("diagonal").noconvert(),
           py::arg("c").noconvert(), py::arg("yty"), py::arg("n_samples"), py::arg("levels").noconvert(),
           py::arg("log_prior").noconvert(), py::arg("prior_precision").noconvert(),
           py::arg("noise_levels").noconvert(), py::arg("noise_log_prior").noconvert(), py::arg("n_threads"))
      .def("start_from_prior",
           [](H& h) {
             py::gil_scoped_release release;
             h.solver().start_from_prior();
           })
      .def("start_from_ridge",
           [](H& h, const Array<double>& ridge) {
             require_shape(ridge, "ridge", {h.problem().n_weights});
             py::gil_scoped_release release;
             h.solver().start_from_ridge(ridge.data());
           },
           py::arg("ridge").noconvert())
      .def("start_from_lattice",
           [](H& h, const Array<float>& factor, const Array<double>& ridge) {
             require_shape(ridge, "ridge", {h.problem().n_weights});
             require_shape(factor, "factor", {h.problem().n_weights, h.problem().n_weights});
             py::gil_scoped_release release;
             h.solver().start_from_lattice(factor.data(), ridge.data());
           },
           py::arg("factor").noconvert(), py::arg("ridge").noconvert())
      .def("start_from_naturals",
           [](H& h, const Array<double>& eta, const Array<double>& kappa) {
             require_shape(eta, "eta", {h.problem().n_weights});
             require_shape(kappa, "kappa", {h.problem().n_weights});
             py::gil_scoped_release release;
             h.solver().start_from_naturals(eta.data(), kappa.data());
           },
           py::arg("eta").noconvert(), py::arg("kappa").noconvert())
      .def("set_noise",
           [](H& h, const Array<double>& q_noise) {
             require_shape(q_noise, "q_noise", {h.problem().n_noise});
             h.solver().set_noise(q_noise.data());
           },
           py::arg("q_noise").noconvert())
      .def("coordinate_ascent",
           [](H& h, Index max_sweeps, double threshold, double relative_rise, Index refresh_every,
              Index anneal_sweeps) {
             return run([&] {
               return h.solver().coordinate_ascent(max_sweeps, threshold, relative_rise, refresh_every,
                                                   anneal_sweeps);
             });
           },
           py::arg("max_sweeps"), py::arg("threshold"), py::arg("relative_rise"), py::arg("refresh_every"),
           py::arg("anneal_sweeps"))
      .def("newton",
           [](H& h, Index max_iterations, double tolerance, Index max_cg, double cg_tolerance, double relative_rise,
              bool exact) {
             return run([&] {
               return h.solver().newton(max_iterations, tolerance, max_cg, cg_tolerance, relative_rise, exact);
             });
           },
           py::arg("max_iterations"), py::arg("tolerance"), py::arg("max_cg"), py::arg("cg_tolerance"),
           py::arg("relative_rise"), py::arg("exact"))
      .def("large_neighbourhood",
           [](H& h, const Array<Index>& blocks, Index sweeps, double threshold) {
             if (blocks.ndim() != 2) throw std::invalid_argument("blocks must have two dimensions");
             for (Index k = 0; k < blocks.size(); ++k)
               if (blocks.data()[k] < 0 || blocks.data()[k] >= h.problem().n_weights)
                 throw std::invalid_argument("blocks must hold indices of weights");
             return run([&] {
               return h.solver().large_neighbourhood(blocks.data(), blocks.shape(0), blocks.shape(1), sweeps,
                                                     threshold);
             });
           },
           py::arg("blocks").noconvert(), py::arg("sweeps"), py::arg("threshold"))
      .def("elbo",
           [](H& h) {
             py::gil_scoped_release release;
             return h.solver().elbo();
           })
      .def("elbo_and_gradient",
           [](const H& h, Index n_levels, const Array<double>& logits, const Array<double>& noise_logits) {
             const MeanFieldProblem& p = h.problem();
             if (n_levels > p.family.n_levels) throw std::invalid_argument("n_levels must fit into the levels");
             require_shape(logits, "logits", {p.n_weights, n_levels});
             require_shape(noise_logits, "noise_logits", {p.n_noise});
             Array<double> gradient({p.n_weights, n_levels}), noise_gradient(p.n_noise);
             double* g = gradient.mutable_data();
             double* ng = noise_gradient.mutable_data();
             double value = 0.0;
             {
               py::gil_scoped_release release;
               value = elbo_and_gradient(p, n_levels, logits.data(), noise_logits.data(), g, ng, h.n_threads());
             }
             return py::make_tuple(value, gradient, noise_gradient);
           },
           py::arg("n_levels"), py::arg("logits").noconvert(), py::arg("noise_logits").noconvert())
      .def("probabilities",
           [](H& h) {
             Array<double> q({h.problem().n_weights, h.problem().family.n_levels});
             double* data = q.mutable_data();
             {
               py::gil_scoped_release release;
               h.solver().probabilities(data);
             }
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
