#include "blocks.hpp"

namespace pydirect::quadratic {

RowBlock::RowBlock(Index n_inputs, bool bias, Index most_rows, Index n_powers, bool transposed)
    : columns(n_inputs),
      inputs(n_inputs + (bias ? 1 : 0)),
      powers(n_powers),
      x_stride(padded(most_rows) * inputs),
      xt_stride(padded(most_rows) * padded(inputs)),
      x(n_powers * x_stride),
      xt(transposed ? n_powers * xt_stride : 0),
      y(padded(most_rows)),
      weight(padded(most_rows)),
      mean(padded(most_rows)),
      variance(padded(most_rows)) {}

void RowBlock::load(const double* x_rows, const double* y_rows, const double* weight_rows, Index n) {
  rows = n;
  panels = n_panels(n);
  const Index n_padded = padded(n);
  for (Index l = n; l < n_padded; ++l) y[l] = weight[l] = 0.0;
  for (Index l = 0; l < n; ++l) {
    y[l] = y_rows ? y_rows[l] : 0.0;
    weight[l] = weight_rows ? weight_rows[l] : 1.0;
  }
  for (Index j = 0; j < panels; ++j)
    for (Index i = 0; i < inputs; ++i)
      for (Index q = 0; q < kLanes; ++q) {
        const Index l = j * kLanes + q;
        x[(j * inputs + i) * kLanes + q] = l >= n ? 0.0 : i < columns ? x_rows[l * columns + i] : 1.0;
      }
  kernels().quadratic.powers(n_padded * inputs, powers, x.data(), x_stride);
  if (xt.size() == 0) return;
  kernels().products.transpose_panels(inputs, panels, x.data(), inputs * kLanes, xt.data());
  kernels().quadratic.powers(n_padded * padded(inputs), powers, xt.data(), xt_stride);
}

ThirdAndFourthCumulants::ThirdAndFourthCumulants(Index n_units, Index n_inputs)
    : t31(padded(n_inputs) * n_inputs),
      t31_transposed(padded(n_inputs) * n_inputs),
      t4(padded(n_inputs)),
      n_units_(n_units),
      n_inputs_(n_inputs),
      forward_(padded(n_inputs) * n_units),
      backward_(padded(n_inputs) * n_units) {}

double ThirdAndFourthCumulants::evaluate(const double* cumulant, Index stride, const double* p, const double* vp,
                                         double* gradient, double* g_p, double* g_vp) {
  const Index panels = n_panels(n_inputs_), size = n_units_ * kLanes;
  const Panels mean{const_cast<double*>(cumulant), size}, third{const_cast<double*>(cumulant) + 2 * stride, size};
  multiply(n_units_, n_inputs_, panels, third, whole(t31, n_inputs_), whole(forward_, n_units_));
  multiply(n_units_, n_inputs_, panels, mean, whole(t31_transposed, n_inputs_), whole(backward_, n_units_));
  double total = 0.0;
  for (Index k = 0; k < n_units_; ++k) {
    const double e = vp[k] + p[k] * p[k];
    double unit = 0.0;
    for (Index j = 0; j < panels; ++j)
      for (Index q = 0; q < kLanes; ++q) {
        const Index at = (j * n_units_ + k) * kLanes + q;
        const double t = t4[j * kLanes + q];
        unit += 4.0 * forward_[at] * cumulant[at] + cumulant[3 * stride + at] * t;
        gradient[at] += 4.0 * e * forward_[at];
        gradient[2 * stride + at] += 4.0 * e * backward_[at];
        gradient[3 * stride + at] += e * t;
      }
    total += e * unit;
    g_vp[k] += unit;
    g_p[k] += 2.0 * p[k] * unit;
  }
  return total;
}

}  // namespace pydirect::quadratic
