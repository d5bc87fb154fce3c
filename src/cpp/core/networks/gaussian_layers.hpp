// What the deterministic and the sampled objectives share: parameters packed for products, short names for products,
// the likelihood of an output's Gaussian, accumulators and workspace.
#pragma once

#include <cmath>
#include <vector>

#include "core/arrays.hpp"
#include "core/panels.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/networks/gaussian_network.hpp"

namespace pydirect::gaussian_network {

// Doubles beyond the end of an array that a product may read.
inline constexpr Index kSlack = 8;

// A matrix by its strides; columns in runs of eight.
struct Matrix {
  const double* data;
  Index row, panel;
};
inline Matrix by_rows(const double* data, Index stride) { return {data, stride, 8}; }
inline Matrix in_panels(const double* data, Index n_rows) { return {data, 8, 8 * n_rows}; }

struct ProductSize { Index rows, inner, columns; };

// c = a b or c += a b, c stored row by row.
inline void multiply(const ProductSize& size, const Matrix& a, const Matrix& b, double* c, Index c_row,
                     bool accumulate = false, bool upper_only = false, Index c_panel = 8) {
  kernels().products.matrix({size.rows, size.inner, size.columns, a.data, a.row, 1, a.panel, b.data, b.row, b.panel, c,
                            c_row, c_panel, accumulate, upper_only});
}

// c += aᵀ b, all stored row by row.
inline void add_transposed(const ProductSize& size, const double* a, Index a_stride, const double* b, Index b_stride,
                           double* c, Index c_stride) {
  kernels().products.matrix({size.rows, size.inner, size.columns, a, 1, a_stride, 8 * a_stride, b, b_stride, 8, c,
                            c_stride, 8, true, false});
}

// One matrix of a layer in panels, and its transpose where there is a way back.
struct Packed {
  std::vector<double> plain, transposed;
  Index n_in = 0, n_out = 0;

  void set(Index n_in, Index n_out, const double* matrix, bool with_transpose = true);
  Matrix forward() const { return in_panels(plain.data(), n_in); }
  Matrix backward() const { return in_panels(transposed.data(), n_out); }
};

// out (n_rows, n_out) = in (n_rows, n_in) times the matrix, or times its transpose with the widths exchanged.
inline void forward(const Packed& w, Index n_rows, const double* in, double* out, bool accumulate = false) {
  multiply({n_rows, w.n_in, w.n_out}, by_rows(in, w.n_in), w.forward(), out, w.n_out, accumulate);
}
inline void backward(const Packed& w, Index n_rows, const double* in, double* out, bool accumulate = false) {
  multiply({n_rows, w.n_out, w.n_in}, by_rows(in, w.n_out), w.backward(), out, w.n_in, accumulate);
}

// exp x, beyond a cap its tangent: a line search that goes too far meets a large finite value.
struct CappedExponential { double value, slope; };
inline CappedExponential capped_exp(double x) {
  constexpr double cap = 60.0;
  if (!(x > cap)) {
    const double e = std::exp(x);
    return {e, e};
  }
  static const double highest = std::exp(cap);
  return {highest * (1.0 + x - cap), highest};
}

// Gaussian of one row's outputs, and the adjoint of the expected log-likelihood in it. covariance
// (n_outputs, n_outputs) may be null: outputs are independent then.
struct OutputGaussian {
  Index n_outputs;
  const double *mean, *variance, *covariance;
};
struct OutputAdjoint {
  double *mean, *variance, *covariance, *log_noise;  // covariance without its diagonal, which is in variance
};

// E log p(y | outputs); its derivatives times `factor` are set in the adjoint, those of the log noise variances added.
double expected_log_likelihood(const GaussianNetwork& network, const double* y, const double* log_noise,
                               const OutputGaussian& output, double factor, const OutputAdjoint& adjoint);

// Rows of a chunk, which has an accumulator of that many doubles of its own: enough for all accumulators together to
// stay within bounds, whatever the number of threads.
Index rows_per_chunk(Index n_rows, Index rows_per_block, Index accumulator_size);

// One thread where the multiplications are done sooner than other threads are woken. Results do not depend on it.
int useful_threads(double n_multiplications, int n_threads);

// The first of the accumulators (n_accumulators, size) becomes their sum, in order.
void sum_in_order(Index n_accumulators, Index size, double* accumulators, int n_threads);

// A thread's own memory, kept from call to call: of the chunk that it works on, and of the call that it makes.
enum class Memory { kChunk, kCall };
double* workspace(Memory memory, Index size);

// The objective as it goes out: +inf, and a gradient of zeros, when something has overflown.
double finite_or_infinity(double value, Index n_parameters, double* gradient);

}  // namespace pydirect::gaussian_network
