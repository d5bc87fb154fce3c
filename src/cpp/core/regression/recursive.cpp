#include "pydirect/regression/recursive.hpp"

#include <algorithm>
#include <cmath>

#include "core/arrays.hpp"
#include "kernels/kernel_table.hpp"

namespace pydirect {

bool recursive_update(const RecursiveRows& r) {
  const Index b = r.n_weights;
  const auto dot = [b](const double* x, const double* y) { return kernels().dense.dot(b, x, y); };
  Vector along(r.n_earlier + r.n_rows);
  auto mean = array(r.mean, b);
  for (Index i = 0; i < r.n_rows; ++i) {
    const Index n = r.n_earlier + i;
    const double* phi = r.phi + i * b;
    double* image = r.directions + n * b;
    // Sφ = S_0φ − Σ s d dᵀφ
    kernels().rows<double>().gemv(0, n, b, r.directions, b, phi, along.data());
    along.head(n) *= -array(r.signs, n);
    kernels().rows<double>().add_transposed(n, b, r.directions, b, along.data(), image);
    const double variance = dot(phi, image), sign = r.weight[i] > 0.0 ? 1.0 : -1.0;
    const double pivot = sign * (variance + r.noise_variance / r.weight[i]);
    if (!(pivot > 0.0)) return false;
    r.f_mean[i] = dot(phi, r.mean);
    r.f_variance[i] = std::max(variance, 0.0);
    // d = Sφ/√k, m ← m + s Sφ (y − φᵀm)/k, where s k = φᵀSφ + σ²/ω
    auto direction = array(image, b);
    mean += sign * (r.y[i] - r.f_mean[i]) / pivot * direction;
    direction /= std::sqrt(pivot);
    r.signs[n] = sign;
  }
  return true;
}

}  // namespace pydirect
