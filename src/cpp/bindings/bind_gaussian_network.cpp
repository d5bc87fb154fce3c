#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "choices.hpp"
#include "pydirect/networks/gaussian_network.hpp"

namespace pydirect {
namespace {

// (kind, variance, alpha, beta)
using PriorArguments = std::tuple<std::string, double, double, double>;

GaussianNetwork make_network(const std::vector<Index>& widths, Index n_targets, const std::string& likelihood,
                             const std::string& activation, bool full_covariance, const std::string& kernel, bool skip,
                             const std::vector<PriorArguments>& priors) {
  GaussianNetwork network{};
  if (widths.size() < 2) throw std::invalid_argument("a network needs inputs and outputs");
  for (const Index width : widths)
    if (width < 1) throw std::invalid_argument("every layer needs units");
  network.widths = widths;
  network.n_targets = n_targets;
  network.likelihood = choose<Likelihood>({{"heteroscedastic", Likelihood::kHeteroscedastic},
                                           {"homoscedastic", Likelihood::kHomoscedastic},
                                           {"softplus", Likelihood::kSoftplus},
                                           {"classification", Likelihood::kClassification},
                                           {"tilted_classification", Likelihood::kTiltedClassification}},
                                          likelihood);
  const bool pairs = network.likelihood == Likelihood::kHeteroscedastic || network.likelihood == Likelihood::kSoftplus;
  if (n_targets < 1 || widths.back() != (pairs ? 2 : 1) * n_targets)
    throw std::invalid_argument("the outputs are not those of the likelihood");
  network.activation = activation_of(activation);
  network.full_covariance = full_covariance;
  network.kernel = pair_kernel_of(kernel);
  network.skip = skip;
  for (const auto& [kind, variance, alpha, beta] : priors)
    network.priors.push_back({choose<WeightPrior::Kind>({{"fixed", WeightPrior::Kind::kFixed},
                                                         {"map", WeightPrior::Kind::kEmpirical},
                                                         {"code", WeightPrior::Kind::kEmpiricalWithoutHyperprior}},
                                                        kind),
                              variance, alpha, beta});
  if (Index(network.priors.size()) != 2 * network.n_layers())
    throw std::invalid_argument("every matrix and every vector of biases needs a prior");
  return network;
}

WeightLaw weight_law(const std::string& name) {
  return choose<WeightLaw>({{"normal", WeightLaw::kNormal},
                            {"laplace", WeightLaw::kLaplace},
                            {"logistic", WeightLaw::kLogistic},
                            {"radial", WeightLaw::kRadial}},
                           name);
}

const double* parameters_of(const GaussianNetwork& network, const Array<double>& parameters) {
  require_shape(parameters, "parameters", {network.n_parameters()});
  return parameters.data();
}

NetworkRows make_rows(const GaussianNetwork& network, const Array<double>& x, const Array<double>& y,
                      const std::optional<Array<double>>& weight, double total_weight) {
  const Index n = x.shape(0);
  const bool labels = is_classification(network.likelihood);
  require_shape(x, "x", {n, network.n_in(0)});
  require_shape(y, "y", {n, labels ? 1 : network.n_targets});
  if (weight) require_shape(*weight, "weight", {n});
  if (labels)
    for (Index i = 0; i < n; ++i)
      if (!(y.data()[i] >= 0 && y.data()[i] < double(network.n_targets)))
        throw std::invalid_argument("y must hold numbers of classes");
  return {n, x.data(), y.data(), weight ? weight->data() : nullptr, total_weight};
}

py::tuple objective(const GaussianNetwork& network, const Array<double>& parameters, const Array<double>& x,
                    const Array<double>& y, const std::optional<Array<double>>& weight, double total_weight,
                    double divergence_factor, int n_threads) {
  const double* theta = parameters_of(network, parameters);
  const NetworkRows rows = make_rows(network, x, y, weight, total_weight);
  Array<double> gradient(network.n_parameters());
  const double value = without_gil([&] {
    return deterministic_objective(network, theta, rows, divergence_factor, gradient.mutable_data(), n_threads);
  });
  return py::make_tuple(value, gradient);
}

py::tuple sampled(const GaussianNetwork& network, const Array<double>& parameters, const Array<double>& x,
                  const Array<double>& y, const std::optional<Array<double>>& weight, double total_weight,
                  double divergence_factor, const std::string& kind, Index n_draws, std::uint64_t seed, int n_threads,
                  const std::string& law, bool exact_last_layer) {
  const double* theta = parameters_of(network, parameters);
  const NetworkRows rows = make_rows(network, x, y, weight, total_weight);
  const WeightDraws draws{choose<WeightDraws::Kind>({{"shared", WeightDraws::Kind::kShared},
                                                     {"local", WeightDraws::Kind::kLocal},
                                                     {"mean", WeightDraws::Kind::kMean}},
                                                    kind),
                          n_draws, seed,
                          weight_law(law), exact_last_layer};
  if (n_draws < 1) throw std::invalid_argument("n_draws must be positive");
  if (draws.kind != WeightDraws::Kind::kShared && draws.law != WeightLaw::kNormal)
    throw std::invalid_argument("only weights are drawn from other laws than the normal one");
  if (network.activation != Activation::kRelu) throw std::invalid_argument("pathwise gradients need ReLU units");
  Array<double> gradient(network.n_parameters());
  const double value = without_gil([&] {
    return sampled_objective(network, theta, rows, draws, divergence_factor, gradient.mutable_data(), n_threads);
  });
  return py::make_tuple(value, gradient);
}

py::tuple moments(const GaussianNetwork& network, const Array<double>& parameters, const Array<double>& x, Index layer,
                  bool covariance, int n_threads) {
  const double* theta = parameters_of(network, parameters);
  const Index n = x.shape(0);
  require_shape(x, "x", {n, network.n_in(0)});
  if (layer < 0 || layer >= network.n_layers()) throw std::invalid_argument("there is no such layer");
  const Index o = network.n_out(layer);
  Array<double> mean({n, o});
  Array<double> spread = covariance ? Array<double>({n, o, o}) : Array<double>({n, o});
  double *m = mean.mutable_data(), *s = spread.mutable_data();
  const double* rows = x.data();
  without_gil([&] {
    deterministic_moments(network, theta, n, rows, layer, m, covariance ? nullptr : s, covariance ? s : nullptr,
                          n_threads);
  });
  return py::make_tuple(mean, spread);
}

py::tuple divergence(const GaussianNetwork& network, const Array<double>& parameters) {
  const double* theta = parameters_of(network, parameters);
  Array<double> gradient(network.n_parameters());
  double* g = gradient.mutable_data();
  const double value = without_gil([&] {
    std::fill_n(g, network.n_parameters(), 0.0);
    return weight_divergence(network, theta, weight_variances(network, theta).data(), 1.0, g);
  });
  return py::make_tuple(value, gradient);
}

Array<double> variances(const GaussianNetwork& network, const Array<double>& parameters) {
  const double* theta = parameters_of(network, parameters);
  Array<double> out(2 * network.n_layers());
  without_gil([&] { prior_variances(network, theta, out.mutable_data()); });
  return out;
}

Array<double> draws_of_weights(const GaussianNetwork& network, const std::string& law_name, std::uint64_t seed,
                               Index n_draws) {
  const WeightLaw law = weight_law(law_name);
  Array<double> out({n_draws, network.n_weights()});
  double* xi = out.mutable_data();
  py::gil_scoped_release release;
  for (Index draw = 0; draw < n_draws; ++draw)
    standardised_draws(network, law, seed, std::uint32_t(draw), network.n_layers(), xi + draw * network.n_weights());
  return out;
}

Array<double> normals(std::uint64_t seed, std::uint32_t stream, std::uint64_t first, Index n) {
  Array<double> out(n);
  without_gil([&] { counter_normals(seed, stream, first, n, out.mutable_data()); });
  return out;
}

}  // namespace

void bind_gaussian_network(py::module_& m) {
  py::class_<GaussianNetwork>(m, "GaussianNetwork")
      .def(py::init(&make_network), "widths"_a, "n_targets"_a, "likelihood"_a, "activation"_a, "full_covariance"_a,
           "kernel"_a, "skip"_a, "priors"_a)
      .def("objective", &objective, "parameters"_array, "x"_array, "y"_array, "weight"_array, "total_weight"_a,
           "divergence_factor"_a, "n_threads"_a)
      .def("sampled_objective", &sampled, "parameters"_array, "x"_array, "y"_array, "weight"_array, "total_weight"_a,
           "divergence_factor"_a, "kind"_a, "n_draws"_a, "seed"_a, "n_threads"_a, "law"_a = "normal",
           "exact_last_layer"_a = false)
      .def("moments", &moments, "parameters"_array, "x"_array, "layer"_a, "covariance"_a, "n_threads"_a)
      .def("divergence", &divergence, "parameters"_array)
      .def("prior_variances", &variances, "parameters"_array)
      .def("standardised_draws", &draws_of_weights, "law"_a, "seed"_a, "n_draws"_a)
      .def_property_readonly("n_parameters", &GaussianNetwork::n_parameters);
  m.def("counter_normals", &normals, "seed"_a, "stream"_a, "first"_a, "n"_a);
}

}  // namespace pydirect
