// One hidden layer, row by row: four products of (rows, inputs, units) for R and its gradient.
#include "blocks.hpp"

namespace pydirect::quadratic {
namespace {

class OneLayer {
 public:
  static constexpr Index kRowsPerBlock = 256;

  OneLayer(const NetworkShape& shape, const NetworkData& data)
      : shape_(shape),
        units_(shape.hidden[0]),
        inputs_(shape.fan_in(0)),
        stride_(padded(inputs_) * units_),
        central_(4 * stride_),
        cumulant_(4 * stride_),
        fourth_(padded(inputs_)),
        g_(4 * stride_),
        g_p_(units_),
        g_vp_(units_),
        odd_(units_, inputs_) {
    build_odd(data);
  }

  Index n_powers() const { return 4; }
  // R, the gradients in K_1 and K_2's weights, lanes of those in p, v_p and p_0, Σ ω
  Index sums_size() const { return kLanes + 2 * stride_ + 2 * units_ * kLanes + 2 * kLanes; }

  struct Scratch {
    Scratch(const OneLayer& net, Index rows)
        : k1(net.units_ * padded(rows)),
          k2(net.units_ * padded(rows)),
          l(net.units_ * padded(rows)),
          k4(padded(rows)) {}
    Buffer k1, k2, l, k4;
  };

  void prepare(const double* moments) {
    for (Index r = 0; r < 4; ++r)
      pack(units_, inputs_, moments + r * units_ * inputs_, inputs_, central_.data() + r * stride_);
    kernels().quadratic.cumulants(stride_, 4, central_.data(), cumulant_.data(), stride_);
    const double* output = moments + shape_.moment_offset(1);
    p_ = output;
    vp_ = output + shape_.fan_in(1);
    fourth_.clear();
    for (Index k = 0; k < units_; ++k)
      for (Index i = 0; i < padded(inputs_); ++i)
        fourth_[i] += e(k) * cumulant_[3 * stride_ + (i / kLanes * units_ + k) * kLanes + i % kLanes];
  }

  void evaluate(RowBlock& block, Scratch& s, double* sums, bool gradient) {
    first_layer(block, s);
    double* g_first = sums + kLanes;
    double* g_p = g_first + 2 * stride_;
    double* g_vp = g_p + units_ * kLanes;
    double* g_p0 = g_vp + units_ * kLanes;
    const Index size = units_ * kLanes;
    for (Index j = 0; j < block.panels; ++j) {
      const Index row = j * kLanes;
      std::fill(block.variance.data() + row, block.variance.data() + row + kLanes, constant_variance());
      QuadraticOutput out{units_, p_, vp_, p0(), s.k1.data() + j * size, nullptr, s.k2.data() + j * size, nullptr,
                          block.y.data() + row, block.weight.data() + row, block.mean.data() + row,
                          block.variance.data() + row, gradient ? g_p : nullptr, g_vp, g_p0};
      kernels().quadratic.output(out);
      for (Index q = 0; q < kLanes; ++q) {
        const double error = block.mean[row + q] - block.y[row + q], weight = block.weight[row + q];
        sums[q] += weight * (error * error + block.variance[row + q]);
        g_p0[kLanes + q] += weight;
      }
    }
    if (!gradient) return;
    const Index rows = block.panels * kLanes;
    for (Index r = 0; r < 2; ++r)
      multiply(units_, rows, n_panels(inputs_), whole(r == 0 ? s.k1 : s.k2, units_), block.transposed_power(r + 1),
               {g_first + r * stride_, size}, true);
  }

  void predict(RowBlock& block, Scratch& s) {
    first_layer(block, s);
    multiply(units_, inputs_, block.panels, weights(3), block.power(3), whole(s.l, units_));
    multiply(1, inputs_, block.panels, {fourth_.data(), kLanes}, block.power(4), {s.k4.data(), kLanes});
    const Index size = units_ * kLanes;
    for (Index j = 0; j < block.panels; ++j) {
      const Index row = j * kLanes;
      for (Index q = 0; q < kLanes; ++q) block.variance[row + q] = constant_variance() + s.k4[row + q];
      for (Index k = 0; k < units_; ++k)
        for (Index q = 0; q < kLanes; ++q) s.l[j * size + k * kLanes + q] *= e(k);
      QuadraticOutput out{units_, p_, vp_, p0(), s.k1.data() + j * size, nullptr, s.k2.data() + j * size,
                          s.l.data() + j * size, block.y.data() + row, block.weight.data() + row,
                          block.mean.data() + row, block.variance.data() + row, nullptr, nullptr, nullptr};
      kernels().quadratic.output(out);
    }
  }

