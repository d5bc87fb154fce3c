#include "arrays.hpp"
#include "choices.hpp"
#include "kernels/sequential.hpp"
#include "pydirect/regression/sequential.hpp"

namespace pydirect {
namespace {

DrawKind draw_kind_of(const std::string& name) {
  return choose<DrawKind>({{"independent", DrawKind::kIndependent},
                           {"stratified", DrawKind::kStratified},
                           {"nearest", DrawKind::kNearest}},
                          name);
}

template <class T>
py::tuple draws(const Array<T>& factor, const Array<double>& mean, const Array<double>& levels,
                const Array<double>& tilt, const Array<std::int64_t>& order, Index n_draws, std::uint64_t seed,
                const std::string& kind_name, int n_threads) {
  const DrawKind kind = draw_kind_of(kind_name);
  const Index b = mean.shape(0), n_levels = levels.ndim() == 2 ? levels.shape(1) : 0;
  require_shape(factor, "factor", {b, b});
  require_shape(levels, "levels", {levels.shape(0) == 1 ? 1 : b, n_levels});
  require_shape(tilt, "tilt", {tilt.shape(0) == 1 ? 1 : b, n_levels});
  require_order(order, b);
  if (n_levels < 1 || n_levels > kMostDrawLevels) throw std::invalid_argument("levels must be 1 to 256");
  if (n_draws < 1 || (kind == DrawKind::kNearest && n_draws != 1)) throw std::invalid_argument("no such draws");
  Array<std::uint8_t> codes({n_draws, b});
  Array<double> log_normaliser(n_draws), log_q(n_draws);
  const SequentialProblem<T> problem{b,
                                     n_levels,
                                     factor.data(),
                                     mean.data(),
                                     levels.data(),
                                     levels.shape(0) == 1 ? 0 : n_levels,
                                     tilt.data(),
                                     tilt.shape(0) == 1 ? 0 : n_levels,
                                     order.data()};
  const SequentialDraws out{n_draws, kind, seed, codes.mutable_data(), log_normaliser.mutable_data(),
                            log_q.mutable_data()};
  without_gil([&] { draw_sequentially(problem, out, n_threads); });
  return py::make_tuple(codes, log_normaliser, log_q);
}

Array<double> uniforms(const Array<std::int64_t>& weights, Index n_draws, std::uint64_t seed,
                       const std::string& kind_name, int n_threads) {
  const DrawKind kind = draw_kind_of(kind_name);
  if (weights.ndim() != 1 || n_draws < 1 || kind == DrawKind::kNearest) throw std::invalid_argument("no such draws");
  Array<double> out({Index(weights.shape(0)), n_draws});
  double* to = out.mutable_data();
  without_gil([&] { sequential_uniforms(weights.shape(0), weights.data(), n_draws, seed, kind, to, n_threads); });
  return out;
}

template <class T>
void bind_draws(py::module_& m) {
  m.def("sequential_draws", &draws<T>, "factor"_array, "mean"_array, "levels"_array, "tilt"_array, "order"_array,
        "n_draws"_a, "seed"_a, "kind"_a, "n_threads"_a);
}

}  // namespace

void bind_sequential(py::module_& m) {
  bind_draws<float>(m);
  bind_draws<double>(m);
  m.def("sequential_uniforms", &uniforms, "weights"_array, "n_draws"_a, "seed"_a, "kind"_a, "n_threads"_a);
}

}  // namespace pydirect
