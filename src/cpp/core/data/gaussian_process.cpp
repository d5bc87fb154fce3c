#include "pydirect/data/gaussian_process.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/arrays.hpp"
#include "moving.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/dense.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {
constexpr Index kCovarianceRowsPerChunk = 32;
constexpr Index kCrossRowsPerChunk = 64;
constexpr Index kMarkedRows = 16;  // the least number of rows of which marks are made
// Smaller matrices take a millisecond or so: waking threads, and their waiting afterwards, would cost more.
constexpr Index kEntriesForThreads = Index{1} << 17;

int threads_for(Index n_rows, Index n_columns, int n_threads) {
  return n_rows * n_columns < kEntriesForThreads ? 1 : n_threads;
}

// A covariance and what the gradient needs of it, on and above the diagonals of (n, stride).
struct Parts {
  double *ard, *second, *covariance;
  std::vector<double> x, columns, norms, axes;  // x over length-scales (n, n_inputs), its transpose (n_inputs, stride)

  Parts(const MarginalLikelihood& p, double* work)
      : ard(work), second(work + p.n * p.stride), covariance(second + p.n * p.stride), x(p.x, p.x + p.n * p.n_inputs),
        columns(static_cast<std::size_t>(p.n_inputs * p.stride)), norms(static_cast<std::size_t>(p.stride)),
        axes(p.axes, p.axes + p.n_axes * p.stride) {
    auto rows = matrix(x.data(), p.n, p.n_inputs);
    rows.rowwise() /= array(p.length_scales, p.n_inputs).transpose();
    matrix(columns.data(), p.n_inputs, p.stride).leftCols(p.n) = rows.transpose();
    array(norms) = matrix(columns.data(), p.n_inputs, p.stride).square().colwise().sum().transpose();
    if (p.n_axes > 0) matrix(axes.data(), p.n_axes, p.stride).colwise() *= array(p.rates, p.n_axes);
  }
};

// The first entry of a row that is computed: of the pack on the diagonal.
Index first_of(Index row) { return row / kLevelPadding * kLevelPadding; }

AxesRow axes_of(const MarginalLikelihood& p, const Parts& parts, Index i) {
  const Index first = first_of(i);
  return {p.n - first, p.n_axes, p.stride, parts.axes.data() + first, i - first, parts.second + i * p.stride + first};
}

void covariance(const MarginalLikelihood& p, const Parts& parts, int n_threads) {
  const GaussianProcessKernels& own = kernels().gaussian_process;
  const auto covariance_row = own.covariance_row[kernel_of(p.twice_smoothness)][p.second_part()];
  const Strided<const double> columns{parts.columns.data(), p.stride, 1};
  for_chunks(p.n, kCovarianceRowsPerChunk, n_threads, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) std::fill(parts.ard + i * p.stride + begin, parts.ard + (i + 1) * p.stride, 0.0);
    add_product<double>({end - begin, p.n - begin, p.n_inputs, columns.from(0, begin).transposed(),
                         columns.from(0, begin), nullptr, 1.0, {parts.ard + begin * (p.stride + 1), p.stride, 1},
                         Part::kUpper, Sum::kIsAdded},
                        1);
    for (Index i = begin; i < end; ++i) {
      const Index first = first_of(i), at = i * p.stride + first;
      // A point is at distance zero from itself; rounding must not say otherwise where length-scales are short.
      parts.ard[at + i - first] = parts.norms[i];
      if (p.n_axes > 0) own.axes_row[p.of_pairs](axes_of(p, parts, i));
      covariance_row({p.n - first, parts.ard + at, parts.second + at, p.distances + at, p.linear + at,
                      parts.norms.data() + first, parts.norms[i], p.rates[0], p.ard_amplitude, p.second_amplitude,
                      p.linear_amplitude, p.constant, parts.covariance + at});
      parts.covariance[at + i - first] += p.noise[i];
    }
  });
}