  double finish(const Buffer& sums, double* gradient) {
    const double* g_first = sums.data() + kLanes;
    const double* lanes = g_first + 2 * stride_;
    std::copy(g_first, g_first + 2 * stride_, g_.data());
    std::fill(g_.data() + 2 * stride_, g_.data() + 4 * stride_, 0.0);
    for (Index k = 0; k < units_; ++k) {
      g_p_[k] = sum_of_lanes(lanes + k * kLanes);
      g_vp_[k] = sum_of_lanes(lanes + (units_ + k) * kLanes);
    }
    const double r = sum_of_lanes(sums.data()) +
                     odd_.evaluate(cumulant_.data(), stride_, p_, vp_, g_.data(), g_p_.data(), g_vp_.data());
    if (gradient == nullptr) return r;
    kernels().quadratic.cumulants_adjoint(stride_, 4, central_.data(), g_.data(), stride_);
    for (Index k = 0; k < 4; ++k)
      unpack(units_, inputs_, g_.data() + k * stride_, gradient + k * units_ * inputs_);
    double* output = gradient + shape_.moment_offset(1);
    std::copy(g_p_.data(), g_p_.data() + units_, output);
    std::copy(g_vp_.data(), g_vp_.data() + units_, output + shape_.fan_in(1));
    if (shape_.bias) {
      output[units_] = sum_of_lanes(lanes + 2 * units_ * kLanes);
      output[shape_.fan_in(1) + units_] = sum_of_lanes(lanes + (2 * units_ + 1) * kLanes);
    }
    return r;
  }

 private:
  double e(Index k) const { return vp_[k] + p_[k] * p_[k]; }
  double p0() const { return shape_.bias ? p_[units_] : 0.0; }
  double constant_variance() const { return shape_.bias ? vp_[units_] : 0.0; }
  Panels weights(Index order) { return whole(cumulant_, units_, (order - 1) * stride_); }

  void first_layer(RowBlock& block, Scratch& s) {
    multiply(units_, inputs_, block.panels, weights(1), block.power(1), whole(s.k1, units_));
    multiply(units_, inputs_, block.panels, weights(2), block.power(2), whole(s.k2, units_));
  }

  // T_31 = Σ ω x³ xᵀ, its transpose and T_4 = Σ ω x⁴.
  void build_odd(const NetworkData& data) {
    RowBlock block(shape_.n_inputs, shape_.bias, kRowsPerBlock, 4, true);
    Buffer weighted(padded(kRowsPerBlock) * inputs_);
    const Index panels = n_panels(inputs_);
    for (Index begin = 0; begin < data.n_rows; begin += kRowsPerBlock) {
      block.load(data.x + begin * shape_.n_inputs, data.y + begin, data.weight ? data.weight + begin : nullptr,
                 std::min(kRowsPerBlock, data.n_rows - begin));
      const Index rows = block.panels * kLanes;
      const auto weigh = [&](Index power) {
        const Panels x = block.power(power);
        for (Index j = 0; j < block.panels; ++j)
          for (Index i = 0; i < inputs_; ++i)
            for (Index q = 0; q < kLanes; ++q)
              weighted[(j * inputs_ + i) * kLanes + q] = block.weight[j * kLanes + q] * x.panel(j)[i * kLanes + q];
        return whole(weighted, inputs_);
      };
      multiply(inputs_, rows, panels, weigh(3), block.transposed_power(1), whole(odd_.t31, inputs_), true);
      multiply(inputs_, rows, panels, weigh(1), block.transposed_power(3), whole(odd_.t31_transposed, inputs_), true);
      multiply(1, rows, panels, {block.weight.data(), kLanes}, block.transposed_power(4), {odd_.t4.data(), kLanes},
               true);
    }
  }

  NetworkShape shape_;
  Index units_, inputs_, stride_;
  Buffer central_, cumulant_;
  Buffer fourth_;  // Σ_k e_k κ_4
  Buffer g_, g_p_, g_vp_;
  ThirdAndFourthCumulants odd_;
  const double *p_ = nullptr, *vp_ = nullptr;
};

}  // namespace

DatumMemory one_layer_memory(const NetworkShape& shape) {
  const double h = double(shape.hidden[0]), d = double(padded(shape.fan_in(0))), rows = double(OneLayer::kRowsPerBlock);
  return {12.0 * d * h + 2.0 * d * (d + h), 2.0 * d * h + 2.0 * double(kLanes) * (h + 2.0),
          block_memory(shape, OneLayer::kRowsPerBlock, 4) + rows * (3.0 * h + 5.0)};
}

std::unique_ptr<NetworkEngine> make_one_layer_engine(const NetworkShape& shape, const NetworkData& data) {
  return std::make_unique<DatumEngine<OneLayer>>(shape, data);
}

}  // namespace pydirect::quadratic
