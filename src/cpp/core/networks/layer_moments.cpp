#include "layer_moments.hpp"

#include <algorithm>
#include <utility>

namespace pydirect::gaussian_network {
namespace {

constexpr Index kMostPairs = 64;

Spread choose_spread(const GaussianNetwork& network, Index l, const std::vector<Layer>& below) {
  if (l == 0 || !network.full_covariance) return Spread::kVariances;
  if (below.back().has_covariance()) return Spread::kCovariance;
  const bool skip = network.has_skip(l);
  if (network.n_out(l) == 1 && !skip) return Spread::kVariances;
  return n_pairs(network.n_out(l)) <= kMostPairs ? Spread::kPairs : Spread::kScaled;
}

void mirror_upper(Index n, double* s) {
  for (Index i = 1; i < n; ++i)
    for (Index k = 0; k < i; ++k) s[i * n + k] = s[k * n + i];
}

}  // namespace

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
  block.scratch = take(unit_scratch_size(widest));
  block.size = used;
  return block;
}

Index rows_per_block(const Model& model) {
  constexpr Index kept = Index(2) << 20, fewest = 4, most = 32;
  const Index bytes = lay_out(model, 1, nullptr).size * Index(sizeof(double));
  return std::clamp(kept / bytes / fewest * fewest, fewest, most);
}

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
    kernels().unit_moments.moments(activation(), n_ * o, out.mean, out.variance, out.units);
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
      kernels().unit_covariance.covariance(activation(), model_.network.kernel, d, in.mean + b * d,
                                           in.covariance + b * d * d, block_.square,
                                           in.residual ? in.residual + b * d * d : nullptr, block_.scratch);
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

}  // namespace pydirect::gaussian_network
