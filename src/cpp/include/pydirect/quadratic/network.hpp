// Networks with quadratic activations, f(x) = Σ_j v_j a_j(x)², whose weights are independent random variables.
//
// All that an expectation needs of a weight is its mean and its central moments. They stand in one table, layer after
// layer; the part of a layer has shape (n_moments, fan_out, fan_in): the means, then E (w − E w)^r for r = 2, 3, …
// Every engine turns that table into R = Σ_l ω_l E (y_l − f(x_l))² and the derivative of R in every entry of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/tilt.hpp"
#include "pydirect/types.hpp"

namespace pydirect {

// n_moments doubles with every layer, and so do the degrees of all polynomials.
inline constexpr Index kMostHiddenLayers = 16;

struct NetworkShape {
  Index n_inputs;             // d, without the bias
  std::vector<Index> hidden;  // widths of the hidden layers
  bool bias;                  // one more input to every layer, the last one, fixed to one

  Index depth() const { return static_cast<Index>(hidden.size()); }
  Index n_layers() const { return depth() + 1; }
  Index fan_out(Index layer) const { return layer == depth() ? 1 : hidden[layer]; }
  Index fan_in(Index layer) const { return (layer == 0 ? n_inputs : hidden[layer - 1]) + (bias ? 1 : 0); }
  // The output is linear in its own weights and R quadratic; every square between doubles the power.
  Index n_moments(Index layer) const { return Index{2} << (depth() - layer); }
  Index n_weights() const {
    Index total = 0;
    for (Index k = 0; k < n_layers(); ++k) total += fan_out(k) * fan_in(k);
    return total;
  }
  Index moment_offset(Index layer) const {  // of a layer's part in the table
    Index total = 0;
    for (Index k = 0; k < layer; ++k) total += n_moments(k) * fan_out(k) * fan_in(k);
    return total;
  }
  Index table_size() const { return moment_offset(n_layers()); }
};

// Rows of data, weighted; the bias input is not among the columns. Not owned.
struct NetworkData {
  Index n_rows;
  const double* x;       // (n_rows, n_inputs)
  const double* y;       // (n_rows,)
  const double* weight;  // (n_rows,), or null for ones
};

// One way to compute R and its gradient for fixed data. What does not depend on the weights is computed once, when the
// engine is made. Not safe for concurrent calls on one engine: it owns its scratch space.
class NetworkEngine {
 public:
  virtual ~NetworkEngine() = default;
  // Monomials of f², of an engine that holds f² as a polynomial in the weights; otherwise zero.
  virtual Index n_terms() const { return 0; }
  // R; gradient has the layout of the table and may be null.
  virtual double evaluate(const double* moments, double* gradient, int n_threads) = 0;
  // Exact mean and variance of f at other rows; variance may be null.
  virtual void predict(const double* moments, Index n_rows, const double* x, double* mean, double* variance,
                       int n_threads) = 0;
};

// "tensor": one hidden layer by fourth moments of the inputs, at a cost that does not depend on the number of rows.
// "datum": one or two hidden layers by a pass over the rows, which have to stay where they are.
// "monomial": any depth, small networks, by monomials in the weights; see monomial_engine.hpp.
// std::invalid_argument says which depths an engine serves.
std::unique_ptr<NetworkEngine> make_network_engine(const std::string& kind, const NetworkShape& shape,
                                                   const NetworkData& data);

// What an evaluation with its gradient takes: floating-point operations, and bytes held, with as many workers as find
// work (at most sixteen). Not of "monomial", whose terms have to be counted.
struct NetworkCost {
  double flops, bytes;
};
NetworkCost network_cost(const std::string& kind, const NetworkShape& shape, Index n_rows);

// One hidden layer: replaces q_k (n_weights, n_levels) of every weight in turn by its best given the others,
// q_k ∝ p_k exp(−½ τ E[‖y − f‖² | w_k]). Weights stand in the order of the layers, a layer (fan_out, fan_in). Returns R
// afterwards.
double network_sweep(const NetworkShape& shape, const NetworkData& data, const TiltFamily& family, double tau,
                     double* q);

}  // namespace pydirect
