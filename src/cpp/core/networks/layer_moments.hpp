// Moments of Gaussian networks, layer by layer, and the way back (Wu et al. 2019, eqs. 3, 6, 14, 15, appendix C.1).
#pragma once

#include <vector>

#include "gaussian_layers.hpp"

namespace pydirect::gaussian_network {

// How the covariance of a layer's pre-activations comes about.
enum class Spread {
  kVariances,   // not at all: variances only
  kPairs,       // from independent units, as products of pairs of columns of M: few outputs
  kScaled,      // from independent units, Mᵀ diag(hv) M row by row
  kCovariance,  // from correlated units, Mᵀ C M row by row
};
inline Index n_pairs(Index n) { return n * (n + 1) / 2; }

// One layer with its parameters in the forms that products need, and where its sums stand in an accumulator.
struct Layer {
  Index n_in, n_out;
  bool first, skip;
  Spread spread;
  const double *m, *bias;         // (n_in, n_out), (n_out,)
  const double *v, *bias_v;
  Packed mean, variance;          // M and V
  Packed quadratic;               // M∘M, or the products of pairs of columns
  std::vector<double> transposed; // Mᵀ, row by row
  // Sums over rows: ∂/∂M of the means, ∂/∂b, ∂/∂V, ∂/∂ its bias, and ∂ in whatever makes up the covariance.
  Index sum_mean, sum_bias, sum_v, sum_bias_v, sum_quadratic;

  bool has_covariance() const { return spread != Spread::kVariances; }
  Index quadratic_columns() const { return spread == Spread::kPairs ? n_pairs(n_out) : n_out; }
};

struct Model {
  const GaussianNetwork& network;
  std::vector<double> variances;
  std::vector<Layer> layers;
  Index n_sums;  // doubles of an accumulator: its first is the log-likelihood
  Index sum_noise;
};

Model make_model(const GaussianNetwork& network, const double* parameters);

// What a block of rows keeps of one layer, and, for hidden layers, of the units above it.
struct LayerRows {
  double *mean, *variance;           // (n, o)
  double *covariance, *residual;     // (n, o, o); residual, of hidden layers, see unit_covariance.hpp
  UnitMoments units;                 // (n, o) each, of f(a); slopes only under a skip
  double* product;                   // (n, panels of C M) when units are correlated
};

// Memory of a block of rows, handed out in order; with a null base it only counts.
struct BlockRows {
  Index n_rows;
  std::vector<LayerRows> layers;
  double* x_squared;
  double *mean_bar, *mean_bar_below, *variance_bar, *variance_bar_below;  // (n, widest)
  double *covariance_bar, *covariance_bar_below;                          // (n, o, o) of the widest correlated layer
  double *hm_bar, *v_bar, *hv_bar;                                        // (n, widest)
  double *pairs, *slope_bar;                                              // of independent units; of skips
  double *square, *other_square, *packed, *scratch;                       // of one row
  Index size;
};

BlockRows lay_out(const Model& model, Index n, double* base);

// Rows at a time: few enough for the cache, enough for the products over rows.
Index rows_per_block(const Model& model);

// Roughly the multiplications per row, forward and backward.
double products_per_row(const Model& model);

class Propagation {
 public:
  Propagation(const Model& model, double* memory, Index n_rows)
      : model_(model), block_(lay_out(model, n_rows, memory)) {}

  const LayerRows& layer(Index l) const { return block_.layers[size_t(l)]; }

  // Through layers 0 … last, for rows that fill the block or not.
  void forward(Index n_rows, const double* x, Index last) {
    n_ = n_rows;
    x_ = x;
    const Index n_inputs = n_ * model_.network.n_in(0);
    for (Index i = 0; i < n_inputs; ++i) block_.x_squared[i] = x[i] * x[i];
    for (Index l = 0; l <= last; ++l) forward_layer(l);
  }

  // Adds the log-likelihood, and what the gradient is made of, to an accumulator.
  void likelihood_and_adjoint(const double* y, const double* weight, const double* log_noise, double* sums);

 private:
  const Layer& layer_of(Index l) const { return model_.layers[size_t(l)]; }
  Activation activation() const { return model_.network.activation; }
  // d E f(a)/d mean of every unit.
  const double* unit_slopes(const LayerRows& rows) const {
    return activation() == Activation::kRelu ? rows.units.cdf : rows.units.density;
  }

  void forward_layer(Index l);
  void forward_covariance(const Layer& layer, const LayerRows& in, const LayerRows& out);
  void add_skip(const Layer& layer, const LayerRows& in, const LayerRows& out);

  void backward_layer(Index l, double* sums);
  void backward_covariance(const Layer& layer, const LayerRows& in, const LayerRows& out, double* sums);
  void backward_skip(const Layer& layer, const LayerRows& in, double* sums);

  const Model& model_;
  BlockRows block_;
  Index n_ = 0;
  const double* x_ = nullptr;
};

// From the sums over rows to the gradient: through V = exp 2 log σ, and through what made up the covariance.
void finish_gradient(const Model& model, const double* sums, double factor, double* gradient);

}  // namespace pydirect::gaussian_network
