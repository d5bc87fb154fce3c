// One table of plain function pointers per instruction set; dispatch.cpp chooses one.
// Kernels know pointers, lengths and strides only: no Eigen, no std containers, no allocation, no exceptions.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

// Factorised categorical in its natural parameters: q_j(w) ∝ p_j(w) exp(eta_j w − kappa_j w²).
struct TiltFamily {
  Index n_levels;           // padded to kLevelPadding; padding has log_prior = −inf and level 0
  const double* levels;     // (n_weights or 1, n_levels)
  Index level_stride;       // 0 when all weights share their levels
  const double* log_prior;  // (n_weights or 1, n_levels)
  Index prior_stride;       // 0 when all weights share their prior
};

// Moments of a range of weights. gain_j = E_q[log p_j − log q_j].
struct TiltMoments {
  const double* eta;    // (n_weights,)
  const double* kappa;  // (n_weights,)
  double* mean;         // (n_weights,)
  double* second;       // (n_weights,)
  double* gain;         // (n_weights,)
};

// One pass of coordinate ascent over the weights, in place.
struct Sweep {
  Index n_weights;
  const float* a;         // (n_weights, lda) symmetric
  Index lda;
  const double* diagonal; // (n_weights,) of a
  const double* prior_precision;  // (n_weights,)
  const double* residual; // (n_weights,) c − A s at the last exact evaluation
  float* drift;           // (lda,) change of the residual since then
  double tau;
  double threshold;       // a weight moves when |step| sqrt(tau a_jj + prior_precision_j) exceeds it
  double* eta;
  double* kappa;
  double* mean;
  double* second;
  double* gain;
};

template <class T>
struct FourierBlock {
  Index n_rows, n_inputs, n_frequencies;  // n_frequencies padded to 16
  const double* x;                        // (n_rows, n_inputs), row stride x_stride
  Index x_stride;
  const T* frequencies;                   // (n_inputs, padded), in turns per unit of x
  Index padded;
  Index n_used;                           // true number of frequencies
  const T* amplitudes;                    // (padded,) of each frequency
  T* out;                                 // (n_rows, out_stride): cosines then sines
  Index out_stride;
};

// One row i of the covariance  a_A Matérn32(|x_A − x_A'|) + a_I exp(−|x_I − x_I'|) + a_L x_L·x_L' + constant,
// columns 0..i. Inner products come in; what the gradient needs again goes out in their place.
struct CovarianceRow {
  Index n;               // columns
  double* ard;           // in: x_A·x_A';  out: a_A exp(−√3 |x_A − x_A'|)
  double* isotropic;     // in: x_I·x_I';  out: |x_I − x_I'|
  const double* linear;  // x_L·x_L'
  const double* ard_norm;        // |x_A|² of every column
  const double* isotropic_norm;  // |x_I|²
  double own_ard_norm, own_isotropic_norm;
  double ard_amplitude, isotropic_amplitude, linear_amplitude, constant;
  double* covariance;    // out
};

// Row i of the gradient. M = ½ (K⁻¹ − ααᵀ) is the derivative of −log N(y; 0, K) in K.
struct CovarianceGradientRow {
  Index n;
  const double* inverse;     // row of K⁻¹
  const double* alpha;       // K⁻¹y
  double own_alpha;
  const double* ard;         // as the forward pass left them
  const double* isotropic;
  const double* linear;
  double isotropic_amplitude;
  double* distance_weight;   // out: ∂/∂|x_A − x_A'|² = −(3/2) M a_A exp(−√3 r)
  double sums[4];            // out: Σ M k_I, Σ M k_I r_I, Σ M x_L·x_L', Σ M over the row
};

// Rows of log E exp(x·w), x_j = factor φ_j, for independent discrete weights w_j.
constexpr Index kExponentialRows = 4;
constexpr double kLargestLogTerm = 100.0;  // a term beyond counts as this much in the gradient, which stays finite
struct ExponentialRows {
  Index n_rows, n_weights;
  const double* phi;     // (n_rows, stride)
  Index stride;
  const double* factor;  // (n_rows,)
  const double* weight;  // (n_rows,)
  Index n_levels, padded;  // weights padded to kLevelPadding, q = 1 at the first level there
  const double* q;       // (n_levels, padded)
  const double* first;   // (padded,) lowest level of each weight
  const double* offsets; // (n_levels, padded) w_jk − w_j0
  bool evenly_spaced;    // offsets are multiples of their second row
  double* scratch;       // (2 kExponentialRows, padded) when there is a gradient
  double* log_terms;     // (n_rows,)
  double* gradient;      // (n_levels, padded), added to; or nullptr
};

struct KernelTable {
  const char* name;

  void (*tilt)(const TiltFamily&, const TiltMoments&, Index begin, Index end);
  void (*tilt_probabilities)(const TiltFamily&, const double* eta, const double* kappa, double* q, Index begin,
                             Index end);
  Index (*sweep)(const TiltFamily&, const Sweep&);

  // y = A x for symmetric A, reading the lower triangle only.
  void (*symv)(Index n, const float* a, Index lda, const float* x, float* y);
  // y = rows of A times x, accumulated in double.
  void (*gemv_float)(Index begin, Index end, Index n, const float* a, Index lda, const double* x, double* y);
  void (*gemv_double)(Index begin, Index end, Index n, const double* a, Index lda, const double* x, double* y);
  // y -= alpha x
  void (*subtract_scaled)(Index n, float alpha, const float* x, float* y);
  double (*dot)(Index n, const double* x, const double* y);

  void (*fourier_double)(const FourierBlock<double>&);
  void (*fourier_float)(const FourierBlock<float>&);

  // out += rows^T y over a block of rows, in double.
  void (*add_transposed_float)(Index n_rows, Index n_columns, const float* rows, Index stride, const double* y,
                               double* out);
  void (*add_transposed_double)(Index n_rows, Index n_columns, const double* rows, Index stride, const double* y,
                                double* out);
  // out += in
  void (*add_float)(Index n, const float* in, double* out);
  void (*add_double)(Index n, const double* in, double* out);

  // mean_i = phi_i^T weight, variance_i = (phi_i²)^T spread for rows of phi.
  void (*row_moments)(Index n_rows, Index n_columns, const double* rows, Index stride, const double* weight,
                      const double* spread, double* mean, double* variance);

  void (*covariance_row)(const CovarianceRow&);
  void (*covariance_gradient_row)(CovarianceGradientRow&);

  void (*exponential)(const ExponentialRows&);

  // Element-wise maths with defined edges, exposed for tests.
  void (*exp)(Index n, const double* x, double* out);
  void (*sincos_turns_double)(Index n, const double* t, double* sine, double* cosine);
  void (*sincos_turns_float)(Index n, const float* t, float* sine, float* cosine);
};

// The table in use. Chosen on first call: PYDIRECT_ISA, else the widest level that this CPU has.
const KernelTable& kernels();

// Names of the levels compiled in and supported by this CPU, narrowest first; returns their number.
int supported_isa_levels(const char** names, int capacity);

// Forces a level; false when it is unknown or unsupported here.
bool select_isa_level(const char* name);

}  // namespace pydirect
