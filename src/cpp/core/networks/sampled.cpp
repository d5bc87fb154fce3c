// Expected log-likelihoods by draws, with their pathwise gradients: of weights, shared by all rows (eq. 2), or of every
// row's own pre-activations, whose law given the layer below is exact (appendix E). ReLU networks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "gaussian_layers.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

using namespace gaussian_network;

constexpr Index kRows = 32;  // of a block

// Weights of every layer in the forms that products need.
using Weights = std::vector<Packed>;

void set_weights(const GaussianNetwork& network, const double* weights, Weights& out) {
  out.resize(size_t(network.n_layers()));
  for (Index l = 0; l < network.n_layers(); ++l)
    out[size_t(l)].set(network.n_in(l), network.n_out(l), weights + network.first_weight(l), l > 0);
}

Index widest_layer(const GaussianNetwork& network) {
  return *std::max_element(network.widths.begin(), network.widths.end());
}

Index n_units(const GaussianNetwork& network) {
  Index n = 0;
  for (Index l = 0; l < network.n_layers(); ++l) n += network.n_out(l);
  return n;
}

// Where an accumulator keeps its sums: log-likelihood, ∂ means, ∂ what stands for the deviations, ∂ log noise.
struct Sums {
  double *likelihood, *mean, *deviation, *noise;
  Sums(const GaussianNetwork& network, double* memory)
      : likelihood(memory), mean(memory + 1), deviation(mean + network.n_weights()),
        noise(deviation + network.n_weights()) {}
  static Index size(const GaussianNetwork& network) {
    return 1 + 2 * network.n_weights() + network.n_targets;
  }
};

// A block of rows on its way through the network and back.
class Pass {
 public:
  static Index memory_size(const GaussianNetwork& network) {
    const Index arrays = 5 * network.n_layers() + 5;
    return arrays * kRows * (padded(widest_layer(network)) + kSlack) + 2 * padded(network.widths.back());
  }

  // spreads and variances: of the weights, where variances of outputs are to be found.
  Pass(const GaussianNetwork& network, const double* parameters, const Weights& spreads, const double* variances,
       bool exact_last_layer, double* memory)
      : network_(network), parameters_(parameters), spreads_(spreads), variances_(variances),
        exact_layer_(exact_last_layer ? network.n_layers() - 1 : -1) {
    const Index size = kRows * (padded(widest_layer(network)) + kSlack);
    const auto take = [&] { return (memory += size) - size; };
    for (Index l = 0; l < network.n_layers(); ++l)
      layers_.push_back({take(), take(), take(), take(), take()});
    bar_ = take();
    bar_below_ = take();
    spread_bar_ = take();
    square_bar_ = take();
    x_squared_ = take();
    no_variance_ = memory;
    std::fill_n(no_variance_, network.widths.back(), 0.0);
    unused_ = memory + padded(network.widths.back());
  }

  // Weights as drawn; ∂ of the weights is added.
  void shared(const Weights& weights, const double* bias_source, const NetworkRows& rows, Index begin, Index end,
              const Sums& sums, double* weight_bar) {
    start(rows, begin, end);
    for (Index l = 0; l < network_.n_layers(); ++l) pre_activations(weights, bias_source, l, layers_[size_t(l)].a);
    if (exact_layer_ >= 0) {
      if (exact_layer_ > 0) square_units(exact_layer_ - 1);
      pre_activation_variances(exact_layer_);
    }
    likelihood(rows, begin, sums);
    for (Index l = network_.n_layers() - 1; l >= 0; --l) {
      add_mean_gradient(l, weight_bar);
      if (l == exact_layer_) add_variance_gradient(l, sums.deviation);
      if (l == 0) break;
      backward(weights[size_t(l)], n_, bar_, bar_below_);
      if (l == exact_layer_) through_squares(l);
      through_relu(l);
    }
  }

