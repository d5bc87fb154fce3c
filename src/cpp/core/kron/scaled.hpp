// Numbers of any size: a mantissa and a power of two.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "pydirect/types.hpp"

namespace pydirect::kron {

// mantissa · 2^exponent; the exponent of zero means nothing.
struct Scaled {
  double mantissa = 1.0;
  std::int64_t exponent = 0;

  static Scaled of(double x, std::int64_t exponent = 0) {
    int e;
    const double m = std::frexp(x, &e);
    return {m, exponent + e};
  }
  // Mantissas lie in [½, 1), or are the one of an empty product.
  friend Scaled operator*(const Scaled& a, const Scaled& b) {
    const double m = a.mantissa * b.mantissa;
    const std::int64_t e = a.exponent + b.exponent;
    return std::fabs(m) < 0.5 ? Scaled{2.0 * m, e - 1} : Scaled{m, e};
  }
};

// mantissa · 2^exponent for exponents of any size, at most 0.
inline double shifted(double mantissa, std::int64_t exponent) {
  return exponent < -1100 ? 0.0 : std::ldexp(mantissa, static_cast<int>(exponent));
}

// total += x, the smaller of the two shifted to the exponent of the larger: a log-sum-exp in base two.
inline void add_to(Scaled& total, const Scaled& x) {
  if (x.mantissa == 0.0) return;
  if (total.mantissa == 0.0) {
    total = x;
    return;
  }
  const std::int64_t top = std::max(total.exponent, x.exponent);
  total = Scaled::of(shifted(total.mantissa, total.exponent - top) + shifted(x.mantissa, x.exponent - top), top);
}

struct ExponentRange {
  std::int64_t low = INT64_MAX, high = INT64_MIN;  // of what is not zero

  void include(const Scaled& x) {
    if (x.mantissa == 0.0) return;
    low = std::min(low, x.exponent);
    high = std::max(high, x.exponent);
  }
  bool empty() const { return low > high; }
  bool within(std::int64_t bound) const { return empty() || (low >= -bound && high <= bound); }
};

inline ExponentRange range_of(const double* x, Index n) {
  double low = HUGE_VAL, high = 0.0;
  for (Index k = 0; k < n; ++k) {
    const double size = std::fabs(x[k]);
    low = std::min(low, size > 0.0 ? size : HUGE_VAL);
    high = std::max(high, size);
  }
  ExponentRange range;
  if (high > 0.0) {
    range.include(Scaled::of(low));
    range.include(Scaled::of(high));
  }
  return range;
}

// Writes numbers as doubles times one power of two, whose exponent is returned: zero where doubles can hold them alone.
std::int64_t store_with_one_exponent(const Scaled* x, Index n, double* out, const char* name);

}  // namespace pydirect::kron
