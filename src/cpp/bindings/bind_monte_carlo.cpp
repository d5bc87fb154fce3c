#include <optional>

#include <pybind11/stl.h>

#include "arrays.hpp"
#include "pydirect/monte_carlo/divergence.hpp"

namespace pydirect {
namespace {

using Slopes = std::optional<Array<double>>;
using Location = std::optional<Array<double>>;

template <class T, std::size_t n>
T one_of(const std::string& name, const char* const (&names)[n]) {
  for (std::size_t i = 0; i < n; ++i)
    if (name == names[i]) return T(i);
  throw std::invalid_argument("unknown name: " + name);
}

BaseDraws make_draws(const std::string& layout, const std::string& law, double shape, std::uint64_t seed,
                     std::uint32_t epoch, Index first_draw, Index n_draws, Index n_weights) {
  static const char* const layouts[] = {"independent", "shared", "radial"};
  static const char* const laws[] = {"normal",  "laplace",  "logistic",      "exponential", "gamma",
                                     "weibull", "rayleigh", "inverse_gamma", "wald",        "horseshoe"};
  if (n_draws < 1 || n_weights < 1 || first_draw < 0 || first_draw % 2 != 0 || (first_draw > 0 && layout == "shared"))
    throw std::invalid_argument("no such draws");
  return {one_of<BaseDraws::Layout>(layout, layouts), one_of<BaseLaw>(law, laws), shape, seed, epoch, first_draw,
          n_draws, n_weights};
}

// A log-density with the arrays that it points to.
class Density {
 public:
  Density(const std::string& kind, double centre, double scale, double log_scale,
          std::vector<std::vector<double>> pieces, std::vector<double> knots, std::vector<double> exponents,
          std::vector<double> factors, Index n_logs, double log_factor, double log_square_factor, double log_centre)
      : knots_(std::move(knots)), exponents_(std::move(exponents)), factors_(std::move(factors)) {
    static const char* const kinds[] = {"polynomial", "powers", "logistic"};
    for (const auto& piece : pieces) coefficients_.insert(coefficients_.end(), piece.begin(), piece.end());
    const Index degree = pieces.empty() ? 0 : Index(pieces[0].size()) - 1, n_powers = Index(exponents_.size());
    const auto type = one_of<LogDensity::Kind>(kind, kinds);
    if (degree > kMostSums || n_powers + n_logs > kMostSums || exponents_.size() != factors_.size() ||
        coefficients_.size() != pieces.size() * std::size_t(degree + 1) ||
        (type == LogDensity::Kind::kPolynomial && pieces.size() != knots_.size() + 1))
      throw std::invalid_argument("inconsistent log-density");
    density_ = {type,      centre,            scale,         log_scale, degree, Index(knots_.size()), nullptr,
                nullptr,   n_powers,          n_logs,        nullptr,   nullptr, log_factor, log_square_factor,
                log_centre};
  }

  LogDensity get() const {
    LogDensity density = density_;
    density.coefficients = coefficients_.data();
    density.knots = knots_.data();
    density.exponents = exponents_.data();
    density.factors = factors_.data();
    return density;
  }

