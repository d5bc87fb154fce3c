// The way back through the layers' moments, and from sums over rows to the gradient.
#include <algorithm>
#include <utility>

#include "layer_moments.hpp"

namespace pydirect::gaussian_network {
namespace {

// Adjoint of d E f(a)/d mean of independent Gaussians, Φ(μ) for ReLU and φ(μ)/s for Heaviside, in mean and variance;
// zero for a unit of variance zero.
void unit_slopes_adjoint(Activation activation, Index n, const LayerRows& rows, const double* slope_bar,
                         double* mean_bar, double* variance_bar) {
  for (Index i = 0; i < n; ++i) {
    const double bar = slope_bar[i] * rows.units.density[i], square = rows.mean[i] * rows.mean[i];
    if (bar == 0.0) continue;  // certain, or as good as that
    if (activation == Activation::kRelu) {
      mean_bar[i] += bar;
      variance_bar[i] -= 0.5 * bar * rows.mean[i] / rows.variance[i];
    } else {
      mean_bar[i] -= bar * rows.mean[i] / rows.variance[i];
      variance_bar[i] += 0.5 * bar * (square / rows.variance[i] - 1.0) / rows.variance[i];
    }
  }
}

}  // namespace

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
    if (adjoint.covariance) matrix(adjoint.covariance, o, o).matrix().diagonal().array() = array(adjoint.variance, o);
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
  for (Index b = 0; b < n_; ++b) {
    array(sums + layer.sum_bias, o) += array(block_.mean_bar + b * o, o);
    array(sums + layer.sum_bias_v, o) += array(block_.variance_bar + b * o, o);
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
  kernels().unit_moments.adjoint(activation(), n_ * d, in.mean, in.variance, block_.hm_bar, block_.v_bar,
                                 block_.hv_bar, block_.mean_bar_below, block_.variance_bar_below);
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
          array(sum + j * o, o) += hv[j] * array(q + j * o, o);
        }
      } else {
        const double* product = out.product + b * d * padded(o);
        multiply({d, o, o}, in_panels(product, d), in_panels(block_.packed, o), sum, o, true);
        multiply({d, o, d}, by_rows(q, o), layer.mean.backward(), block_.other_square, d);
        kernels().unit_covariance.adjoint(activation(), model_.network.kernel, d, in.mean + b * d,
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
    const double* bar = block_.covariance_bar + b * o * o;
    const auto slope = array(unit_slopes(in) + b * o, o);  // d
    double *w = block_.square, *z = block_.other_square;
    pack(o, o, bar, o, block_.packed);
    multiply({o, o, o}, by_rows(layer.m, o), in_panels(block_.packed, o), z, o);  // M Sb = ½ (Y Mᵀ)ᵀ
    if (layer.spread == Spread::kCovariance) {
      auto below = matrix(block_.covariance_bar_below + b * o * o, o, o);
      multiply({o, o, o}, by_rows(in.covariance + b * o * o, o), in_panels(block_.packed, o), w, o);
      const auto scaled = matrix(z, o, o).colwise() * slope;  // diag(d) M Sb
      below += matrix(bar, o, o) + scaled.transpose() + scaled;
    } else {
      matrix(w, o, o) = matrix(bar, o, o).colwise() * array(in.variance + b * o, o);
      array(block_.variance_bar_below + b * o, o) +=
          matrix(bar, o, o).matrix().diagonal().array() + 2.0 * matrix(z, o, o).matrix().diagonal().array() * slope;
    }
    for (Index j = 0; j < o; ++j)
      block_.slope_bar[b * o + j] = 2.0 * kernels().dense.dot(o, layer.m + j * o, w + j * o);
    matrix(sums + layer.sum_mean, o, o) += matrix(w, o, o).colwise() * (2.0 * slope);
  }
}

void finish_gradient(const Model& model, const double* sums, double factor, double* gradient) {
  const Index n_weights = model.network.n_weights();
  Index first = 0;
  for (const Layer& layer : model.layers) {
    const Index d = layer.n_in, o = layer.n_out, n = (d + 1) * o;
    double *mean = gradient + first, *log_deviation = gradient + n_weights + first;
    array(mean, n) += factor * array(sums + layer.sum_mean, n);  // the biases' sums follow
    array(log_deviation, n) += 2.0 * factor * array(layer.v, n) * array(sums + layer.sum_v, n);
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
      array(mean, d * o) += 2.0 * factor * array(quadratic, d * o);
    } else if (!layer.first) {
      array(mean, d * o) += 2.0 * factor * array(layer.m, d * o) * array(quadratic, d * o);
    }
    first += n;
  }
  const Index n_noise = model.network.n_noise();
  array(gradient + 2 * n_weights, n_noise) += factor * array(sums + model.sum_noise, n_noise);
}

}  // namespace pydirect::gaussian_network
