// One hidden layer through the fourth moments of the inputs, T = Σ_l ω vec(xxᵀ) vec(xxᵀ)ᵀ.
// The cost of an evaluation does not depend on the number of rows.
#include <stdexcept>
#include <string>

#include "blocks.hpp"

namespace pydirect::quadratic {
namespace {

constexpr double kMostBytes = 2.0 * 1024 * 1024 * 1024;
constexpr Index kPanelsPerChunk = 8;
constexpr Index kRowsPerBlock = 128;

Index count_pairs(const NetworkShape& shape) {
  const Index d = shape.fan_in(0);
  const double bytes = 0.25 * double(d) * double(d + 1) * double(d) * double(d + 1) * 8.0;
  if (bytes > kMostBytes)
    throw std::invalid_argument("the moments of " + std::to_string(d) + " inputs would take " +
                                std::to_string(Index(bytes / 1e9)) + " GB, more than the 2 GiB that 'tensor' may use");
  return d * (d + 1) / 2;
}

class TensorEngine final : public NetworkEngine {
 public:
  TensorEngine(const NetworkShape& shape, const NetworkData& data)
      : shape_(shape),
        units_(shape.hidden[0]),
        inputs_(shape.fan_in(0)),
        pairs_(count_pairs(shape)),
        unit_panels_(n_panels(units_)),
        stride_(padded(inputs_) * units_),
        tensor_(padded(pairs_) * pairs_),
        diagonal_columns_(padded(inputs_) * pairs_),
        y_(pairs_),
        odd_(units_, inputs_),
        central_(4 * stride_),
        cumulant_(4 * stride_),
        mean_(unit_panels_ * kLanes * inputs_),
        variance_(unit_panels_ * kLanes * inputs_),
        p_(padded(units_)),
        vp_(padded(units_)),
        a_(padded(pairs_)),
        residual_(pairs_),
        lanes_(pairs_ * kLanes),
        value_(padded(units_)),
        g_mean_(unit_panels_ * kLanes * inputs_),
        g_variance_(unit_panels_ * kLanes * inputs_),
        g_p_(padded(units_)),
        g_vp_(padded(units_)),
        g_(4 * stride_),
        predictor_(make_one_layer_engine(shape, {0, nullptr, nullptr, nullptr})) {
    collect(data);
  }

  double evaluate(const double* moments, double* gradient, int n_threads) override {
    prepare(moments);
    double r = prepare_fit();
    const Index n_chunks = (unit_panels_ + kPanelsPerChunk - 1) / kPanelsPerChunk;
    while (Index(scratch_.size()) < count_workers(n_chunks, n_threads))
      scratch_.emplace_back(3 * kPanelsPerChunk * kLanes * pairs_);
    for_workers(n_chunks, n_threads, [&](Index worker, Index chunk) {
      const Index begin = chunk * kPanelsPerChunk;
      run_units(begin, std::min(unit_panels_, begin + kPanelsPerChunk), scratch_[worker]);
    });
    for (Index k = 0; k < units_; ++k) r += value_[k];
    g_.clear();
    r += odd_.evaluate(cumulant_.data(), stride_, p_.data(), vp_.data(), g_.data(), g_p_.data(), g_vp_.data());
    if (gradient != nullptr) write_gradient(gradient);
    return r;
  }

  void predict(const double* moments, Index n_rows, const double* x, double* mean, double* variance,
               int n_threads) override {
    predictor_->predict(moments, n_rows, x, mean, variance, n_threads);
  }

 private:
  // Where T_(i,j),(k,l) stands: in panels of its columns.
  double& tensor(Index row, Index column) {
    return tensor_[(column / kLanes * pairs_ + row) * kLanes + column % kLanes];
  }
  Index pair(Index i, Index j) const { return i * inputs_ - i * (i + 1) / 2 + j; }  // i ≤ j

