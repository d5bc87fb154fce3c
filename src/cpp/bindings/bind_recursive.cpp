#include "arrays.hpp"
#include "pydirect/regression/recursive.hpp"

namespace pydirect {
namespace {

bool update(const Array<double>& phi, const Array<double>& y, const Array<double>& weight, double noise_variance,
            Index n_earlier, Array<double> directions, Array<double> signs, Array<double> mean, Array<double> f_mean,
            Array<double> f_variance) {
  const Index n = phi.shape(0), b = phi.shape(1), capacity = directions.shape(0);
  for (const auto& [array, name] : {std::pair{&y, "y"}, {&weight, "weight"}}) require_shape(*array, name, {n});
  for (const auto& [array, name] : {std::pair{&f_mean, "f_mean"}, {&f_variance, "f_variance"}})
    require_shape(*array, name, {n});
  require_shape(directions, "directions", {capacity, b});
  require_shape(signs, "signs", {capacity});
  require_shape(mean, "mean", {b});
  if (n_earlier < 0 || n_earlier + n > capacity) throw std::invalid_argument("directions must have room for all rows");
  const RecursiveRows rows{n, b, n_earlier, phi.data(), y.data(), weight.data(), noise_variance,
                           directions.mutable_data(), signs.mutable_data(), mean.mutable_data(),
                           f_mean.mutable_data(), f_variance.mutable_data()};
  return without_gil([&] { return recursive_update(rows); });
}

}  // namespace

void bind_recursive(py::module_& m) {
  m.def("recursive_update", &update, "phi"_array, "y"_array, "weight"_array, "noise_variance"_a, "n_earlier"_a,
        "directions"_array, "signs"_array, "mean"_array, "f_mean"_array, "f_variance"_array);
}

}  // namespace pydirect
