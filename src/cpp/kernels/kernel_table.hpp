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

// Posteriors of several models with the same A, side by side: arrays (n_weights, stride), a model to a lane. Lanes are
// handled in packs of kLanePack; those that no model uses hold a copy of one that does.
inline constexpr Index kLanePack = 16, kMostLanes = 64;

struct LaneFamily {
  Index n_levels;           // of every model; levels that one lacks have log_prior = −inf and level 0
  const double* levels;     // (n_weights or 1, n_levels, stride)
  Index level_stride;       // 0 when all weights share their levels
  const double* log_prior;  // (n_weights or 1, n_levels, stride)
  Index prior_stride;       // 0 when all weights share their prior
  Index stride;
};

struct LaneMoments {
  double* eta;
  double* kappa;
  double* mean;
  double* second;
  double* gain;
};

// One pass of coordinate ascent over the weights of all models, in place.
struct LaneSweep {
  Index n_weights;
  const float* a;                 // (n_weights, n_weights) symmetric
  const double* diagonal;         // (n_weights,) of a
  const double* prior_precision;  // (n_weights, stride)
  const double* residual;         // c − A s at the last exact evaluation
  float* drift;                   // change of the residual since then
  const double* tau;              // (stride,)
  const double* threshold;        // (stride,) as in Sweep; infinite where a model is at rest
  LaneMoments moments;
  double* moved;                  // (stride,) out: number of weights that moved
};

// Back-substitution with rounding in expectation (Babai) for models that share the factor of A + ridge.
struct LaneLattice {
  Index n_weights;
  const float* factor;            // (n_weights, n_weights), upper
  const double* ridge;            // solutions of the ridge problems
  const double* diagonal;         // (n_weights,) of A
  const double* prior_precision;  // (n_weights, stride)
  const double* tau;              // (stride,)
  float* excess;                  // workspace
  float* pull;                    // workspace, zero
  LaneMoments moments;
};

// Rows of a factorised categorical, each n_levels of the family long.
struct CategoricalRows {
  const double* logits;
  double* q;
  double* log_ratio;   // log q − log p where q > 0, else 0
  double* divergence;  // (n_weights,) KL(q ‖ p)
};

// One layer's part of a quadratic network's moment table: means, then E (w − E w)^r for r = 2 … n_moments.
struct MomentTable {
  Index n_moments;     // 2, 4, 8 or a multiple of 8
  Index n_weights;     // of the layer
  Index first_weight;  // its first weight among all
  double* moments;     // (n_moments, n_weights)
};

// Bounds of what one weight of a mixture needs on the stack.
inline constexpr Index kMostComponents = 64, kMostLevels = 256;

// One pass of coordinate ascent over the weights of all components of a mixture, in place: Σ_i α_i times component i's
// ELBO without its entropy, plus the pairwise bound on the entropy of the whole,
//     Σ_i α_i H(q_i) − Σ_i α_i log Z_i,   Z_i = Σ_k α_k C_ik,   C_ik = Π_j Σ_w √(q_ij(w) q_kj(w)).
// Arrays (n_components, n_weights) unless another shape is given.
struct ComponentSweep {
  Index n_weights, n_components;
  const TiltFamily* families;     // (n_components,) of the same number of levels
  const float* a;                 // (n_weights, n_weights) symmetric
  const double* diagonal;         // (n_weights,) of a
  const double* prior_precision;  // (n_weights,)
  const double* residual;
  float* drift;
  double tau;
  double threshold;
  const double* alpha;   // (n_components,)
  const unsigned char* close;  // (n_components, n_components) pairs whose overlap may count; not the diagonal
  double* kappa;
  double* mean;
  double* second;
  double* gain;
  double* root;         // (n_weights, n_components, n_levels) √q
  double* factor;       // (n_weights, n_components, n_components) overlap at one weight, Σ_w √(q_ij(w) q_kj(w))
  double* overlap;      // (n_components, n_components) C
  double* density;      // (n_components,) Z
};

// Rows of a table of d units: a pack from any unit on lies inside.
inline constexpr int kActivationTableRows = 10;
inline constexpr Index activation_table_stride(Index d) { return (d + 15) / 8 * 8; }

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

// Matrices in panels of eight columns, [⌈columns/8⌉][rows][8], see product-inl.hpp.
// Every panel of c (n_rows × 8) = a (n_rows × n_inner) times the panel of b (n_inner × 8), or is increased by it.
struct PanelProduct {
  Index n_rows, n_inner, n_panels;
  const double* a;  // in panels of the inner index
  Index a_stride;   // from panel to panel
  const double* b;
  Index b_stride;
  double* c;
  Index c_stride;
  bool accumulate;
};

