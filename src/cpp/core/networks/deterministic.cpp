// Moments of Gaussian networks, layer by layer, and the way back (Wu et al. 2019, eqs. 3, 6, 14, 15, appendix C.1).
#include <algorithm>
#include <vector>

#include "gaussian_layers.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

using namespace gaussian_network;

// How the covariance of a layer's pre-activations comes about.
enum class Spread {
  kVariances,   // not at all: variances only
  kPairs,       // from independent units, as products of pairs of columns of M: few outputs
  kScaled,      // from independent units, Mᵀ diag(hv) M row by row
  kCovariance,  // from correlated units, Mᵀ C M row by row
};
constexpr Index kMostPairs = 64;

Index n_pairs(Index n) { return n * (n + 1) / 2; }

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

Spread choose_spread(const GaussianNetwork& network, Index l, const std::vector<Layer>& below) {
  if (l == 0 || !network.full_covariance) return Spread::kVariances;
  if (below.back().has_covariance()) return Spread::kCovariance;
  const bool skip = network.has_skip(l);
  if (network.n_out(l) == 1 && !skip) return Spread::kVariances;
  return n_pairs(network.n_out(l)) <= kMostPairs ? Spread::kPairs : Spread::kScaled;
}

Model make_model(const GaussianNetwork& network, const double* parameters) {
  Model model{network, weight_variances(network, parameters), {}, 1, 0};
  model.layers.reserve(size_t(network.n_layers()));
  for (Index l = 0; l < network.n_layers(); ++l) {
    Layer layer{};
    const Index d = layer.n_in = network.n_in(l), o = layer.n_out = network.n_out(l), w = network.first_weight(l);
    layer.first = l == 0;
    layer.skip = network.has_skip(l);
    layer.spread = choose_spread(network, l, model.layers);
    layer.m = parameters + w;
    layer.bias = layer.m + d * o;
    layer.v = model.variances.data() + w;
    layer.bias_v = layer.v + d * o;
    // Nothing goes back to the inputs.
    layer.mean.set(d, o, layer.m, !layer.first);
    layer.variance.set(d, o, layer.v, !layer.first);
    std::vector<double> quadratic;
    if (layer.spread == Spread::kPairs) {
      quadratic.reserve(size_t(d * n_pairs(o)));
      for (Index j = 0; j < d; ++j)
        for (Index i = 0; i < o; ++i)
          for (Index k = i; k < o; ++k) quadratic.push_back(layer.m[j * o + i] * layer.m[j * o + k]);
      layer.quadratic.set(d, n_pairs(o), quadratic.data());
    } else if (!layer.first && layer.spread == Spread::kVariances) {
      quadratic.reserve(size_t(d * o));
      for (Index i = 0; i < d * o; ++i) quadratic.push_back(layer.m[i] * layer.m[i]);
      layer.quadratic.set(d, o, quadratic.data());
    } else if (!layer.first) {
      layer.transposed.resize(size_t(d * o));
      for (Index j = 0; j < d; ++j)
        for (Index i = 0; i < o; ++i) layer.transposed[size_t(i * d + j)] = layer.m[j * o + i];
    }
    const auto take = [&](Index n) { return (model.n_sums += n) - n; };
    layer.sum_mean = take(d * o);
    layer.sum_bias = take(o);
    layer.sum_v = take(d * o);
    layer.sum_bias_v = take(o);
    layer.sum_quadratic = layer.first ? 0 : take(d * layer.quadratic_columns());
    model.layers.push_back(std::move(layer));
  }
  model.sum_noise = model.n_sums;
  model.n_sums += network.n_noise();
  return model;
}