  // Pre-activations as drawn: a = h M + b + √(h² V + v_b) ε; ∂ of M and V is added. noise: (n, units of all layers).
  void local(const Weights& means, const double* noise, Index stride, const NetworkRows& rows, Index begin, Index end,
             const Sums& sums) {
    start(rows, begin, end);
    Index unit = 0;
    for (Index l = 0; l < network_.n_layers(); unit += network_.n_out(l++)) {
      const Layer& layer = layers_[size_t(l)];
      const Index o = network_.n_out(l);
      pre_activations(means, parameters_, l, layer.a);
      pre_activation_variances(l);
      if (l == exact_layer_) break;
      for (Index b = 0; b < n_; ++b)
        for (Index i = 0; i < o; ++i) {
          const double e = noise[b * stride + unit + i], s = std::sqrt(layer.spread[b * o + i]);
          layer.a[b * o + i] += s * e;
          layer.half_ratio[b * o + i] = s > 0.0 ? 0.5 * e / s : 0.0;  // ∂a/∂ variance
        }
      square_units(l);
    }
    likelihood(rows, begin, sums);
    for (Index l = network_.n_layers() - 1; l >= 0; --l) {
      const Layer& layer = layers_[size_t(l)];
      if (l != exact_layer_)
        outputs(l, spread_bar_) = outputs(l, bar_) * outputs(l, layer.half_ratio);
      add_mean_gradient(l, sums.mean);
      add_variance_gradient(l, sums.deviation);
      if (l == 0) break;
      backward(means[size_t(l)], n_, bar_, bar_below_);
      through_squares(l);
      through_relu(l);
    }
  }

 private:
  struct Layer { double *a, *h, *squared, *spread, *half_ratio; };

  const double* inputs(Index l) const { return l == 0 ? x_ : layers_[size_t(l) - 1].h; }
  const double* squares(Index l) const { return l == 0 ? x_squared_ : layers_[size_t(l) - 1].squared; }

  void start(const NetworkRows& rows, Index begin, Index end) {
    n_ = end - begin;
    x_ = rows.x + begin * network_.n_in(0);
  }

  void add_biases(const double* weights, Index l, double* out) const {
    const double* bias = weights + network_.first_weight(l) + network_.n_in(l) * network_.n_out(l);
    matrix(out, n_, network_.n_out(l)).rowwise() = array(bias, network_.n_out(l)).transpose();
  }

  // As many as layer l has for the rows at hand.
  Eigen::Map<Vector> outputs(Index l, double* values) const { return array(values, n_ * network_.n_out(l)); }

  // h W + b, and max(0, ·) of the layer below beforehand; a skip adds the layer below.
  void pre_activations(const Weights& weights, const double* bias_source, Index l, double* out) {
    if (l > 0) {
      const Layer& below = layers_[size_t(l) - 1];
      outputs(l - 1, below.h) = outputs(l - 1, below.a).max(0.0);
    }
    add_biases(bias_source, l, out);
    forward(weights[size_t(l)], n_, inputs(l), out, true);
    if (!network_.has_skip(l)) return;
    outputs(l, out) += outputs(l - 1, layers_[size_t(l) - 1].a);
  }

  // h² V + v_b.
  void pre_activation_variances(Index l) {
    if (l == 0 && squared_ != x_) {  // once for all draws
      array(x_squared_, n_ * network_.n_in(0)) = array(x_, n_ * network_.n_in(0)).square();
      squared_ = x_;
    }
    double* spread = layers_[size_t(l)].spread;
    add_biases(variances_, l, spread);
    forward(spreads_[size_t(l)], n_, squares(l), spread, true);
  }

  void square_units(Index l) {
    outputs(l, layers_[size_t(l)].squared) = outputs(l, layers_[size_t(l)].a).max(0.0).square();
  }

  void likelihood(const NetworkRows& rows, Index begin, const Sums& sums) {
    const Index o = network_.widths.back();
    const Index y_stride = is_classification(network_.likelihood) ? 1 : network_.n_targets;
    const bool exact = exact_layer_ >= 0;
    for (Index b = 0; b < n_; ++b) {
      const double w = rows.weight ? rows.weight[begin + b] : 1.0;
      const OutputGaussian output{o, layers_.back().a + b * o, exact ? layers_.back().spread + b * o : no_variance_,
                                  nullptr};
      *sums.likelihood += w * expected_log_likelihood(network_, rows.y + (begin + b) * y_stride,
                                                      parameters_ + 2 * network_.n_weights(), output, w,
                                                      {bar_ + b * o, exact ? spread_bar_ + b * o : unused_, nullptr,
                                                       sums.noise});
    }
  }

