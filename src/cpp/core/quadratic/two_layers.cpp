// Two hidden layers, row by row. Given x the outputs z_k = a_k² of the first layer are independent, so that all
// expectations factorise; nothing is expanded into monomials.
#include "blocks.hpp"

namespace pydirect::quadratic {
namespace {

constexpr Index kOrders = 8;

// Six matrices of second-layer weights, each beside what it multiplies:
//   K_1 = μ m,  A = μ² s2,  V = v E z²,  L = Σ (coefficients of e3, m s2 and m³)
enum Product { kMean, kSquare, kVariance, kThird, kMixed, kCube, kProducts };

class TwoLayers {
 public:
  // Small enough for the stages between the products, which read some thirty arrays, to find them in a near cache.
  static constexpr Index kRowsPerBlock = 64;

  TwoLayers(const NetworkShape& shape, const NetworkData&)
      : shape_(shape),
        first_(shape.hidden[0]),
        second_(shape.hidden[1]),
        inputs_(shape.fan_in(0)),
        between_(shape.fan_in(1)),
        first_stride_(padded(inputs_) * first_),
        second_stride_(padded(between_) * second_),
        transposed_stride_(padded(second_) * padded(between_)),
        square_stride_(padded(between_) * between_),
        central_(kOrders * first_stride_),
        cumulant_(kOrders * first_stride_),
        weights_(4 * second_stride_),
        factor_(kProducts * second_stride_),
        transposed_(kProducts * transposed_stride_),
        scaled_(second_stride_),
        scaled_transposed_(transposed_stride_),
        n_(square_stride_),
        n_squared_(square_stride_),
        coefficient_(5 * padded(between_)),
        diagonal_(padded(between_)),
        spread_(padded(between_)),
        g_first_(kOrders * first_stride_),
        g_weights_(4 * second_stride_),
        g_n_(square_stride_),
        y_(second_stride_),
        columns_(6 * padded(between_)) {}

  Index n_powers() const { return kOrders; }

  // R | first layer's cumulants | six products | N | s2 s2ᵀ | lanes of column sums, p, v_p, p_0, Σ ω
  Index sums_size() const { return lanes_offset() + (6 * first_ + 2 * second_ + 2) * kLanes; }

  struct Scratch {
    Scratch(const TwoLayers& net, Index rows) : cumulant_stride(net.first_ * padded(rows)) {
      cumulant = Buffer(kOrders * cumulant_stride);
      for (Buffer* b : {&m, &s2, &e3, &e4, &z2, &t, &m3, &q, &gq, &tt, &weighted_s2})
        *b = Buffer(net.between_ * padded(rows));
      for (Buffer* b : {&g_m, &g_s2, &g_z2, &g_e3, &g_t, &g_m3})
        *b = Buffer(net.between_ * padded(rows));
      for (Buffer* b : {&k1, &a, &v, &l}) *b = Buffer(net.second_ * padded(rows));
      transposed = Buffer(padded(net.between_) * padded(rows));
      if (!net.shape_.bias) return;
      for (Buffer* b : {&m, &z2, &m3})  // z = 1
        for (Index j = 0; j < n_panels(rows); ++j)
          for (Index lane = 0; lane < kLanes; ++lane) (*b)[((j + 1) * net.between_ - 1) * kLanes + lane] = 1.0;
    }
    Index cumulant_stride;
    Buffer cumulant;
    Buffer m, s2, e3, e4, z2, t, m3, q, gq, tt, weighted_s2;
    Buffer g_m, g_s2, g_z2, g_e3, g_t, g_m3;
    Buffer k1, a, v, l;
    Buffer transposed;
  };

  void prepare(const double* moments) {
    for (Index r = 0; r < kOrders; ++r)
      pack(first_, inputs_, moments + r * first_ * inputs_, inputs_, central_.data() + r * first_stride_);
    kernels().quadratic.cumulants(first_stride_, kOrders, central_.data(), cumulant_.data(), first_stride_);
    const double* second = moments + shape_.moment_offset(1);
    for (Index r = 0; r < 4; ++r)
      pack(second_, between_, second + r * second_ * between_, between_, weights_.data() + r * second_stride_);
    p_ = moments + shape_.moment_offset(2);
    vp_ = p_ + shape_.fan_in(2);
    prepare_factors();
    prepare_n();
  }