// c = a b, or increased by it, for any n_rows, n_inner and n_columns. Every b and every c holds its columns in runs of
// eight (8 of panel stride: row by row); b may be read, but is not used, up to the end of its last run.
struct MatrixProduct {
  Index n_rows, n_inner, n_columns;
  const double* a;
  Index a_row, a_inner, a_block;  // entry (i, k) stands at i a_row + ⌊k/8⌋ a_block + (k mod 8) a_inner
  const double* b;
  Index b_inner, b_panel;
  double* c;
  Index c_row, c_panel;
  bool accumulate;
  bool upper_only;  // entries below the diagonal are left alone or computed, as it comes
};

// Eight rows of data between the layers of a network, [n_units][8]. z = a² for a with the cumulants κ_1 … κ_8.
struct SquareMoments {
  Index n_units;
  const double* cumulant;  // κ_r at (r − 1) stride
  Index stride;
  double *m, *s2, *e3, *e4;  // out: mean and central moments of z
  double *z2, *t, *m3;       // out: E z², m s2, m³
};

// Var_z of the output layer, Σ_k c_1 e4 + c_2 m e3 + c_3 m² s2 + c_4 s2² + c_5 m⁴ + 4 q² s2 + 4 q N_kk e3 + 2 s2 T for
// eight rows, where q = N m and T = (N∘N) s2.
struct SquareVariance {
  Index n_units;
  const double* coefficient[5];  // (n_units,) each
  const double* diagonal;        // N_kk
  const double *m, *s2, *e3, *e4;
  const double* q;
  double* g_q;           // out: ∂R/∂q
  const double* t;       // T
  const double* weight;  // (8,)
  double* variance;      // (8,) increased
  double* weighted_s2;   // out: ω s2; null when no gradient is wanted
  double* sums[6];       // (n_units, 8) increased by ω times e4, m e3, m² s2, s2², m⁴, q e3
};

// The way back through both: from ∂R in what the products took to ∂R/∂κ_r, which takes the place of κ_r.
struct SquareAdjoint {
  Index n_units;
  double* cumulant;
  Index stride;
  const double* coefficient[5];
  const double* diagonal;
  const double *m, *s2, *e3;
  const double *q, *t;  // N m and (N∘N) s2
  const double* weight;
  const double *g_m, *g_s2, *g_z2, *g_e3, *g_t, *g_m3;  // from the products
};

// Second moments of f = v_0 + Σ_j v_j s_j for eight rows; E s_j² = K_1² + A + V, and L gathers the third cumulants.
// One hidden layer is the case without A.
struct QuadraticOutput {
  Index n_units;
  const double *p, *vp;  // mean and variance of v_j
  double p0;
  double *k1, *a, *v, *l;  // (n_units, 8); a and l may be null; out: ∂R in each of them when sums are wanted
  const double *y, *weight;  // (8,)
  double *mean, *variance;   // (8,): E f set, Var f increased
  double *g_p, *g_vp;        // (n_units, 8) increased; null when no gradient is wanted
  double* g_p0;              // (8,) increased
};

// Eight hidden units of the tensor engine: pairs (i ≤ j) of inputs, those off the diagonal doubled.
struct TensorPanel {
  Index n_inputs;
  const double *mean, *variance;  // (n_inputs, 8) of the weights
  const double *q;                // (n_pairs, 8) packed μμᵀ
  const double *tq, *tv;          // (n_pairs, 8): T q and T diag(v)
  const double *p, *vp;           // (8,)
  const double* residual;         // (n_pairs,) T A − Y
  double* value;                  // (8,) out
  double *g_mean, *g_variance;    // (n_inputs, 8) out
  double *g_p, *g_vp;             // (8,) out
};