  void add_bias_gradient(Index l, const double* bar, double* weight_bar) const {
    const Index o = network_.n_out(l);
    double* bias_bar = weight_bar + network_.first_weight(l) + network_.n_in(l) * o;
    for (Index b = 0; b < n_; ++b) array(bias_bar, o) += array(bar + b * o, o);
  }

  void add_mean_gradient(Index l, double* weight_bar) const {
    const Index d = network_.n_in(l), o = network_.n_out(l);
    add_transposed({d, n_, o}, inputs(l), d, bar_, o, weight_bar + network_.first_weight(l), o);
    add_bias_gradient(l, bar_, weight_bar);
  }

  void add_variance_gradient(Index l, double* variance_bar) const {
    const Index d = network_.n_in(l), o = network_.n_out(l);
    add_transposed({d, n_, o}, squares(l), d, spread_bar_, o, variance_bar + network_.first_weight(l), o);
    add_bias_gradient(l, spread_bar_, variance_bar);
  }

  // Adjoint of the units below in the variances above.
  void through_squares(Index l) {
    backward(spreads_[size_t(l)], n_, spread_bar_, square_bar_);
    outputs(l - 1, bar_below_) += 2.0 * outputs(l - 1, layers_[size_t(l) - 1].h) * outputs(l - 1, square_bar_);
  }

  void through_relu(Index l) {
    auto below = outputs(l - 1, bar_below_);
    below = (outputs(l - 1, layers_[size_t(l) - 1].a) > 0.0).select(below, 0.0);
    if (network_.has_skip(l)) below += outputs(l, bar_);
    std::swap(bar_, bar_below_);
  }

  const GaussianNetwork& network_;
  const double* parameters_;
  const Weights& spreads_;
  const double* variances_;
  const Index exact_layer_;  // whose weights are not drawn; -1: none
  std::vector<Layer> layers_;
  double *bar_, *bar_below_, *spread_bar_, *square_bar_, *x_squared_, *no_variance_, *unused_;
  const double *x_ = nullptr, *squared_ = nullptr;  // rows at hand, and those of x_squared
  Index n_ = 0;
};

struct Tasks {
  Index row_chunk, n_row_chunks, draw_chunk, n_draw_chunks;
  Index count() const { return n_row_chunks * n_draw_chunks; }
};

// About as many tasks as a chunked loop over rows would have; draws first, for each chunk of rows repeats them.
Tasks split(const GaussianNetwork& network, Index n_rows, Index n_draws, bool rows_first) {
  constexpr Index most = 16;
  Tasks tasks{};
  if (rows_first) {
    tasks.row_chunk = rows_per_chunk(n_rows, kRows, Sums::size(network));
    tasks.draw_chunk = n_draws;
  } else {
    tasks.draw_chunk = (n_draws + most - 1) / most;
    const Index n_draw_chunks = (n_draws + tasks.draw_chunk - 1) / tasks.draw_chunk;
    const Index n_row_chunks = (most + n_draw_chunks - 1) / n_draw_chunks;
    tasks.row_chunk = ((n_rows + n_row_chunks - 1) / n_row_chunks + kRows - 1) / kRows * kRows;
  }
  tasks.n_draw_chunks = (n_draws + tasks.draw_chunk - 1) / tasks.draw_chunk;
  tasks.n_row_chunks = (n_rows + tasks.row_chunk - 1) / tasks.row_chunk;
  return tasks;
}