// What a block of rows keeps of one layer, and, for hidden layers, of the units above it.
struct LayerRows {
  double *mean, *variance;           // (n, o)
  double *covariance, *residual;     // (n, o, o); residual, of hidden layers, see activation_covariance
  MomentsAndSlopes units;            // (n, o) each, of f(a); slopes only under a skip
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

BlockRows lay_out(const Model& model, Index n, double* base) {
  BlockRows block{};
  block.n_rows = n;
  Index used = 0;
  const auto take = [&](Index count) {
    double* p = base ? base + used : nullptr;
    used += padded(count) + kSlack;
    return p;
  };
  Index widest = model.network.n_in(0), most_correlated = 0, largest_matrix = 0, most_pairs = 0;
  block.x_squared = take(n * widest);
  for (const Layer& layer : model.layers) {
    const Index o = layer.n_out;
    const bool last = &layer == &model.layers.back();
    LayerRows rows{};
    rows.mean = take(n * o);
    rows.variance = take(n * o);
    if (layer.has_covariance()) {
      rows.covariance = take(n * o * o);
      if (!last && needs_residual(model.network.activation, model.network.kernel)) rows.residual = take(n * o * o);
      most_correlated = std::max(most_correlated, o);
      const Index d = layer.spread == Spread::kPairs ? o : layer.n_in;
      largest_matrix = std::max({largest_matrix, o * padded(o), d * padded(o)});
      if (layer.spread == Spread::kCovariance) largest_matrix = std::max(largest_matrix, d * padded(d));
    }
    if (!last) {
      rows.units = {take(n * o), take(n * o), take(n * o), nullptr, nullptr};
      const Layer& above = *(&layer + 1);
      if (above.skip) {
        rows.units.cdf = take(n * o);
        rows.units.density = take(n * o);
      }
    }
    if (layer.spread == Spread::kCovariance) rows.product = take(n * layer.n_in * padded(o));
    if (layer.spread == Spread::kPairs) most_pairs = std::max(most_pairs, n_pairs(o));
    widest = std::max(widest, o);
    block.layers.push_back(rows);
  }
  for (double** bar : {&block.mean_bar, &block.mean_bar_below, &block.variance_bar, &block.variance_bar_below,
                       &block.hm_bar, &block.v_bar, &block.hv_bar, &block.slope_bar})
    *bar = take(n * widest);
  for (double** bar : {&block.covariance_bar, &block.covariance_bar_below})
    *bar = take(n * most_correlated * most_correlated);
  for (double** one : {&block.square, &block.other_square, &block.packed}) *one = take(largest_matrix);
  block.pairs = take(n * most_pairs);
  block.scratch = take(activation_scratch_size(widest));
  block.size = used;
  return block;
}

// Rows at a time: few enough for the cache, enough for the products over rows.
Index rows_per_block(const Model& model) {
  constexpr Index kept = Index(2) << 20, fewest = 4, most = 32;
  const Index bytes = lay_out(model, 1, nullptr).size * Index(sizeof(double));
  return std::clamp(kept / bytes / fewest * fewest, fewest, most);
}

// Multiplications, roughly, there and back.
double products_per_row(const Model& model) {
  double n = 0.0;
  for (const Layer& layer : model.layers) {
    const double d = double(layer.n_in), o = double(layer.n_out);
    n += 6.0 * d * o;
    if (layer.has_covariance()) n += 4.0 * d * o * o;
    if (layer.spread == Spread::kCovariance) n += 4.0 * d * d * o + 200.0 * d * d;
  }
  return n;
}

void mirror_upper(Index n, double* s) {
  for (Index i = 1; i < n; ++i)
    for (Index k = 0; k < i; ++k) s[i * n + k] = s[k * n + i];
}

// What d E f(a)/d mean of independent Gaussians, Φ(μ) for ReLU and φ(μ)/s for Heaviside, owes to mean and variance;
// to a unit that is certain nothing.
void unit_slopes_adjoint(Activation activation, Index n, const LayerRows& rows, const double* slope_bar,
                         double* mean_bar, double* variance_bar) {
  for (Index i = 0; i < n; ++i) {
    if (!(rows.variance[i] > 0.0)) continue;
    const double bar = slope_bar[i] * rows.units.density[i], square = rows.mean[i] * rows.mean[i];
    if (activation == Activation::kRelu) {
      mean_bar[i] += bar;
      variance_bar[i] -= 0.5 * bar * rows.mean[i] / rows.variance[i];
    } else {
      mean_bar[i] -= bar * rows.mean[i] / rows.variance[i];
      variance_bar[i] += 0.5 * bar * (square / rows.variance[i] - 1.0) / rows.variance[i];
    }
  }
}

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

void Propagation::forward_layer(Index l) {
  const Layer& layer = layer_of(l);
  const LayerRows& out = block_.layers[size_t(l)];
  const LayerRows in = l > 0 ? block_.layers[size_t(l) - 1] : LayerRows{};
  const Index o = layer.n_out;
  const double* mean_in = layer.first ? x_ : in.units.hm;
  const double* second_in = layer.first ? block_.x_squared : in.units.v;
  for (Index b = 0; b < n_; ++b) {
    std::copy_n(layer.bias, o, out.mean + b * o);
    std::copy_n(layer.bias_v, o, out.variance + b * o);
  }
  gaussian_network::forward(layer.mean, n_, mean_in, out.mean, true);
  gaussian_network::forward(layer.variance, n_, second_in, out.variance, true);
  if (layer.has_covariance()) {
    forward_covariance(layer, in, out);
  } else if (!layer.first) {
    gaussian_network::forward(layer.quadratic, n_, in.units.hv, out.variance, true);
  }
  if (layer.skip) add_skip(layer, in, out);
  if (l + 1 < model_.network.n_layers())
    activation_moments_and_slopes(activation(), n_ * o, out.mean, out.variance, out.units);
}

// S_ik = Σ_jl M_ji C_jl M_lk; the diagonal that `variance` holds is added, and the whole diagonal left there.
void Propagation::forward_covariance(const Layer& layer, const LayerRows& in, const LayerRows& out) {
  const Index d = layer.n_in, o = layer.n_out;
  if (layer.spread == Spread::kPairs) gaussian_network::forward(layer.quadratic, n_, in.units.hv, block_.pairs);
  for (Index b = 0; b < n_; ++b) {
    double* s = out.covariance + b * o * o;
    if (layer.spread == Spread::kPairs) {
      const double* pair = block_.pairs + b * n_pairs(o);
      for (Index i = 0; i < o; ++i)
        for (Index k = i; k < o; ++k) s[i * o + k] = *pair++;
    } else if (layer.spread == Spread::kScaled) {
      const double* hv = in.units.hv + b * d;
      for (Index i = 0; i < o; ++i)
        for (Index j = 0; j < d; ++j) block_.square[i * d + j] = layer.transposed[size_t(i * d + j)] * hv[j];
      multiply({o, d, o}, by_rows(block_.square, d), layer.mean.forward(), s, o, false, true);
    } else {
      activation_covariance(activation(), model_.network.kernel, d, in.mean + b * d, in.covariance + b * d * d,
                            block_.square, in.residual ? in.residual + b * d * d : nullptr, block_.scratch);
      double* product = out.product + b * d * padded(o);
      multiply({d, d, padded(o)}, by_rows(block_.square, d), layer.mean.forward(), product, 8, false, false, 8 * d);
      multiply({o, d, o}, by_rows(layer.transposed.data(), d), in_panels(product, d), s, o, false, true);
    }
    mirror_upper(o, s);
    double* variance = out.variance + b * o;
    for (Index i = 0; i < o; ++i) variance[i] = s[i * o + i] += variance[i];
  }
}

// a = a' + δ: S' + X + Xᵀ is added, X_ik = Cov(a'_i, δ_k) = Σ_j S'_ij d_j M_jk.
void Propagation::add_skip(const Layer& layer, const LayerRows& in, const LayerRows& out) {
  const Index o = layer.n_out;
  const double* slope = unit_slopes(in);
  for (Index i = 0; i < n_ * o; ++i) out.mean[i] += in.mean[i];
  if (!layer.has_covariance()) {
    for (Index b = 0; b < n_; ++b)
      for (Index i = 0; i < o; ++i)
        out.variance[b * o + i] += in.variance[b * o + i] * (1.0 + 2.0 * slope[b * o + i] * layer.m[i * o + i]);
    return;
  }
  for (Index b = 0; b < n_; ++b) {
    double *s = out.covariance + b * o * o, *x = block_.square;
    const double *d = slope + b * o, *below = in.variance + b * o;
    if (layer.spread == Spread::kCovariance) {
      const double* s_in = in.covariance + b * o * o;
      for (Index j = 0; j < o; ++j)
        for (Index k = 0; k < o; ++k) block_.other_square[j * o + k] = d[j] * layer.m[j * o + k];
      pack(o, o, block_.other_square, o, block_.packed);
      multiply({o, o, o}, by_rows(s_in, o), in_panels(block_.packed, o), x, o);
      for (Index i = 0; i < o * o; ++i) s[i] += s_in[i];
    } else {
      for (Index i = 0; i < o; ++i) {
        for (Index k = 0; k < o; ++k) x[i * o + k] = below[i] * d[i] * layer.m[i * o + k];
        s[i * o + i] += below[i];
      }
    }
    for (Index i = 0; i < o; ++i)
      for (Index k = 0; k < o; ++k) s[i * o + k] += x[i * o + k] + x[k * o + i];
    for (Index i = 0; i < o; ++i) out.variance[b * o + i] = s[i * o + i];
  }
}

void Propagation::likelihood_and_adjoint(const double* y, const double* weight, const double* log_noise,
                                         double* sums) {
  const GaussianNetwork& network = model_.network;
  const Index last = network.n_layers() - 1, o = network.n_out(last);
  const LayerRows& out = layer(last);
  const Index y_stride = is_classification(network.likelihood) ? 1 : network.n_targets;
  for (Index b = 0; b < n_; ++b) {
    const double w = weight ? weight[b] : 1.0;
    const OutputGaussian output{o, out.mean + b * o, out.variance + b * o,
                                out.covariance ? out.covariance + b * o * o : nullptr};
    const OutputAdjoint adjoint{block_.mean_bar + b * o, block_.variance_bar + b * o,
                                out.covariance ? block_.covariance_bar + b * o * o : nullptr,
                                sums + model_.sum_noise};
    sums[0] += w * expected_log_likelihood(network, y + b * y_stride, log_noise, output, w, adjoint);
    if (adjoint.covariance)
      for (Index i = 0; i < o; ++i) adjoint.covariance[i * o + i] = adjoint.variance[i];
  }
  for (Index l = last; l >= 0; --l) backward_layer(l, sums);
}

// From the adjoints of a layer's mean and variance (and covariance, whose diagonal is the variance's) to sums and to
// the adjoints of the layer below.
void Propagation::backward_layer(Index l, double* sums) {
  const Layer& layer = layer_of(l);
  const LayerRows& out = block_.layers[size_t(l)];
  const LayerRows in = l > 0 ? block_.layers[size_t(l) - 1] : LayerRows{};
  const Index d = layer.n_in, o = layer.n_out;
  add_transposed({d, n_, o}, layer.first ? x_ : in.units.hm, d, block_.mean_bar, o, sums + layer.sum_mean, o);
  add_transposed({d, n_, o}, layer.first ? block_.x_squared : in.units.v, d, block_.variance_bar, o,
                 sums + layer.sum_v, o);
  for (Index b = 0; b < n_; ++b)
    for (Index i = 0; i < o; ++i) {
      sums[layer.sum_bias + i] += block_.mean_bar[b * o + i];
      sums[layer.sum_bias_v + i] += block_.variance_bar[b * o + i];
    }
  if (layer.first) return;

  gaussian_network::backward(layer.mean, n_, block_.mean_bar, block_.hm_bar);
  gaussian_network::backward(layer.variance, n_, block_.variance_bar, block_.v_bar);
  if (layer.skip) {
    std::copy_n(block_.mean_bar, n_ * d, block_.mean_bar_below);
  } else {
    std::fill_n(block_.mean_bar_below, n_ * d, 0.0);
  }
  std::fill_n(block_.variance_bar_below, n_ * d, 0.0);
  if (in.covariance) std::fill_n(block_.covariance_bar_below, n_ * d * d, 0.0);
  if (layer.has_covariance()) {
    backward_covariance(layer, in, out, sums);
  } else {
    add_transposed({d, n_, o}, in.units.hv, d, block_.variance_bar, o, sums + layer.sum_quadratic, o);
    gaussian_network::backward(layer.quadratic, n_, block_.variance_bar, block_.hv_bar);
    if (layer.skip) {
      for (Index b = 0; b < n_; ++b)
        for (Index i = 0; i < o; ++i) {
          const Index bi = b * o + i;
          const double bar = block_.variance_bar[bi], slope = unit_slopes(in)[bi], m = layer.m[i * o + i];
          block_.variance_bar_below[bi] += bar * (1.0 + 2.0 * slope * m);
          block_.slope_bar[bi] = 2.0 * bar * in.variance[bi] * m;
          sums[layer.sum_mean + i * o + i] += 2.0 * bar * in.variance[bi] * slope;
        }
    }
  }
  if (layer.skip)
    unit_slopes_adjoint(activation(), n_ * d, in, block_.slope_bar, block_.mean_bar_below, block_.variance_bar_below);
  activation_moments_adjoint(activation(), n_ * d, in.mean, in.variance, block_.hm_bar, block_.v_bar, block_.hv_bar,
                             block_.mean_bar_below, block_.variance_bar_below);
  if (in.covariance) {
    for (Index b = 0; b < n_; ++b)
      for (Index j = 0; j < d; ++j) {
        double& diagonal = block_.covariance_bar_below[b * d * d + j * d + j];
        diagonal += block_.variance_bar_below[b * d + j];
        block_.variance_bar_below[b * d + j] = diagonal;
      }
  }
  std::swap(block_.mean_bar, block_.mean_bar_below);
  std::swap(block_.variance_bar, block_.variance_bar_below);
  std::swap(block_.covariance_bar, block_.covariance_bar_below);
}

// With Q = M Sb: C̄ = Q Mᵀ, and ∂M = 2 C Q = 2 P Sb, P = C M.
void Propagation::backward_covariance(const Layer& layer, const LayerRows& in, const LayerRows& out, double* sums) {
  const Index d = layer.n_in, o = layer.n_out;
  double* sum = sums + layer.sum_quadratic;
  if (layer.spread == Spread::kPairs) {
    const Index pairs = n_pairs(o);
    double* pair = block_.pairs;
    for (Index b = 0; b < n_; ++b)
      for (Index i = 0; i < o; ++i)
        for (Index k = i; k < o; ++k)
          *pair++ = (i == k ? 1.0 : 2.0) * block_.covariance_bar[b * o * o + i * o + k];
    add_transposed({d, n_, pairs}, in.units.hv, d, block_.pairs, pairs, sum, pairs);
    gaussian_network::backward(layer.quadratic, n_, block_.pairs, block_.hv_bar);
  } else {
    for (Index b = 0; b < n_; ++b) {
      pack(o, o, block_.covariance_bar + b * o * o, o, block_.packed);
      double *q = block_.square, *hv_bar = block_.hv_bar + b * d;
      multiply({d, o, o}, by_rows(layer.m, o), in_panels(block_.packed, o), q, o);
      if (layer.spread == Spread::kScaled) {
        const double* hv = in.units.hv + b * d;
        for (Index j = 0; j < d; ++j) {
          hv_bar[j] = kernels().dense.dot(o, layer.m + j * o, q + j * o);
          for (Index i = 0; i < o; ++i) sum[j * o + i] += hv[j] * q[j * o + i];
        }
      } else {
        const double* product = out.product + b * d * padded(o);
        multiply({d, o, o}, in_panels(product, d), in_panels(block_.packed, o), sum, o, true);
        multiply({d, o, d}, by_rows(q, o), layer.mean.backward(), block_.other_square, d);
        activation_covariance_adjoint(activation(), model_.network.kernel, d, in.mean + b * d,
                                      in.covariance + b * d * d, in.residual ? in.residual + b * d * d : nullptr,
                                      block_.other_square, block_.mean_bar_below + b * d,
                                      block_.covariance_bar_below + b * d * d, block_.scratch);
        std::fill_n(hv_bar, d, 0.0);  // the diagonal of C̄ was it
      }
    }
  }
  if (layer.skip) backward_skip(layer, in, sums);
}

// With W = S' Y, Y = 2 Sb, and Z = Y Mᵀ diag(d): S̄' = Sb + (Z + Zᵀ)/2, ∂M = diag(d) W, d̄_j = Σ_k M_jk W_jk.
void Propagation::backward_skip(const Layer& layer, const LayerRows& in, double* sums) {
  const Index o = layer.n_out;
  for (Index b = 0; b < n_; ++b) {
    const double *bar = block_.covariance_bar + b * o * o, *d = unit_slopes(in) + b * o;
    double *w = block_.square, *z = block_.other_square;
    pack(o, o, bar, o, block_.packed);
    multiply({o, o, o}, by_rows(layer.m, o), in_panels(block_.packed, o), z, o);  // M Sb = ½ (Y Mᵀ)ᵀ
    if (layer.spread == Spread::kCovariance) {
      double* below = block_.covariance_bar_below + b * o * o;
      multiply({o, o, o}, by_rows(in.covariance + b * o * o, o), in_panels(block_.packed, o), w, o);
      for (Index i = 0; i < o; ++i)
        for (Index j = 0; j < o; ++j) below[i * o + j] += bar[i * o + j] + z[j * o + i] * d[j] + z[i * o + j] * d[i];
    } else {
      for (Index i = 0; i < o; ++i) {
        for (Index k = 0; k < o; ++k) w[i * o + k] = in.variance[b * o + i] * bar[i * o + k];
        block_.variance_bar_below[b * o + i] += bar[i * o + i] + 2.0 * z[i * o + i] * d[i];
      }
    }
    for (Index j = 0; j < o; ++j) {
      block_.slope_bar[b * o + j] = 2.0 * kernels().dense.dot(o, layer.m + j * o, w + j * o);
      for (Index k = 0; k < o; ++k) sums[layer.sum_mean + j * o + k] += 2.0 * d[j] * w[j * o + k];
    }
  }
}

// From the sums over rows to the gradient: through V = exp 2 log σ, and through what made up the covariance.
void finish_gradient(const Model& model, const double* sums, double factor, double* gradient) {
  const Index n_weights = model.network.n_weights();
  Index first = 0;
  for (const Layer& layer : model.layers) {
    const Index d = layer.n_in, o = layer.n_out, n = (d + 1) * o;
    double *mean = gradient + first, *log_deviation = gradient + n_weights + first;
    for (Index i = 0; i < n; ++i) mean[i] += factor * sums[layer.sum_mean + i];  // the biases' sums follow
    for (Index i = 0; i < n; ++i) log_deviation[i] += 2.0 * factor * layer.v[i] * sums[layer.sum_v + i];
    const double* quadratic = sums + layer.sum_quadratic;
    if (layer.spread == Spread::kPairs) {
      for (Index j = 0; j < d; ++j)
        for (Index i = 0; i < o; ++i)
          for (Index k = i; k < o; ++k) {
            const double bar = factor * *quadratic++;
            mean[j * o + i] += bar * layer.m[j * o + k];
            mean[j * o + k] += bar * layer.m[j * o + i];
          }
    } else if (layer.has_covariance()) {
      for (Index i = 0; i < d * o; ++i) mean[i] += 2.0 * factor * quadratic[i];
    } else if (!layer.first) {
      for (Index i = 0; i < d * o; ++i) mean[i] += 2.0 * factor * layer.m[i] * quadratic[i];
    }
    first += n;
  }
  for (Index t = 0; t < model.network.n_noise(); ++t)
    gradient[2 * n_weights + t] += factor * sums[model.sum_noise + t];
}

}  // namespace