// Cumulants of the sum of a unit, a vector over the data for each.
struct UnitCumulants {
  Index n_rows;  // a multiple of 8
  double* k[4];
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

// Rows of a quantised model that kernels take together; fewer are padded.
constexpr Index kIntegerRows = 32, kFloatRows = 16;

// Fourier features in fixed point; see quantized-inl.hpp.
struct IntegerFourier {
  Index n_inputs, n_frequencies;
  const int* q;                 // (n_inputs, kIntegerRows)
  const unsigned* frequencies;  // (n_frequencies, n_inputs), shifts included
  const void* quarter;          // quarter wave of int8 (64,) or int16 (65,)
  void* out;                    // (2 n_frequencies, kIntegerRows) of int8 or int16: cosine, sine, cosine, …
};

// Sums of basis functions by the level of their weight, for rows side by side.
template <class T, class Sum>
struct LevelSums {
  Index n_columns, n_levels;
  const int* start;   // (n_columns · n_levels + 1,) where the indices of a column's level begin
  const int* index;   // basis functions
  const Sum* levels;  // (n_levels,)
  const int* shifts;  // (n_levels,) when all levels are ± powers of two, else null
  const T* phi;       // (n_features, rows)
  Sum* out;           // (n_columns, rows)
};

// Draws for blocks of weights, a row for every draw. Two draws share a counter.
inline constexpr Index kDrawColumns = 64, kDrawRows = 64, kMostSums = 16;

enum class BaseLaw {
  kNormal, kLaplace, kLogistic, kExponential, kGamma, kWeibull, kRayleigh, kInverseGamma, kWald, kHorseshoe
};

struct DrawBlock {
  BaseLaw law;
  double shape;
  std::uint64_t seed;
  std::uint32_t epoch, purpose;  // purpose below 4
  std::uint32_t first_column, first_pair;
  Index n_columns, n_pairs;      // columns up to a multiple of 8 are written
  double* xi;                    // (2 n_pairs, kDrawColumns)
  double* log_xi;                // the same, or null; of positive laws
};

struct PowerSums {
  Index n_columns, n_draws;
  const double* xi;         // (n_draws, kDrawColumns)
  const double* log_xi;     // null unless there are exponents beyond the integers and −1, or logs
  Index n_exponents, n_integers;  // exponents: first positive integers, ascending
  const double* exponents;  // (n_exponents,)
  Index n_logs;             // 1: log ξ, 2: its square too
  double* sums;             // (n_exponents + n_logs, kDrawColumns) increased
};

// log p(w) of a prior up to a constant of the caller's.
struct LogDensity {
  enum class Kind { kPolynomial, kPowers, kLogistic } kind;
  double centre, scale, log_scale;
  // Piecewise polynomial in w − centre, one row of coefficients more than there are knots.
  Index degree, n_knots;
  const double *coefficients, *knots;
  // Σ factor w^exponent + log_factor log w + log_square_factor (log w − log_centre)²
  Index n_powers, n_logs;
  const double *exponents, *factors;
  double log_factor, log_square_factor, log_centre;
};

// Σ over weights of −log σ − mean log p(μ + σ ξ), mean powers of ξ given; slopes are written.
struct DivergenceBlock {
  Index n_columns;
  const double *location, *scale;  // (n_columns,); no location for powers
  const double* sums;              // means, (n_sums, sum_stride)
  Index sum_stride;
  double *location_slope, *scale_slope;
};

// The same sums draw by draw: of log p(w), its derivative, and ξ times it.
struct DirectSums {
  Index n_columns, n_draws;
  bool exponential;  // w = exp(μ + σ ξ), and the density is that of log w
  const double *location, *scale;  // (n_columns up to a multiple of 8,)
  const double* xi;                // (n_draws, kDrawColumns)
  const double* log_xi;            // the same; of positive laws
  double *value, *slope, *scale_slope;  // increased
};

struct KernelTable {
  const char* name;

  void (*tilt)(const TiltFamily&, const TiltMoments&, Index begin, Index end);
  void (*tilt_probabilities)(const TiltFamily&, const double* eta, const double* kappa, double* q, Index begin,
                             Index end);
  Index (*sweep)(const TiltFamily&, const Sweep&);
  Index (*sweep_components)(const ComponentSweep&);
  void (*overlap_factors)(Index n_components, Index n_levels, const double* root, double* factor, Index begin,
                          Index end);

  // The same for several models, on the lanes from `first` on: `count` of them, packs as a whole.
  void (*lane_tilt)(const LaneFamily&, const LaneMoments&, Index begin, Index end, Index first, Index count);
  void (*lane_sweep)(const LaneFamily&, const LaneSweep&, Index first, Index count);
  void (*lane_lattice)(const LaneFamily&, const LaneLattice&, Index first, Index count);
  // y += a x for rows of a and all columns of x in a range of lanes; x and y have rows of `stride`.
  void (*lane_product)(Index begin, Index end, Index n_inner, const float* a, Index lda, const float* x, float* y,
                       Index stride, Index first, Index count);

  // q, log_ratio and divergence of a range of weights.
  void (*softmax)(const TiltFamily&, const CategoricalRows&, Index begin, Index end);
  // Moments of a range of weights, which are numbered through all layers, from the rows of q.
  void (*central_moments)(const TiltFamily&, const double* q, const MomentTable&, Index begin, Index end);
  // ∂R/∂q up to a constant for every weight, from the derivatives of R in the layer's moments.
  void (*moment_slopes)(const TiltFamily&, const MomentTable&, const double* gradient, double* out, Index begin,
                        Index end);
  // Gradient of factor·R + KL in the logits.
  void (*logit_gradient)(const TiltFamily&, const CategoricalRows&, const MomentTable&, const double* gradient,
                         double factor, double* out, Index begin, Index end);