 private:
  std::vector<double> coefficients_, knots_, exponents_, factors_;
  LogDensity density_;
};

const double* data_of(const Location& a, const char* name, Index n) {
  if (!a) return nullptr;
  require_shape(*a, name, {n});
  return a->data();
}

double* data_of(Slopes& a, Index n) {
  if (!a) return nullptr;
  require_shape(*a, "location_slope", {n});
  return a->mutable_data();
}

double from_sums(const Density& density, const Location& location, const Array<double>& scale,
                 const Array<double>& sums, Slopes location_slope, Array<double> scale_slope, int n_threads) {
  const LogDensity p = density.get();
  const Index n = scale.shape(0);
  const bool powers = p.kind == LogDensity::Kind::kPowers;
  if (p.kind == LogDensity::Kind::kLogistic || p.n_knots > 0 || (!powers && (!location || !location_slope)))
    throw std::invalid_argument("no sums hold this log-density");
  const bool shared = sums.ndim() == 2 && sums.shape(1) == 1;
  require_shape(sums, "sums", {powers ? p.n_powers + p.n_logs : p.degree, shared ? 1 : n});
  require_shape(scale_slope, "scale_slope", {n});
  return without_gil([&, mu = data_of(location, "location", n), mu_slope = data_of(location_slope, n)] {
    return divergence_from_sums(p, n, mu, scale.data(), sums.data(), shared, mu_slope, scale_slope.mutable_data(),
                                n_threads);
  });
}

double from_draws(const Density& density, const BaseDraws& draws, bool exponential, const Location& location,
                  const Array<double>& scale, Slopes location_slope, Array<double> scale_slope, int n_threads) {
  const Index n = draws.n_weights;
  require_shape(scale, "scale", {n});
  require_shape(scale_slope, "scale_slope", {n});
  return without_gil([&, mu = data_of(location, "location", n), mu_slope = data_of(location_slope, n)] {
    return divergence_from_draws(density.get(), draws, exponential, mu, scale.data(), mu_slope,
                                 scale_slope.mutable_data(), n_threads);
  });
}

double from_ranks(const SortedDraws& sorted, const Density& density, const Location& location,
                  const Array<double>& scale, Slopes location_slope, Array<double> scale_slope, int n_threads) {
  const Index n = scale.shape(0);
  require_shape(scale_slope, "scale_slope", {n});
  return without_gil([&, mu = data_of(location, "location", n), mu_slope = data_of(location_slope, n)] {
    return sorted.divergence(density.get(), n, mu, scale.data(), mu_slope, scale_slope.mutable_data(), n_threads);
  });
}

}  // namespace

void bind_monte_carlo(py::module_& m) {
  py::class_<BaseDraws>(m, "BaseDraws")
      .def(py::init(&make_draws), "layout"_a, "law"_a, "shape"_a, "seed"_a, "epoch"_a, "first_draw"_a, "n_draws"_a,
           "n_weights"_a)
      .def(
          "draws",
          [](const BaseDraws& d, int n_threads) {
            Array<double> out({d.n_draws, d.n_columns()});
            without_gil([&] { base_draws(d, out.mutable_data(), n_threads); });
            return out;
          },
          "n_threads"_a)
      .def(
          "mean_powers",
          [](const BaseDraws& d, std::vector<double> exponents, Index n_logs, int n_threads) {
            const Exponents e{std::move(exponents), n_logs};
            if (e.n_sums() < 1 || e.n_sums() > kMostSums) throw std::invalid_argument("too many sums, or none");
            Array<double> out({e.n_sums(), d.n_columns()});
            without_gil([&] { mean_powers(d, e, out.mutable_data(), n_threads); });
            return out;
          },
          "exponents"_a, "n_logs"_a, "n_threads"_a)
      .def(
          "mean_powers_of_normals",
          [](const BaseDraws& d, int n_threads) {
            Array<double> out({Index(2), d.n_weights});
            without_gil([&] { mean_powers_of_normals(d, out.mutable_data(), n_threads); });
            return out;
          },
          "n_threads"_a);
  py::class_<Density>(m, "LogDensity")
      .def(py::init<const std::string&, double, double, double, std::vector<std::vector<double>>, std::vector<double>,
                    std::vector<double>, std::vector<double>, Index, double, double, double>(),
           "kind"_a, "centre"_a, "scale"_a, "log_scale"_a, "pieces"_a, "knots"_a, "exponents"_a, "factors"_a,
           "n_logs"_a, "log_factor"_a, "log_square_factor"_a, "log_centre"_a)
      .def("divergence_from_sums", &from_sums, "location"_array, "scale"_array, "sums"_array, "location_slope"_array,
           "scale_slope"_array, "n_threads"_a)
      .def("divergence_from_draws", &from_draws, "draws"_a, "exponential"_a, "location"_array, "scale"_array,
           "location_slope"_array, "scale_slope"_array, "n_threads"_a);
  py::class_<SortedDraws>(m, "SortedDraws")
      .def(py::init<const BaseDraws&, Index, int>(), "draws"_a, "degree"_a, "n_threads"_a,
           py::call_guard<py::gil_scoped_release>())
      .def("divergence", &from_ranks, "density"_a, "location"_array, "scale"_array, "location_slope"_array,
           "scale_slope"_array, "n_threads"_a);
}

}  // namespace pydirect