// From K⁻¹, n_targets times, and α: sums (4 + n_axes,) over the whole matrix of M k_I, M k_I ρr, M x_L·x_L', M, and
// M ∂k_I/∂log ℓ_j; and of every input, to which is added, Σ M ∂(a_A Matérn)/∂log ℓ_c. weight: memory.
std::vector<double> covariance_gradient(const MarginalLikelihood& p, const Parts& parts, const double* alpha,
                                        double* weight, double* of_inputs, int n_threads) {
  const Index n = p.n, stride = p.stride, d = p.n_inputs, n_sums = 4 + p.n_axes, chunk = kCovarianceRowsPerChunk;
  std::vector<double> row_sums(static_cast<std::size_t>(n_sums * n)), sums(static_cast<std::size_t>(n_sums));
  std::vector<double> totals(static_cast<std::size_t>((n + chunk - 1) / chunk * stride));
  std::vector<double> of_row(static_cast<std::size_t>(n)), products(static_cast<std::size_t>(n * d));
  const GaussianProcessKernels& own = kernels().gaussian_process;
  const auto gradient_row = own.gradient_row[p.second_part()];
  for_chunks(n, chunk, n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(static_cast<std::size_t>(3 * p.n_axes * kLevelPadding));
    for (Index i = begin; i < end; ++i) {
      const Index first = first_of(i), at = i * stride + first;
      CovarianceGradientRow task{n - first, i - first, parts.covariance + at, alpha + first, parts.ard + at,
                                 parts.second + at, p.distances + at, p.linear + at, p.rates[0], p.second_amplitude,
                                 weight + at, totals.data() + begin / chunk * stride + first, {}};
      const double second = parts.second[at + i - first];
      gradient_row(task);
      std::fill(weight + i * stride + begin, weight + at, 0.0);
      of_row[static_cast<std::size_t>(i)] = task.sums[4];
      double* own_sums = row_sums.data() + n_sums * i;
      // Every pair above the diagonal stands for two entries of the matrix.
      const double m = 0.5 * (parts.covariance[at + i - first] - alpha[i] * alpha[i]);
      const double of_diagonal[4] = {m * second, 0.0, m * p.linear[at + i - first], m};
      for (int k = 0; k < 4; ++k) own_sums[k] = 2.0 * task.sums[k] - of_diagonal[k];
      if (p.n_axes == 0) continue;
      own.axes_gradient_row[p.of_pairs]({axes_of(p, parts, i), scratch.data(), own_sums + 4});
      for (Index k = 4; k < n_sums; ++k) own_sums[k] *= 2.0;
    }
    add_product<double>({end - begin, d, n - begin, {weight + begin * (stride + 1), stride, 1},
                         {parts.x.data() + begin * d, d, 1}, nullptr, 1.0, {products.data() + begin * d, d, 1},
                         Part::kAll, Sum::kIsAdded},
                        1);
  });
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < n_sums; ++k)
      sums[static_cast<std::size_t>(k)] += row_sums[static_cast<std::size_t>(n_sums * i + k)];
  // Σ_(i<j) W_ij (x_i − x_j)² for every input, four times: W is the derivative in r², and a pair stands for two entries
  const Vector of_columns = matrix(totals.data(), Index(totals.size()) / stride, stride).colwise().sum().transpose();
  const Vector both = array(of_row) + of_columns.head(n);
  const auto x = matrix(parts.x.data(), n, d);
  array(of_inputs, d) -=
      4.0 * (x.square().colwise() * both - 2.0 * x * matrix(products.data(), n, d)).colwise().sum().transpose();
  return sums;
}

// Marks of inputs in which one of eight others differs from the first of all; those of pairs of axes count wherever they
// have a weight, as their functions are not zero at distance zero.
Words moving_others(const CrossCovariance& p, Index n_words) {
  const Index n_panels = (p.n_others + kLevelPadding - 1) / kLevelPadding, size = p.n_inputs + p.n_linear;
  Words out(static_cast<std::size_t>(n_panels * n_words));
  for (Index panel = 0; panel < n_panels; ++panel) {
    std::uint64_t* const own = out.data() + panel * n_words;
    const Index lanes = std::min(kLevelPadding, p.n_others - panel * kLevelPadding);
    for (Index lane = 0; lane < lanes; ++lane)
      mark_moving(p.others + panel * size * kLevelPadding + lane, p.others, p.n_inputs, kLevelPadding, own);
    for (Index k = 0; k < p.n_inputs && p.per_pair > 0.0; ++k)
      own[k / kInputsPerWord] |= std::uint64_t{p.product_weights[k] > 0.0} << (k % kInputsPerWord);
  }
  return out;
}

}  // namespace

