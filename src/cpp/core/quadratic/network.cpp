#include <stdexcept>

#include "blocks.hpp"
#include "monomial_engine.hpp"

namespace pydirect {
namespace {

[[noreturn]] void refuse(const std::string& kind, const NetworkShape& shape) {
  if (kind != "tensor" && kind != "datum")
    throw std::invalid_argument("engine must be 'tensor', 'datum' or 'monomial', got '" + kind + "'");
  throw std::invalid_argument("engine '" + kind + "' serves " +
                              (kind == "tensor" ? "one hidden layer" : "one or two hidden layers") + ", got " +
                              std::to_string(shape.depth()));
}

// With as many workers as there are groups: no number of threads takes more.
double datum_bytes(const quadratic::DatumMemory& memory, Index n_rows) {
  const double groups = double(quadratic::count_groups(n_rows, memory.sums));
  return sizeof(double) * (memory.own + groups * (memory.sums + memory.worker));
}

}  // namespace

std::unique_ptr<NetworkEngine> make_network_engine(const std::string& kind, const NetworkShape& shape,
                                                   const NetworkData& data) {
  // The reference engine for any depth belongs here beside these.
  if (kind == "tensor" && shape.depth() == 1) return quadratic::make_tensor_engine(shape, data);
  if (kind == "datum" && shape.depth() == 1) return quadratic::make_one_layer_engine(shape, data);
  if (kind == "datum" && shape.depth() == 2) return quadratic::make_two_layer_engine(shape, data);
  if (kind == "monomial") return quadratic::make_monomial_engine(shape, data);
  refuse(kind, shape);
}

NetworkCost network_cost(const std::string& kind, const NetworkShape& shape, Index n_rows) {
  const double n = double(n_rows), d = double(shape.fan_in(0));
  if (kind == "tensor" && shape.depth() == 1) {
    const double h = double(padded(shape.hidden[0])), pairs = 0.5 * d * (d + 1.0);
    return {pairs * (h * (2.0 * pairs + 2.0 * d + 30.0) + 4.0 * pairs),
            sizeof(double) * quadratic::tensor_memory(shape, quadratic::kMostGroups)};
  }
  if (kind == "datum" && shape.depth() == 1) {
    const double h = double(shape.hidden[0]);
    return {n * (8.0 * d * h + 60.0 * h + 10.0 * d), datum_bytes(quadratic::one_layer_memory(shape), n_rows)};
  }
  if (kind == "datum" && shape.depth() == 2) {
    const double h1 = double(shape.hidden[0]), h2 = double(shape.hidden[1]), between = double(shape.fan_in(1));
    const double products = 16.0 * d * h1 + 18.0 * between * h2 + 5.0 * between * h1;
    return {n * (2.0 * products + 600.0 * h1 + 80.0 * h2 + 20.0 * d),
            datum_bytes(quadratic::two_layer_memory(shape), n_rows)};
  }
  refuse(kind, shape);
}

}  // namespace pydirect