double deterministic_objective(const GaussianNetwork& network, const double* parameters, const NetworkRows& rows,
                               double divergence_factor, double* gradient, int n_threads) {
  const Model model = make_model(network, parameters);
  const Index per_block = rows_per_block(model), chunk = rows_per_chunk(rows.n_rows, per_block, model.n_sums);
  const Index n_chunks = (rows.n_rows + chunk - 1) / chunk, block_size = lay_out(model, per_block, nullptr).size;
  const Index n_inputs = network.n_in(0);
  const Index y_stride = is_classification(network.likelihood) ? 1 : network.n_targets;
  double* accumulators = workspace(Memory::kCall, n_chunks * model.n_sums);
  n_threads = useful_threads(double(rows.n_rows) * products_per_row(model), n_threads);
  for_chunks(rows.n_rows, chunk, n_threads, [&](Index begin, Index end) {
    double* sums = accumulators + begin / chunk * model.n_sums;
    std::fill_n(sums, model.n_sums, 0.0);
    Propagation propagation(model, workspace(Memory::kChunk, block_size), per_block);
    for (Index first = begin; first < end; first += per_block) {
      propagation.forward(std::min(per_block, end - first), rows.x + first * n_inputs, network.n_layers() - 1);
      propagation.likelihood_and_adjoint(rows.y + first * y_stride, rows.weight ? rows.weight + first : nullptr,
                                         parameters + 2 * network.n_weights(), sums);
    }
  });
  sum_in_order(n_chunks, model.n_sums, accumulators, n_threads);
  std::fill_n(gradient, network.n_parameters(), 0.0);
  finish_gradient(model, accumulators, -1.0 / rows.total_weight, gradient);
  const double divergence = weight_divergence(network, parameters, model.variances.data(), divergence_factor, gradient);
  return finite_or_infinity(divergence_factor * divergence - accumulators[0] / rows.total_weight,
                            network.n_parameters(), gradient);
}