void cross_covariance(const CrossCovariance& p, double linear_reach, int twice_smoothness, int n_threads) {
  const RoughPart rough = p.isotropic_amplitude <= 0.0 ? kNoRoughPart
                          : !p.product_weights         ? kIsotropicPart
                          : p.per_pair > 0.0           ? kPairsPart
                                                       : kProductPart;
  const auto of_rows = kernels().cross_covariance.of_rows[kernel_of(twice_smoothness)][rough];
  n_threads = threads_for(p.n_rows, p.n_others, n_threads);
  // Of many inputs, products of the linear part are less those of the first of the others, wherever rows are predicted
  // alone or together; few rows are not worth the marks.
  const bool rests = p.n_inputs >= kManyInputs && p.n_others > 0, marks = rests && p.n_rows >= kMarkedRows;
  const Index n_words = n_words_of(p.n_inputs);
  Vector rest = Vector::Zero(rests ? p.n_linear : 0), first(rests ? p.n_inputs : 0);
  for (Index k = 0; k < p.n_inputs && rests; ++k) first[k] = p.others[k * kLevelPadding];
  for (Index k = 0; k < p.n_linear && rests; ++k)
    rest[k] = p.others[(p.n_inputs + k) * kLevelPadding] * p.others[(p.n_inputs + k) * kLevelPadding];
  const Words of_others = marks ? moving_others(p, n_words) : Words();
  for_chunks(p.n_rows, kCrossRowsPerChunk, n_threads, [&](Index begin, Index end) {
    CrossCovariance part = p;
    std::vector<Index> inputs(static_cast<std::size_t>(rests ? p.n_inputs : 0));
    std::iota(inputs.begin(), inputs.end(), Index{0});
    part.inputs = rests ? inputs.data() : nullptr, part.rest = rest.data(), part.rest_sum = rest.sum();
    Words of_rows_moving(static_cast<std::size_t>(marks ? (end - begin) * n_words : 0));
    for (Index i = begin; i < end && marks; ++i)
      mark_moving(p.x + i * p.n_inputs, first.data(), p.n_inputs, 1, of_rows_moving.data() + (i - begin) * n_words);
    part.n_words = n_words, part.moving_others = marks ? of_others.data() : nullptr;
    part.moving_rows = marks ? of_rows_moving.data() : nullptr;
    part.n_rows = end - begin;
    part.x = p.x + begin * p.n_inputs;
    part.out = p.out + begin * p.n_others;
    std::vector<double> linear(static_cast<std::size_t>(part.n_rows * p.n_linear));
    matrix(linear.data(), part.n_rows, p.n_linear) = matrix(part.x, part.n_rows, p.n_inputs)
                                                         .leftCols(p.n_linear)
                                                         .unaryExpr([linear_reach](double x) {
                                                           return std::clamp(x, -linear_reach, linear_reach);
                                                         });
    alignas(64) double strips[3 * kRowsTogether * kStripColumns];
    part.x_linear = linear.data();
    part.strips = strips;
    of_rows(part);
  });
}