  void evaluate(RowBlock& block, Scratch& s, double* sums, bool gradient) {
    double* column_lanes = sums + lanes_offset();
    forward(block, s, gradient ? column_lanes : nullptr);
    double* g_p = column_lanes + 6 * first_ * kLanes;
    double* g_vp = g_p + second_ * kLanes;
    double* g_p0 = g_vp + second_ * kLanes;
    output(block, s, gradient ? g_p : nullptr, g_vp, g_p0);
    for (Index l = 0; l < block.panels * kLanes; ++l) {
      const double error = block.mean[l] - block.y[l], weight = block.weight[l];
      sums[l % kLanes] += weight * (error * error + block.variance[l]);
      g_p0[kLanes + l % kLanes] += weight;
    }
    if (gradient) backward(block, s, sums);
  }

  void predict(RowBlock& block, Scratch& s) {
    forward(block, s, nullptr);
    output(block, s, nullptr, nullptr, nullptr);
  }

  double finish(const Buffer& sums, double* gradient) {
    const double r = sum_of_lanes(sums.data());
    if (gradient == nullptr) return r;
    finish_first(sums, gradient);
    sum_columns(sums);
    finish_n(sums);
    finish_second(sums, gradient);
    return r;
  }

 private:
  double p0() const { return shape_.bias ? p_[second_] : 0.0; }
  // What the bias units add to the variance of every row.
  double constant_variance() const {
    return shape_.bias ? vp_[second_] + coefficient_[4 * padded(between_) + first_] : 0.0;
  }

  Index first_offset() const { return kLanes; }
  Index product_offset(Index k) const { return first_offset() + kOrders * first_stride_ + k * second_stride_; }
  Index n_offset() const { return product_offset(kProducts); }
  Index lanes_offset() const { return n_offset() + 2 * square_stride_; }

  Panels factor(Product k) { return whole(factor_, second_, k * second_stride_); }
  Panels transposed(Product k) { return whole(transposed_, padded(between_), k * transposed_stride_); }
  Panels units(Buffer& b) { return whole(b, between_); }
  Panels outputs(Buffer& b) { return whole(b, second_); }

  // Calls body(j, k, index of the weight, its moments) for every second-layer weight in panels.
  template <class Body>
  void for_weights(const Body& body) const {
    const double* w = weights_.data();
    for (Index panel = 0, at = 0; panel < n_panels(between_); ++panel)
      for (Index j = 0; j < second_; ++j)
        for (Index q = 0; q < kLanes; ++q, ++at)
          body(j, panel * kLanes + q, at, w[at], w[at + second_stride_], w[at + 2 * second_stride_],
               w[at + 3 * second_stride_]);
  }

  // The coefficients of e4, m e3, m² s2, s2² and m⁴ in Σ_j e_j E s_j⁴ − p_j² E_z (E s_j² | z)², sorted by v_p and p².
  void prepare_factors() {
    coefficient_.clear();
    spread_.clear();
    double* f = factor_.data();
    double* c = coefficient_.data();
    const Index n = padded(between_);
    for_weights([&](Index j, Index k, Index at, double mu, double v, double c3, double c4) {
      const double p = p_[j], vp = vp_[j], pp = p * p, e = vp + pp;
      const double mu2 = mu * mu, vmu = v * mu, vmu2 = vmu * mu, c3mu = c3 * mu, vv = v * v;
      f[at + kMean * second_stride_] = mu;
      f[at + kSquare * second_stride_] = mu2;
      f[at + kVariance * second_stride_] = v;
      f[at + kThird * second_stride_] = e * c3 + (3.0 * vp + 2.0 * pp) * vmu + vp * (mu2 * mu);
      f[at + kMixed * second_stride_] = 3.0 * e * c3 + 2.0 * (3.0 * vp + 2.0 * pp) * vmu;
      f[at + kCube * second_stride_] = e * c3;
      scaled_[at] = p * mu;
      spread_[k] += p * v;
      const double u2 = mu2 + v;
      c[k] += vp * (c4 + 4.0 * c3mu + 6.0 * vmu2 + mu2 * mu2) + pp * (c4 + 4.0 * c3mu + 4.0 * vmu2 - vv);
      c[k + n] += 12.0 * vp * vmu2 + e * (4.0 * c4 + 12.0 * c3mu) + pp * (8.0 * vmu2 - 4.0 * vv);
      c[k + 2 * n] += 6.0 * e * (c4 + 2.0 * c3mu - vv) - 4.0 * pp * vv;
      c[k + 3 * n] -= 3.0 * vp * (u2 * u2) + 2.0 * pp * (2.0 * mu2 * v + vv);
      c[k + 4 * n] += e * (c4 - 3.0 * vv);
    });
    for (Index k = 0; k < kProducts; ++k)
      kernels().products.transpose_panels(second_, n_panels(between_), f + k * second_stride_, second_ * kLanes,
                                 transposed_.data() + k * transposed_stride_);
    kernels().products.transpose_panels(second_, n_panels(between_), scaled_.data(), second_ * kLanes,
                               scaled_transposed_.data());
  }

