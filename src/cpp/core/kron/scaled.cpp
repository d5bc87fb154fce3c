#include "scaled.hpp"

#include <stdexcept>
#include <string>

namespace pydirect::kron {
namespace {

// Exponent to take out of numbers so that every one of them is a normal double: that of the largest, or less where the
// smallest needs it.
std::int64_t exponent_to_take_out(const ExponentRange& range, const char* name) {
  constexpr std::int64_t lowest = -1021, highest = 1024;  // of normal doubles with mantissas in [½, 1)
  const std::int64_t spread = range.high - range.low;
  if (spread <= -lowest) return range.high;
  if (spread <= highest - lowest) return range.high - highest;
  throw std::overflow_error(std::string(name) + " must lie within 2^" + std::to_string(highest - lowest) +
                            " of each other, got a ratio of 2^" + std::to_string(spread));
}

}  // namespace

std::int64_t store_with_one_exponent(const Scaled* x, Index n, double* out, const char* name) {
  const auto without = [&](Index k, std::int64_t exponent) {
    const std::int64_t e = std::clamp<std::int64_t>(x[k].exponent - exponent, -3000, 3000);
    return x[k].mantissa == 0.0 ? 0.0 : std::ldexp(x[k].mantissa, static_cast<int>(e));
  };
  ExponentRange range;
  bool representable = true;  // subnormal numbers too, where no bit is lost
  for (Index k = 0; k < n; ++k) {
    range.include(x[k]);
    out[k] = without(k, 0);
    const Scaled back = Scaled::of(out[k]);
    representable = representable && back.mantissa == x[k].mantissa &&
                    (out[k] == 0.0 || back.exponent == x[k].exponent);
  }
  if (representable) return 0;
  const std::int64_t exponent = exponent_to_take_out(range, name);
  for (Index k = 0; k < n; ++k) out[k] = without(k, exponent);
  return exponent;
}

}  // namespace pydirect::kron