  // R is a small difference of large sums, whose rounding must not grow with the number of rows as it would one by one:
  // blocks of rows are summed first, then added.
  void collect(const NetworkData& data) {
    RowBlock block(shape_.n_inputs, shape_.bias, kRowsPerBlock, 1, false);
    Buffer features(kRowsPerBlock * pairs_), weighted(kRowsPerBlock * pairs_);
    Buffer transposed(kRowsPerBlock * padded(pairs_)), block_sum(pairs_ * kLanes), y_lanes(pairs_ * kLanes);
    for (Index begin = 0; begin < data.n_rows; begin += kRowsPerBlock) {
      block.load(data.x + begin * shape_.n_inputs, data.y + begin, data.weight ? data.weight + begin : nullptr,
                 std::min(kRowsPerBlock, data.n_rows - begin));
      block_sum.clear();
      for (Index j = 0; j < block.panels; ++j) {
        double* f = features.data() + j * pairs_ * kLanes;
        double* g = weighted.data() + j * pairs_ * kLanes;
        kernels().quadratic.tensor_pairs(inputs_, block.power(1).panel(j), 1.0, f);
        for (Index ij = 0; ij < pairs_; ++ij)
          for (Index q = 0; q < kLanes; ++q) {
            const Index at = ij * kLanes + q, row = j * kLanes + q;
            g[at] = block.weight[row] * f[at];
            block_sum[at] += block.y[row] * g[at];
          }
      }
      kernels().rows<double>().add(pairs_ * kLanes, block_sum.data(), y_lanes.data());
      const Index rows = block.panels * kLanes;
      kernels().products.transpose_panels(pairs_, block.panels, weighted.data(), pairs_ * kLanes, transposed.data());
      for (Index j = 0; j < n_panels(pairs_); ++j) {  // down to the diagonal
        const Index height = std::min(pairs_, (j + 1) * kLanes);
        multiply(height, rows, 1, whole(features, pairs_), {transposed.data() + j * rows * kLanes, rows * kLanes},
                 whole(block_sum, pairs_));
        kernels().rows<double>().add(height * kLanes, block_sum.data(), tensor_.data() + j * pairs_ * kLanes);
      }
      double weight_sum = 0.0, y_sum = 0.0, yy_sum = 0.0;
      for (Index l = 0; l < block.rows; ++l) {
        const double weighted_y = block.weight[l] * block.y[l];
        weight_sum += block.weight[l];
        y_sum += weighted_y;
        yy_sum += weighted_y * block.y[l];
      }
      weight_sum_ += weight_sum;
      y_sum_ += y_sum;
      yy_sum_ += yy_sum;
    }
    for (Index column = 0; column < pairs_; ++column)
      for (Index row = column + 1; row < pairs_; ++row) tensor(row, column) = tensor(column, row);
    for (Index ij = 0; ij < pairs_; ++ij) y_[ij] = sum_of_lanes(y_lanes.data() + ij * kLanes);
    for (Index i = 0; i < inputs_; ++i) {
      for (Index ij = 0; ij < pairs_; ++ij)
        diagonal_columns_[(i / kLanes * pairs_ + ij) * kLanes + i % kLanes] = tensor(ij, pair(i, i));
      odd_.t4[i] = tensor(pair(i, i), pair(i, i));
      for (Index j = 0; j < inputs_; ++j) {
        const double t = tensor(pair(i, i), pair(std::min(i, j), std::max(i, j)));
        odd_.t31[(j / kLanes * inputs_ + i) * kLanes + j % kLanes] = t;
        odd_.t31_transposed[(i / kLanes * inputs_ + j) * kLanes + i % kLanes] = t;
      }
    }
  }

  void prepare(const double* moments) {
    const Index size = units_ * inputs_;
    for (Index r = 0; r < 4; ++r) pack(units_, inputs_, moments + r * size, inputs_, central_.data() + r * stride_);
    kernels().quadratic.cumulants(stride_, 4, central_.data(), cumulant_.data(), stride_);
    pack_transposed(units_, inputs_, moments, inputs_, mean_.data());
    pack_transposed(units_, inputs_, moments + size, inputs_, variance_.data());
    const double* output = moments + shape_.moment_offset(1);
    std::copy(output, output + units_, p_.data());
    std::copy(output + shape_.fan_in(1), output + shape_.fan_in(1) + units_, vp_.data());
    p0_ = shape_.bias ? output[units_] : 0.0;
    vp0_ = shape_.bias ? output[shape_.fan_in(1) + units_] : 0.0;
  }

  // Σ ω (y − E f)² = A:T:A − 2 A:Y + …, and its derivative, the residual T A − Y. The output's bias shifts y.
  double prepare_fit() {
    double* q = lanes_.data();
    std::fill(a_.data(), a_.data() + pairs_, 0.0);
    for (Index j = 0; j < unit_panels_; ++j) {
      const double* p = p_.data() + j * kLanes;
      const double* v = variance_.data() + j * inputs_ * kLanes;
      kernels().quadratic.tensor_pairs(inputs_, mean_.data() + j * inputs_ * kLanes, 2.0, q);
      for (Index i = 0; i < inputs_; ++i)
        for (Index lane = 0; lane < kLanes; ++lane) q[pair(i, i) * kLanes + lane] += v[i * kLanes + lane];
      for (Index ij = 0; ij < pairs_; ++ij) a_[ij] += kernels().dense.dot(kLanes, p, q + ij * kLanes);
    }
    std::fill(q, q + pairs_ * kLanes, 0.0);
    for (Index panel = 0, at = 0; panel < n_panels(pairs_); ++panel)
      for (Index ij = 0; ij < pairs_; ++ij)
        for (Index lane = 0; lane < kLanes; ++lane, ++at)
          q[ij * kLanes + lane] += tensor_[at] * a_[panel * kLanes + lane];
    double fit = yy_sum_ - 2.0 * p0_ * y_sum_ + (p0_ * p0_ + vp0_) * weight_sum_;
    g_p0_ = 2.0 * (p0_ * weight_sum_ - y_sum_);
    for (Index ij = 0; ij < pairs_; ++ij) {
      const double ones = shape_.bias ? tensor(ij, pairs_ - 1) : 0.0;
      const double y = y_[ij] - p0_ * ones, ta = sum_of_lanes(q + ij * kLanes);
      fit += a_[ij] * (ta - 2.0 * y);
      g_p0_ += 2.0 * a_[ij] * ones;
      residual_[ij] = ta - y;
    }
    return fit;
  }