  // N = μᵀ diag(p) μ + diag(Σ_j p_j v_j)
  void prepare_n() {
    multiply(between_, second_, n_panels(between_), whole(scaled_transposed_, padded(between_)), factor(kMean),
             whole(n_, between_));
    const Index n = padded(between_);
    for (Index k = 0; k < between_; ++k) {
      double& n_kk = n_[entry(k, k)];
      n_kk += spread_[k];
      diagonal_[k] = n_kk;
      coefficient_[k] += n_kk * n_kk;
      coefficient_[3 * n + k] -= 3.0 * n_kk * n_kk;
    }
    for (Index i = 0; i < square_stride_; ++i) n_squared_[i] = n_[i] * n_[i];
  }

  // Where an entry of N stands, in panels of its columns.
  Index entry(Index row, Index column) const { return (column / kLanes * between_ + row) * kLanes + column % kLanes; }

  void forward(RowBlock& block, Scratch& s, double* column_lanes) {
    for (Index r = 0; r < kOrders; ++r)
      multiply(first_, inputs_, block.panels, whole(cumulant_, first_, r * first_stride_), block.power(r + 1),
               whole(s.cumulant, first_, r * s.cumulant_stride));
    for (Index j = 0; j < block.panels; ++j) {
      const Index at = j * between_ * kLanes;
      kernels().quadratic.square_moments({first_, s.cumulant.data() + j * first_ * kLanes, s.cumulant_stride,
                                          s.m.data() + at, s.s2.data() + at, s.e3.data() + at, s.e4.data() + at,
                                          s.z2.data() + at, s.t.data() + at, s.m3.data() + at});
    }
    multiply(first_, between_, block.panels, whole(n_, between_), units(s.m), units(s.q));
    multiply(first_, first_, block.panels, whole(n_squared_, between_), units(s.s2), units(s.tt));
    std::fill(block.variance.data(), block.variance.data() + block.panels * kLanes, constant_variance());
    const Index n = padded(between_);
    const double* c = coefficient_.data();
    for (Index j = 0; j < block.panels; ++j) {
      const Index at = j * between_ * kLanes, sum = first_ * kLanes;
      kernels().quadratic.square_variance({first_,
                                 {c, c + n, c + 2 * n, c + 3 * n, c + 4 * n},
                                 diagonal_.data(), s.m.data() + at, s.s2.data() + at, s.e3.data() + at,
                                 s.e4.data() + at, s.q.data() + at, s.gq.data() + at, s.tt.data() + at,
                                 block.weight.data() + j * kLanes, block.variance.data() + j * kLanes,
                                 column_lanes ? s.weighted_s2.data() + at : nullptr,
                                 {column_lanes, column_lanes + sum, column_lanes + 2 * sum, column_lanes + 3 * sum,
                                  column_lanes + 4 * sum, column_lanes + 5 * sum}});
    }
    multiply(second_, between_, block.panels, factor(kMean), units(s.m), outputs(s.k1));
    multiply(second_, first_, block.panels, factor(kSquare), units(s.s2), outputs(s.a));
    multiply(second_, between_, block.panels, factor(kVariance), units(s.z2), outputs(s.v));
    multiply(second_, first_, block.panels, factor(kThird), units(s.e3), outputs(s.l));
    multiply(second_, first_, block.panels, factor(kMixed), units(s.t), outputs(s.l), true);
    multiply(second_, between_, block.panels, factor(kCube), units(s.m3), outputs(s.l), true);
  }

