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
  auto rows = matrix(s, n, n);
  for (Index i = 1; i < n; ++i) rows.row(i).head(i) = rows.col(i).head(i).transpose();
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
      quadratic.resize(size_t(d * o));
      array(quadratic) = array(layer.m, d * o).square();
      layer.quadratic.set(d, o, quadratic.data());
    } else if (!layer.first) {
      layer.transposed.resize(size_t(d * o));
      matrix(layer.transposed.data(), o, d) = matrix(layer.m, d, o).transpose();
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
  matrix(out.mean, n_, o).rowwise() = array(layer.bias, o).transpose();
  matrix(out.variance, n_, o).rowwise() = array(layer.bias_v, o).transpose();
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
      matrix(block_.square, o, d) =
          matrix(layer.transposed.data(), o, d).rowwise() * array(in.units.hv + b * d, d).transpose();
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
    auto variance = array(out.variance + b * o, o);
    auto diagonal = matrix(s, o, o).matrix().diagonal().array();
    variance = diagonal += variance;
  }
}

// a = a' + δ: S' + X + Xᵀ is added, X_ik = Cov(a'_i, δ_k) = Σ_j S'_ij d_j M_jk.
void Propagation::add_skip(const Layer& layer, const LayerRows& in, const LayerRows& out) {
  const Index o = layer.n_out;
  const double* slope = unit_slopes(in);
  const auto m = matrix(layer.m, o, o);  // layers of a skip are as wide as those below
  array(out.mean, n_ * o) += array(in.mean, n_ * o);
  if (!layer.has_covariance()) {
    const auto own = m.matrix().diagonal().array().transpose();
    matrix(out.variance, n_, o) +=
        matrix(in.variance, n_, o) * (1.0 + (2.0 * matrix(slope, n_, o)).rowwise() * own);
    return;
  }
  for (Index b = 0; b < n_; ++b) {
    auto s = matrix(out.covariance + b * o * o, o, o), x = matrix(block_.square, o, o);
    auto diagonal = s.matrix().diagonal().array();
    const Eigen::Map<const Vector> d(slope + b * o, o), below(in.variance + b * o, o);
    if (layer.spread == Spread::kCovariance) {
      const double* s_in = in.covariance + b * o * o;
      matrix(block_.other_square, o, o) = m.colwise() * d;
      pack(o, o, block_.other_square, o, block_.packed);
      multiply({o, o, o}, by_rows(s_in, o), in_panels(block_.packed, o), x.data(), o);
      s += matrix(s_in, o, o);
    } else {
      x = m.colwise() * (below * d);
      diagonal += below;
    }
    s += x + x.transpose();
    array(out.variance + b * o, o) = diagonal;
  }
}

}  // namespace pydirect::gaussian_network