// Weights M + σ ξ of one draw after another, on the same rows.
void shared_draws(const GaussianNetwork& network, const double* parameters, const double* deviations, Pass& pass,
                  const NetworkRows& rows, const WeightDraws& draws, Index first_draw, Index last_draw, Index begin,
                  Index end, double* memory) {
  const Index n = network.n_weights();
  const Index n_layers = network.n_layers() - (draws.exact_last_layer ? 1 : 0);
  const bool fixed = draws.kind == WeightDraws::Kind::kMean;
  const Sums sums(network, memory);
  std::vector<double> noise(size_t(n), 0.0), drawn(parameters, parameters + n), bar(size_t(n), 0.0);
  Weights weights;
  for (Index draw = first_draw; draw < last_draw; ++draw) {
    if (!fixed) {
      standardised_draws(network, draws.law, draws.seed, std::uint32_t(draw), n_layers, noise.data());
      array(drawn) = array(parameters, n) + array(deviations, n) * array(noise);
    }
    set_weights(network, drawn.data(), weights);
    std::fill(bar.begin(), bar.end(), 0.0);
    for (Index row = begin; row < end; row += kRows)
      pass.shared(weights, drawn.data(), rows, row, std::min(row + kRows, end), sums, bar.data());
    array(sums.mean, n) += array(bar);
    if (!fixed) array(sums.deviation, n) += array(bar) * array(noise);
  }
}

}  // namespace

double sampled_objective(const GaussianNetwork& network, const double* parameters, const NetworkRows& rows,
                         const WeightDraws& draws, double divergence_factor, double* gradient, int n_threads) {
  const bool local = draws.kind == WeightDraws::Kind::kLocal, with_deviations = draws.kind != WeightDraws::Kind::kMean;
  const Index n = network.n_weights(), size = Sums::size(network);
  const std::vector<double> variances = weight_variances(network, parameters);
  const Vector deviations = array(variances).sqrt();
  Weights means, spreads;
  if (local) set_weights(network, parameters, means);
  if (local || draws.exact_last_layer) set_weights(network, variances.data(), spreads);
  n_threads = useful_threads(double(rows.n_rows * draws.n_draws) * 6.0 * double(n), n_threads);
  const Tasks tasks = split(network, rows.n_rows, draws.n_draws, local);
  double* accumulators = workspace(Memory::kCall, tasks.count() * size);
  for_chunks(tasks.count(), 1, n_threads, [&](Index task, Index) {
    double* memory = accumulators + task * size;
    std::fill_n(memory, size, 0.0);
    const Index begin = task % tasks.n_row_chunks * tasks.row_chunk;
    const Index end = std::min(begin + tasks.row_chunk, rows.n_rows);
    const Index first = task / tasks.n_row_chunks * tasks.draw_chunk;
    const Index last = std::min(first + tasks.draw_chunk, draws.n_draws);
    Pass pass(network, parameters, spreads, variances.data(), draws.exact_last_layer,
              workspace(Memory::kChunk, Pass::memory_size(network)));
    if (!local)
      return shared_draws(network, parameters, deviations.data(), pass, rows, draws, first, last, begin, end, memory);
    const Index stride = n_units(network);
    std::vector<double> noise(size_t(kRows * stride));
    for (Index row = begin; row < end; row += kRows) {
      const Index stop = std::min(row + kRows, end);
      for (Index draw = first; draw < last; ++draw) {
        counter_normals(draws.seed, std::uint32_t(draw), std::uint64_t(row * stride), (stop - row) * stride,
                        noise.data());
        pass.local(means, noise.data(), stride, rows, row, stop, Sums(network, memory));
      }
    }
  });
  sum_in_order(tasks.count(), size, accumulators, n_threads);
  const Sums sums(network, accumulators);
  const double factor = -1.0 / (rows.total_weight * double(draws.n_draws));
  array(gradient, n) = factor * array(sums.mean, n);
  // Those of weights that are drawn are derivatives in σ, the others in σ².
  const Index n_drawn = local ? 0 : draws.exact_last_layer ? network.first_weight(network.n_layers() - 1) : n;
  for (Index i = 0; i < n; ++i)
    gradient[n + i] = factor * sums.deviation[i] * (i < n_drawn ? deviations[i] : 2.0 * variances[size_t(i)]);
  array(gradient + 2 * n, network.n_noise()) = factor * array(sums.noise, network.n_noise());
  const double divergence = weight_divergence(network, parameters, with_deviations ? variances.data() : nullptr,
                                              divergence_factor, gradient);
  return finite_or_infinity(divergence_factor * divergence + factor * *sums.likelihood, network.n_parameters(),
                            gradient);
}

}  // namespace pydirect