  void output(RowBlock& block, Scratch& s, double* g_p, double* g_vp, double* g_p0) {
    for (Index j = 0; j < block.panels; ++j) {
      const Index at = j * second_ * kLanes, row = j * kLanes;
      kernels().quadratic.output({second_, p_, vp_, p0(), s.k1.data() + at, s.a.data() + at, s.v.data() + at,
                                  s.l.data() + at, block.y.data() + row, block.weight.data() + row,
                                  block.mean.data() + row, block.variance.data() + row, g_p, g_vp, g_p0});
    }
  }

  void backward(RowBlock& block, Scratch& s, double* sums) {
    const Index rows = block.panels * kLanes;
    const auto by_weight = [&](Product k, Buffer& g, Index n_units) {
      multiply(second_, rows, n_panels(n_units), outputs(g), {s.transposed.data(), rows * kLanes},
               {sums + product_offset(k), second_ * kLanes}, true);
    };
    const auto turn = [&](Buffer& b, Index n_units) {
      kernels().products.transpose_panels(n_units, block.panels, b.data(), between_ * kLanes, s.transposed.data());
    };
    turn(s.m, between_);
    by_weight(kMean, s.k1, between_);
    multiply(first_, rows, n_panels(between_), units(s.gq), {s.transposed.data(), rows * kLanes},
             {sums + n_offset(), between_ * kLanes}, true);
    turn(s.s2, first_);
    by_weight(kSquare, s.a, first_);
    for (Index j = 0; j < n_panels(first_); ++j)  // symmetric: down to the diagonal
      multiply(std::min(first_, (j + 1) * kLanes), rows, 1, units(s.weighted_s2),
               {s.transposed.data() + j * rows * kLanes, rows * kLanes},
               {sums + n_offset() + square_stride_ + j * between_ * kLanes, between_ * kLanes}, true);
    turn(s.z2, between_);
    by_weight(kVariance, s.v, between_);
    turn(s.e3, first_);
    by_weight(kThird, s.l, first_);
    turn(s.t, first_);
    by_weight(kMixed, s.l, first_);
    turn(s.m3, between_);
    by_weight(kCube, s.l, between_);

    const auto by_input = [&](Product k, Buffer& g, Buffer& out) {
      multiply(first_, second_, block.panels, transposed(k), outputs(g), units(out));
    };
    by_input(kMean, s.k1, s.g_m);
    multiply(first_, first_, block.panels, whole(n_, between_), units(s.gq), units(s.g_m), true);
    by_input(kSquare, s.a, s.g_s2);
    by_input(kVariance, s.v, s.g_z2);
    by_input(kThird, s.l, s.g_e3);
    by_input(kMixed, s.l, s.g_t);
    by_input(kCube, s.l, s.g_m3);

    const Index n = padded(between_);
    const double* c = coefficient_.data();
    for (Index j = 0; j < block.panels; ++j) {
      const Index at = j * between_ * kLanes;
      kernels().quadratic.square_adjoint({first_, s.cumulant.data() + j * first_ * kLanes, s.cumulant_stride,
                                {c, c + n, c + 2 * n, c + 3 * n, c + 4 * n},
                                diagonal_.data(), s.m.data() + at, s.s2.data() + at, s.e3.data() + at,
                                s.q.data() + at, s.tt.data() + at, block.weight.data() + j * kLanes,
                                s.g_m.data() + at, s.g_s2.data() + at, s.g_z2.data() + at, s.g_e3.data() + at,
                                s.g_t.data() + at, s.g_m3.data() + at});
    }
    for (Index r = 0; r < kOrders; ++r)
      multiply(first_, rows, n_panels(inputs_), whole(s.cumulant, first_, r * s.cumulant_stride),
               block.transposed_power(r + 1), {sums + first_offset() + r * first_stride_, first_ * kLanes}, true);
  }