  // y = A x for symmetric A, reading the lower triangle only.
  void (*symv)(Index n, const float* a, Index lda, const float* x, float* y);
  // y = rows of A times x, accumulated in double.
  void (*gemv_float)(Index begin, Index end, Index n, const float* a, Index lda, const double* x, double* y);
  void (*gemv_double)(Index begin, Index end, Index n, const double* a, Index lda, const double* x, double* y);
  // y -= alpha x
  void (*subtract_scaled)(Index n, float alpha, const float* x, float* y);
  double (*dot)(Index n, const double* x, const double* y);

  // As in activation_moments.hpp; cdf and density may both be null.
  void (*activation_moments)(Activation, Index d, const double* mean, const double* variance, double* hm, double* v,
                             double* hv, double* cdf, double* density);
  void (*activation_moments_adjoint)(Activation, Index d, const double* mean, const double* variance,
                                     const double* hm_bar, const double* v_bar, const double* hv_bar,
                                     double* mean_bar, double* variance_bar);
  void (*activation_covariance)(Activation, PairKernel, Index d, const double* mean, const double* S, double* C,
                                double* residual, double* scratch);
  void (*activation_covariance_adjoint)(Activation, PairKernel, Index d, const double* mean, const double* S,
                                        const double* residual, const double* C_bar, double* mean_bar, double* S_bar,
                                        double* scratch);

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
  // out += in + factor shift
  void (*add_shifted_float)(Index n, const float* in, double factor, const double* shift, double* out);
  void (*add_shifted_double)(Index n, const double* in, double factor, const double* shift, double* out);

  // mean_i = phi_i^T weight, variance_i = (phi_i²)^T spread for rows of phi.
  void (*row_moments)(Index n_rows, Index n_columns, const double* rows, Index stride, const double* weight,
                      const double* spread, double* mean, double* variance);

  void (*covariance_row)(const CovarianceRow&);
  void (*covariance_gradient_row)(CovarianceGradientRow&);

  void (*panel_product)(const PanelProduct&);
  void (*matrix_product)(const MatrixProduct&);
  // out = inᵀ, [⌈n_units/8⌉][8 n_panels][8], zero where there is no unit.
  void (*transpose_panels)(Index n_units, Index n_panels, const double* in, Index stride, double* out);
  // out_r = x^r for r = 2 … n_powers at (r − 1) stride; x itself stands before them.
  void (*powers)(Index n, Index n_powers, double* x, Index stride);
  // Central moments of orders 2 … n_orders (4 or 8) to cumulants, and the derivatives back in place.
  void (*cumulants)(Index n, Index n_orders, const double* central, double* cumulant, Index stride);
  void (*cumulants_adjoint)(Index n, Index n_orders, const double* central, double* gradient, Index stride);
  void (*square_moments)(const SquareMoments&);
  void (*square_variance)(const SquareVariance&);
  void (*square_adjoint)(const SquareAdjoint&);
  void (*quadratic_output)(const QuadraticOutput&);
  void (*tensor_pairs)(Index n_inputs, const double* x, double factor, double* pairs);
  void (*tensor_panel)(const TensorPanel&);
  // Increases the cumulants of a unit by those of w x.
  void (*add_cumulants)(const UnitCumulants&, const double* cumulant, const double* x);
  // Coefficients of w, …, w⁴ in Σ ω (2 p ρ a² + e a⁴), a = r + w x; k are the cumulants of r.
  void (*quartic)(const UnitCumulants& rest, const double* x, const double* weight, const double* residual, double p,
                  double e, double* coefficient);
  void (*exponential)(const ExponentialRows&);

  void (*integer_fourier_8)(const IntegerFourier&);
  void (*integer_fourier_16)(const IntegerFourier&);
  void (*level_sums_8)(const LevelSums<signed char, int>&);
  void (*level_sums_16)(const LevelSums<short, int>&);
  void (*level_sums_double)(const LevelSums<double, double>&);

  void (*draw_block)(const DrawBlock&);
  void (*add_power_sums)(const PowerSums&);
  double (*divergence_from_sums)(const LogDensity&, const DivergenceBlock&);
  void (*add_log_densities)(const LogDensity&, const DirectSums&);
  // Rows of stride kDrawColumns, each times a factor of its own.
  void (*scale_rows)(Index n_columns, Index n_rows, const double* factor, double* rows);

  // Element-wise maths with defined edges, exposed for tests.
  void (*exp)(Index n, const double* x, double* out);
  void (*log)(Index n, const double* x, double* out);  // positive normal numbers
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