void deterministic_moments(const GaussianNetwork& network, const double* parameters, Index n_rows, const double* x,
                           Index layer, double* mean, double* variance, double* covariance, int n_threads) {
  const Model model = make_model(network, parameters);
  const Index per_block = rows_per_block(model), block_size = lay_out(model, per_block, nullptr).size;
  const Index n_inputs = network.n_in(0), o = network.n_out(layer);
  n_threads = useful_threads(double(n_rows) * products_per_row(model), n_threads);
  for_chunks(n_rows, per_block, n_threads, [&](Index begin, Index end) {
    Propagation propagation(model, workspace(Memory::kChunk, block_size), per_block);
    propagation.forward(end - begin, x + begin * n_inputs, layer);
    const LayerRows& out = propagation.layer(layer);
    const Index n = end - begin;
    std::copy_n(out.mean, n * o, mean + begin * o);
    if (variance) std::copy_n(out.variance, n * o, variance + begin * o);
    if (!covariance) return;
    double* s = covariance + begin * o * o;
    if (out.covariance) {
      std::copy_n(out.covariance, n * o * o, s);
    } else {
      std::fill_n(s, n * o * o, 0.0);
      for (Index b = 0; b < n; ++b)
        for (Index i = 0; i < o; ++i) s[b * o * o + i * o + i] = out.variance[b * o + i];
    }
  });
}

}  // namespace pydirect
