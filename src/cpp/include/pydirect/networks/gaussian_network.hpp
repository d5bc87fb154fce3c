// Bayesian networks with a Gaussian for every weight: a_1 = x W_1 + b_1, a_l = f(a_{l−1}) W_l + b_l, whose expected
// log-likelihood is found from propagated moments (Wu et al., ICLR 2019) or from draws, with its gradient.
#pragma once

#include <vector>

#include "pydirect/types.hpp"

namespace pydirect {

// Outputs: heteroscedastic and softplus, the means of the targets and then as many l, with noise variance exp l or
// log(1 + exp l); homoscedastic, the means, and one log noise variance per target among the parameters; classification,
// the logits of the classes, to second order or by a bound.
enum class Likelihood { kHeteroscedastic, kHomoscedastic, kSoftplus, kClassification, kTiltedClassification };

inline bool is_classification(Likelihood likelihood) { return likelihood >= Likelihood::kClassification; }

// Prior variance of a set of weights: fixed, or chosen by the weights under InverseGamma(alpha, beta).
struct WeightPrior {
  enum class Kind { kFixed, kEmpirical, kEmpiricalWithoutHyperprior } kind;
  double variance;  // fixed
  double alpha, beta;
};

// Parameters: means of every weight, log standard deviations of every weight, log noise variances. Weights stand layer
// by layer, the matrix (n_in, n_out) before the biases (n_out).
struct GaussianNetwork {
  std::vector<Index> widths;  // inputs, hidden layers, outputs
  Index n_targets;            // or classes
  Activation activation;
  PairKernel kernel;
  bool full_covariance;
  bool skip;  // a_l += a_{l−1} between hidden layers of equal widths
  Likelihood likelihood;
  std::vector<WeightPrior> priors;  // of the matrix and the biases of every layer in turn

  Index n_layers() const { return Index(widths.size()) - 1; }
  Index n_in(Index layer) const { return widths[size_t(layer)]; }
  Index n_out(Index layer) const { return widths[size_t(layer) + 1]; }
  Index first_weight(Index layer) const;  // where its matrix stands among the means; after the last layer, the end
  Index n_weights() const { return first_weight(n_layers()); }
  Index n_noise() const { return likelihood == Likelihood::kHomoscedastic ? n_targets : 0; }
  Index n_parameters() const { return 2 * n_weights() + n_noise(); }
  bool has_skip(Index layer) const {
    return skip && layer > 0 && layer + 1 < n_layers() && n_in(layer) == n_out(layer);
  }
};

// y: (n_rows, n_targets), or (n_rows, 1) with the numbers of the classes. Weights sum to total_weight; null: ones.
struct NetworkRows {
  Index n_rows;
  const double* x;
  const double* y;
  const double* weight;
  double total_weight;
};

// Laws of ξ in w = M + σ ξ, of variance one; radial: ξ = √D r u for the D weights of a set, u uniform on the sphere.
enum class WeightLaw { kNormal, kLaplace, kLogistic, kRadial };

// How the expectation of the log-likelihood is taken over the weights.
struct WeightDraws {
  enum class Kind { kShared, kLocal, kMean } kind;  // weights; pre-activations of each row; no draw: the means
  Index n_draws;
  std::uint64_t seed;
  WeightLaw law = WeightLaw::kNormal;
  // The expectation over the output layer's weights is taken in closed form, by the mean and the variance of the
  // outputs: exact for homoscedastic noise, and for outputs that are Gaussian.
  bool exact_last_layer = false;
};

// Variance of every weight; an overflow stays positive and finite here.
std::vector<double> weight_variances(const GaussianNetwork& network, const double* parameters);
// Σ KL of the weights' Gaussians to their priors; times factor, its gradient is added. Without variances: −log p of the
// means.
double weight_divergence(const GaussianNetwork& network, const double* parameters, const double* variances,
                         double factor, double* gradient);
// Of every set of weights in turn.
void prior_variances(const GaussianNetwork& network, const double* parameters, double* out);

// divergence_factor times the divergence, less the rows' mean expected log-likelihood; gradient (n_parameters,) is set.
double deterministic_objective(const GaussianNetwork& network, const double* parameters, const NetworkRows& rows,
                               double divergence_factor, double* gradient, int n_threads);
double sampled_objective(const GaussianNetwork& network, const double* parameters, const NetworkRows& rows,
                         const WeightDraws& draws, double divergence_factor, double* gradient, int n_threads);

// Mean (n_rows, o) and covariance (n_rows, o, o), or variances (n_rows, o) when that is null, of a layer's
// pre-activations.
void deterministic_moments(const GaussianNetwork& network, const double* parameters, Index n_rows, const double* x,
                           Index layer, double* mean, double* variance, double* covariance, int n_threads);

// Standard normal draws by counter (Philox 4x32-10): element i of a stream is the same whatever is drawn beside it.
void counter_normals(std::uint64_t seed, std::uint32_t stream, std::uint64_t first, Index n, double* out);

// ξ of the weights of the first layers, (first_weight(n_layers),), by counter too.
void standardised_draws(const GaussianNetwork& network, WeightLaw law, std::uint64_t seed, std::uint32_t stream,
                        Index n_layers, double* out);

}  // namespace pydirect