  void finish_first(const Buffer& sums, double* gradient) {
    const double* g = sums.data() + first_offset();
    std::copy(g, g + kOrders * first_stride_, g_first_.data());
    kernels().quadratic.cumulants_adjoint(first_stride_, kOrders, central_.data(), g_first_.data(), first_stride_);
    for (Index r = 0; r < kOrders; ++r)
      unpack(first_, inputs_, g_first_.data() + r * first_stride_, gradient + r * first_ * inputs_);
  }

  // Σ ω of e4, m e3, m² s2, s2², m⁴ and q e3 for every unit, the bias among them.
  void sum_columns(const Buffer& sums) {
    const double* lanes = sums.data() + lanes_offset();
    columns_.clear();
    for (Index r = 0; r < 6; ++r)
      for (Index k = 0; k < first_; ++k)
        columns_[r * padded(between_) + k] = sum_of_lanes(lanes + (r * first_ + k) * kLanes);
    if (shape_.bias) columns_[4 * padded(between_) + first_] = total_weight(sums);
  }

  double total_weight(const Buffer& sums) const {
    return sum_of_lanes(sums.data() + lanes_offset() + (6 * first_ + 2 * second_ + 1) * kLanes);
  }

  // ∂R/∂N plus its transpose, and Y = μ times that.
  void finish_n(const Buffer& sums) {
    const Index n = padded(between_);
    const double* outer = sums.data() + n_offset();  // Σ ∂R/∂q mᵀ
    const double* pairs = outer + square_stride_;    // Σ ω s2 s2ᵀ, the upper triangle
    for (Index k = 0; k < between_; ++k) {
      for (Index i = 0; i < k; ++i)
        g_n_[entry(i, k)] = g_n_[entry(k, i)] =
            outer[entry(i, k)] + outer[entry(k, i)] + 8.0 * n_[entry(i, k)] * pairs[entry(i, k)];
      spread_[k] = outer[entry(k, k)] + 4.0 * diagonal_[k] * pairs[entry(k, k)] + 4.0 * columns_[5 * n + k] +
                   2.0 * diagonal_[k] * (columns_[k] - 3.0 * columns_[3 * n + k]);
      g_n_[entry(k, k)] = 2.0 * spread_[k];
    }
    multiply(second_, between_, n_panels(between_), factor(kMean), whole(g_n_, between_), whole(y_, second_));
  }