bool marginal_likelihood(const MarginalLikelihood& p, double* work, double* out, int n_threads) {
  n_threads = threads_for(p.n, p.n, n_threads);
  const Index n = p.n, stride = p.stride;
  const Parts parts(p, work);
  double *const k = parts.covariance, *const lower = work + 3 * n * stride;
  covariance(p, parts, n_threads);
  // K = RᵀR, α = K⁻¹y and K⁻¹
  if (factorise(n, k, stride, n_threads) < n) return false;
  std::vector<double> solved(p.y, p.y + n * p.n_targets);
  double* const last = solved.data() + (n - 1) * p.n_targets;
  solve_lower<double>(n, p.n_targets, {k, 1, stride}, {solved.data(), p.n_targets, 1}, n_threads);
  const double misfit = array(solved).square().sum();
  const double log_determinant = 2.0 * matrix(k, n, stride).matrix().diagonal().array().log().sum();
  solve_lower<double>(n, p.n_targets, {k + (n - 1) * (stride + 1), -stride, -1}, {last, -p.n_targets, 1}, n_threads);
  const auto alphas = matrix(solved.data(), n, p.n_targets);
  invert_factored(n, k, lower, stride, n_threads);
  // M = ½ (n_targets K⁻¹ − Σ ααᵀ), of which the rows of the gradient subtract the first product
  if (p.n_targets > 1) {
    array(k, n * stride) *= double(p.n_targets);
    const Strided<const double> others{solved.data() + 1, p.n_targets, 1};
    add_product<double>({n, n, p.n_targets - 1, others, others.transposed(), nullptr, -1.0, {k, stride, 1}, Part::kUpper,
                         Sum::kIsAdded},
                        n_threads);
  }
  Vector alpha = Vector::Zero(stride);
  alpha.head(n) = alphas.col(0);
  std::fill_n(out, p.n_sums(), 0.0);
  const auto sums = covariance_gradient(p, parts, alpha.data(), lower, out + 5 + p.n_rates(), n_threads);
  const double total = double(p.n_targets) * double(n) - misfit;
  const Vector diagonal = matrix(k, n, stride).matrix().diagonal().array() - alpha.head(n).square();
  const double noise = 0.5 * (diagonal * array(p.noise, n)).sum(), linear = p.linear_amplitude * sums[2];
  out[0] = 0.5 * (misfit + double(p.n_targets) * (log_determinant + double(n) * kLog2Pi));
  out[1] = noise;
  // Σ M ∂K/∂log a over all parts is Σ M K = ½ (n − yᵀα) per target, which gives the part not summed.
  out[2] = 0.5 * total - noise - sums[0] - linear - p.constant * sums[3];
  out[3] = sums[0];
  out[4] = linear;
  if (p.n_axes == 0) out[5] = sums[1];
  std::copy(sums.begin() + 4, sums.end(), out + 5);
  return true;
}

double KernelPosterior::penalty(const double* theta, double* gradient) const {
  const Index n = n_parameters();
  const auto scale = array(sd, n);
  const Vector z = (array(theta, n) - array(mean, n)) / scale, root = (1.0 + z.square()).sqrt();
  array(gradient, n) = z / root / scale;
  return (root - 1.0).sum();
}

double KernelPosterior::operator()(const double* theta, double* gradient, double* work, int n_threads) const {
  const Index d = n_scales, n_rates = rows.n_rates(), n = n_parameters();
  const Vector p = array(theta, n).exp();
  std::vector<double> scales(static_cast<std::size_t>(rows.n_inputs)), sums(static_cast<std::size_t>(rows.n_sums()));
  for (Index j = 0; j < rows.n_inputs; ++j) scales[j] = p[2 + tied[j]];
  const Vector noise = p[0] / array(weight, rows.n);
  const Vector rates = (rows.of_pairs ? std::sqrt(5.0) : 1.0) / p.segment(3 + d, n_rates);
  MarginalLikelihood own = rows;
  own.noise = noise.data(), own.length_scales = scales.data(), own.rates = rates.data();
  own.ard_amplitude = p[1], own.second_amplitude = p[2 + d], own.constant = 1.0;
  own.linear_amplitude = p[n - 1] / double(std::max<Index>(n_linear, 1));
  auto out = array(gradient, n);
  out = 0.0;
  if (!marginal_likelihood(own, work, sums.data(), n_threads) || !array(sums).isFinite().all()) return kBadPoint;
  const double prior = penalty(theta, gradient);
  out.head(2) += array(sums).segment(1, 2);
  out[0] -= slope;
  for (Index j = 0; j < rows.n_inputs; ++j) out[2 + tied[j]] += sums[5 + n_rates + j];
  out[2 + d] += sums[3];
  out.segment(3 + d, n_rates) += array(sums).segment(5, n_rates);
  out[n - 1] += sums[4];
  return sums[0] - slope * theta[0] - rest + prior;
}

}  // namespace pydirect