  void run_units(Index begin, Index end, Buffer& scratch) {
    const Index size = inputs_ * kLanes, width = pairs_ * kLanes, n = end - begin;
    double* q = scratch.data();
    double* tq = q + kPanelsPerChunk * width;
    double* tv = tq + kPanelsPerChunk * width;
    for (Index j = begin; j < end; ++j)
      kernels().quadratic.tensor_pairs(inputs_, mean_.data() + j * size, 2.0, q + (j - begin) * width);
    multiply(pairs_, pairs_, n, whole(tensor_, pairs_), {q, width}, {tq, width});
    multiply(pairs_, inputs_, n, whole(diagonal_columns_, pairs_), {variance_.data() + begin * size, size},
             {tv, width});
    for (Index j = begin; j < end; ++j) {
      const Index at = (j - begin) * width, lane = j * kLanes;
      kernels().quadratic.tensor_panel({inputs_, mean_.data() + j * size, variance_.data() + j * size, q + at, tq + at,
                                        tv + at, p_.data() + lane, vp_.data() + lane, residual_.data(),
                                        value_.data() + lane, g_mean_.data() + j * size,
                                        g_variance_.data() + j * size, g_p_.data() + lane, g_vp_.data() + lane});
    }
  }

  void write_gradient(double* gradient) {
    const Index size = units_ * inputs_;
    for (Index k = 0; k < units_; ++k)
      for (Index i = 0; i < inputs_; ++i) {
        const Index by_input = (i / kLanes * units_ + k) * kLanes + i % kLanes;
        const Index by_unit = (k / kLanes * inputs_ + i) * kLanes + k % kLanes;
        g_[by_input] += g_mean_[by_unit];
        g_[stride_ + by_input] += g_variance_[by_unit];
      }
    kernels().quadratic.cumulants_adjoint(stride_, 4, central_.data(), g_.data(), stride_);
    for (Index r = 0; r < 4; ++r) unpack(units_, inputs_, g_.data() + r * stride_, gradient + r * size);
    double* output = gradient + shape_.moment_offset(1);
    std::copy(g_p_.data(), g_p_.data() + units_, output);
    std::copy(g_vp_.data(), g_vp_.data() + units_, output + shape_.fan_in(1));
    if (shape_.bias) {
      output[units_] = g_p0_;
      output[shape_.fan_in(1) + units_] = weight_sum_;
    }
  }

  NetworkShape shape_;
  Index units_, inputs_, pairs_, unit_panels_, stride_;
  Buffer tensor_, diagonal_columns_, y_;
  double weight_sum_ = 0.0, y_sum_ = 0.0, yy_sum_ = 0.0;
  ThirdAndFourthCumulants odd_;
  Buffer central_, cumulant_;  // in panels of inputs
  Buffer mean_, variance_;     // in panels of units
  Buffer p_, vp_;
  double p0_ = 0.0, vp0_ = 0.0, g_p0_ = 0.0;
  Buffer a_, residual_, lanes_, value_;
  Buffer g_mean_, g_variance_, g_p_, g_vp_, g_;
  std::vector<Buffer> scratch_;
  std::unique_ptr<NetworkEngine> predictor_;
};

}  // namespace

double tensor_memory(const NetworkShape& shape, Index n_workers) {
  const double d = double(padded(shape.fan_in(0))), pairs = 0.5 * double(shape.fan_in(0)) * double(shape.fan_in(0) + 1);
  const double rows = double(kRowsPerBlock), lanes = double(kLanes);
  const Index n_chunks = (n_panels(shape.hidden[0]) + kPanelsPerChunk - 1) / kPanelsPerChunk;
  const double workers = double(std::min(n_chunks, n_workers));
  const DatumMemory predictor = one_layer_memory(shape);
  // Features of a block of rows are gone when the scratch of the workers comes.
  return (pairs + lanes) * (pairs + d) + 2.0 * lanes * pairs +
         3.0 * pairs * std::max(rows, workers * double(kPanelsPerChunk) * lanes) +
         16.0 * d * double(padded(shape.hidden[0])) + predictor.own;
}

std::unique_ptr<NetworkEngine> make_tensor_engine(const NetworkShape& shape, const NetworkData& data) {
  return std::make_unique<TensorEngine>(shape, data);
}

}  // namespace pydirect::quadratic