  void finish_second(const Buffer& sums, double* gradient) {
    double* output = gradient + shape_.moment_offset(2);
    double* output_variance = output + shape_.fan_in(2);
    const double* lanes = sums.data() + lanes_offset() + 6 * first_ * kLanes;
    for (Index j = 0; j < second_; ++j) {
      output[j] = sum_of_lanes(lanes + j * kLanes);
      output_variance[j] = sum_of_lanes(lanes + (second_ + j) * kLanes);
    }
    if (shape_.bias) {
      output[second_] = sum_of_lanes(lanes + 2 * second_ * kLanes);
      output_variance[second_] = total_weight(sums);
    }
    const double* g = sums.data() + product_offset(0);
    const Index n = padded(between_), stride = second_stride_;
    for_weights([&](Index j, Index k, Index at, double mu, double v, double c3, double c4) {
      if (k >= between_) return;
      const double p = p_[j], vp = vp_[j], pp = p * p, e = vp + pp;
      const double mu2 = mu * mu, vmu = v * mu, vmu2 = vmu * mu, c3mu = c3 * mu, vv = v * v, u2 = mu2 + v;
      const double* gk = g + at;
      const double third = gk[kThird * stride], mixed = gk[kMixed * stride], cube = gk[kCube * stride];
      const double skew = third + 2.0 * mixed, b = 3.0 * vp + 2.0 * pp;
      const double s1 = columns_[k], s2 = columns_[n + k], s3 = columns_[2 * n + k], s4 = columns_[3 * n + k],
                   s5 = columns_[4 * n + k], g_kk = spread_[k];
      g_weights_[at] = gk[kMean * stride] + 2.0 * mu * gk[kSquare * stride] + b * v * skew + 3.0 * vp * mu2 * third +
                       s1 * (vp * (4.0 * c3 + 12.0 * vmu + 4.0 * mu2 * mu) + pp * (4.0 * c3 + 8.0 * vmu)) +
                       s2 * (24.0 * vp * vmu + 12.0 * e * c3 + 16.0 * pp * vmu) + s3 * 12.0 * e * c3 -
                       s4 * (12.0 * vp * u2 * mu + 8.0 * pp * vmu) + p * y_[at];
      g_weights_[at + stride] = gk[kVariance * stride] + b * mu * skew +
                                s1 * (6.0 * vp * mu2 + pp * (4.0 * mu2 - 2.0 * v)) +
                                s2 * (12.0 * vp * mu2 + 8.0 * pp * (mu2 - v)) - s3 * (12.0 * e + 8.0 * pp) * v -
                                s4 * (6.0 * vp * u2 + 4.0 * pp * u2) - 6.0 * e * v * s5 + p * g_kk;
      g_weights_[at + 2 * stride] = e * (third + 3.0 * mixed + cube + 4.0 * mu * s1 + 12.0 * mu * (s2 + s3));
      g_weights_[at + 3 * stride] = e * (s1 + 4.0 * s2 + 6.0 * s3 + s5);
      // What e_j multiplies, then what v_p and p² have beside it.
      const double common = c3 * (third + 3.0 * mixed + cube) + s1 * (c4 + 4.0 * c3mu) +
                            s2 * (4.0 * c4 + 12.0 * c3mu) + s3 * 6.0 * (c4 + 2.0 * c3mu - vv) + s5 * (c4 - 3.0 * vv);
      output_variance[j] += common + 3.0 * vmu * skew + mu2 * mu * third + s1 * (6.0 * vmu2 + mu2 * mu2) +
                            s2 * 12.0 * vmu2 - s4 * 3.0 * u2 * u2;
      output[j] += 2.0 * p *
                       (common + 2.0 * vmu * skew + s1 * (4.0 * vmu2 - vv) + s2 * (8.0 * vmu2 - 4.0 * vv) -
                        s3 * 4.0 * vv - s4 * 2.0 * (2.0 * mu2 * v + vv)) +
                   0.5 * y_[at] * mu + g_kk * v;
    });
    for (Index r = 0; r < 4; ++r)
      unpack(second_, between_, g_weights_.data() + r * stride,
                     gradient + shape_.moment_offset(1) + r * second_ * between_);
  }

  NetworkShape shape_;
  Index first_, second_, inputs_, between_;  // units, and inputs of both layers with the bias
  Index first_stride_, second_stride_, transposed_stride_, square_stride_;
  Buffer central_, cumulant_;           // of the first layer's weights, in panels of inputs
  Buffer weights_;                      // mean and central moments of the second layer's, likewise
  Buffer factor_, transposed_;          // the six matrices and their transposes
  Buffer scaled_, scaled_transposed_;   // p μ
  Buffer n_, n_squared_;
  Buffer coefficient_, diagonal_;
  Buffer spread_;  // Σ_j p_j v_j; on the way back ∂R/∂N_kk
  Buffer g_first_, g_weights_, g_n_, y_, columns_;
  const double *p_ = nullptr, *vp_ = nullptr;
};

}  // namespace

DatumMemory two_layer_memory(const NetworkShape& shape) {
  const double h1 = double(shape.hidden[0]), h2 = double(padded(shape.hidden[1])), d = double(padded(shape.fan_in(0)));
  const double between = double(padded(shape.fan_in(1))), rows = double(TwoLayers::kRowsPerBlock);
  const double orders = double(kOrders), products = double(kProducts), lanes = double(kLanes);
  // Beside the first layer's cumulants: weights, factors and transposes, p μ, gradients, Y; then N, N² and ∂R/∂N.
  return {3.0 * orders * d * h1 + (4.0 + 2.0 * products + 2.0 + 4.0 + 1.0) * between * h2 + 3.0 * between * between,
          orders * d * h1 + products * between * h2 + 2.0 * between * between + lanes * (6.0 * h1 + 2.0 * h2 + 3.0),
          block_memory(shape, TwoLayers::kRowsPerBlock, kOrders) +
              rows * (orders * h1 + 18.0 * between + 4.0 * h2 + 4.0)};
}

std::unique_ptr<NetworkEngine> make_two_layer_engine(const NetworkShape& shape, const NetworkData& data) {
  return std::make_unique<DatumEngine<TwoLayers>>(shape, data);
}

}  // namespace pydirect::quadratic
