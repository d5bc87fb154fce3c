#include <memory>
#include <vector>

#include "problems.hpp"
#include "pydirect/regression/mixture.hpp"

namespace pydirect {
namespace {

// Owns references to the arrays that the problem points into.
class MixtureHandle {
 public:
  MixtureHandle(Array<float> a, Array<double> a_exact, Array<double> diagonal,
                Array<double> c, double yty, double n_samples, Array<double> levels, Array<double> log_prior,
                Array<double> prior_precision, Array<double> noise_levels, Array<double> noise_log_prior,
                Index n_components, int n_threads)
      : n_weights_(c.shape(0)), n_levels_(levels.shape(1)) {
    const Index b = n_weights_, m = n_levels_, r = n_components;
    if (m < 1 || m % kLevelPadding != 0 || m > kMostLevels)
      throw std::invalid_argument("levels must be padded and few");
    if (r < 1 || r > kMostComponents) throw std::invalid_argument("n_components must be 1 to 64");
    if (log_prior.ndim() != 3) throw std::invalid_argument("log_prior must have three dimensions");
    const Index own_priors = log_prior.shape(0) == 1 ? 1 : r, prior_rows = log_prior.shape(1) == 1 ? 1 : b;
    require_shape(a_exact, "a_exact", {b, b});
    require_shape(levels, "levels", {levels.shape(0) == 1 ? 1 : b, m});
    require_shape(log_prior, "log_prior", {own_priors, prior_rows, m});
    std::vector<TiltFamily> families;
    for (Index i = 0; i < r; ++i)
      families.push_back({m, levels.data(), levels.shape(0) == 1 ? 0 : m,
                          log_prior.data() + (own_priors == 1 ? 0 : i * prior_rows * m), prior_rows == 1 ? 0 : m});
    const MeanFieldProblem problem = mean_field_problem(a, a_exact.data(), diagonal, c, yty, n_samples, families[0],
                                                        prior_precision, noise_levels, noise_log_prior);
    kept_ = py::make_tuple(a, a_exact, diagonal, c, levels, log_prior, prior_precision, noise_levels, noise_log_prior);
    mixture_ = std::make_unique<Mixture>(problem, families, n_threads);
  }

  Mixture& mixture() { return *mixture_; }
  Index n_weights() const { return n_weights_; }
  Index n_levels() const { return n_levels_; }

 private:
  Index n_weights_, n_levels_;
  py::tuple kept_;
  std::unique_ptr<Mixture> mixture_;
};

}  // namespace

void bind_mixture(py::module_& m) {
  using H = MixtureHandle;
  m.attr("MOST_COMPONENTS") = kMostComponents;
  py::class_<H>(m, "Mixture")
      .def(py::init<Array<float>, Array<double>, Array<double>, Array<double>, double, double, Array<double>,
                    Array<double>, Array<double>, Array<double>, Array<double>, Index, int>(),
           "a"_array, "a_exact"_array, "diagonal"_array, "c"_array, "yty"_a, "n_samples"_a, "levels"_array,
           "log_prior"_array, "prior_precision"_array, "noise_levels"_array, "noise_log_prior"_array, "n_components"_a,
           "n_threads"_a)
      .def("set_component",
           [](H& h, Index i, const Array<double>& q) {
             if (i < 0 || i >= h.mixture().n_components()) throw std::invalid_argument("no such component");
             require_shape(q, "q", {h.n_weights(), h.n_levels()});
             py::gil_scoped_release release;
             h.mixture().set_component(i, q.data());
           },
           "i"_a, "q"_array)
      .def("set_alpha",
           [](H& h, const Array<double>& alpha) {
             require_shape(alpha, "alpha", {h.mixture().n_components()});
             h.mixture().set_alpha(alpha.data());
           },
           "alpha"_array)
      .def("set_noise",
           [](H& h, const Array<double>& q_noise) {
             require_shape(q_noise, "q_noise", {Index(h.mixture().q_noise().size())});
             h.mixture().set_noise(q_noise.data());
           },
           "q_noise"_array)
      .def("set_offsets",
           [](H& h, const Array<double>& offsets) {
             require_shape(offsets, "offsets", {h.mixture().n_components()});
             h.mixture().set_offsets(offsets.data());
           },
           "offsets"_array)
      .def("ascend",
           [](H& h, Index max_sweeps, double threshold, double relative_rise, Index refresh_every) {
             return run([&] { return h.mixture().ascend(max_sweeps, threshold, relative_rise, refresh_every); });
           },
           "max_sweeps"_a, "threshold"_a, "relative_rise"_a, "refresh_every"_a)
      .def("elbo",
           [](H& h) { return without_gil([&] { return h.mixture().elbo(); }); })
      .def("probabilities",
           [](H& h) {
             const Index r = h.mixture().n_components(), size = h.n_weights() * h.n_levels();
             Array<double> q({r, h.n_weights(), h.n_levels()});
             double* data = q.mutable_data();
             without_gil([&] {
               for (Index i = 0; i < r; ++i) h.mixture().probabilities(i, data + i * size);
             });
             return q;
           })
      .def_property_readonly("alpha", [](H& h) { return copy(h.mixture().alpha()); })
      .def_property_readonly("q_noise", [](H& h) { return copy(h.mixture().q_noise()); })
      .def_property_readonly("mean", [](H& h) {
        return Array<double>({h.mixture().n_components(), h.n_weights()}, h.mixture().mean().data());
      });

  m.def("component_log_masses",
        [](const Array<std::uint8_t>& indices, const Array<double>& table, int n_threads) {
          if (indices.ndim() != 2 || table.ndim() != 3)
            throw std::invalid_argument("indices and table: (n, b), (b, m, r)");
          const Index n = indices.shape(0), b = indices.shape(1), levels = table.shape(1), r = table.shape(2);
          require_shape(table, "table", {b, levels, r});
          Array<double> out({n, r});
          double* data = out.mutable_data();
          without_gil(
              [&] { component_log_masses(n, b, levels, r, indices.data(), table.data(), data, n_threads); });
          return out;
        },
        "indices"_array, "table"_array, "n_threads"_a);
  m.def("sum_by_level",
        [](const Array<std::uint8_t>& indices, const Array<double>& coefficients, Array<double>& out, int n_threads) {
          if (indices.ndim() != 2 || out.ndim() != 3) throw std::invalid_argument("indices and out: (n, b), (b, m, r)");
          const Index n = indices.shape(0), b = indices.shape(1), levels = out.shape(1), r = out.shape(2);
          require_shape(coefficients, "coefficients", {n, r});
          require_shape(out, "out", {b, levels, r});
          double* data = out.mutable_data();
          py::gil_scoped_release release;
          sum_by_level(n, b, levels, r, indices.data(), coefficients.data(), data, n_threads);
        },
        "indices"_array, "coefficients"_array, "out"_array, "n_threads"_a);
}

}  // namespace pydirect
