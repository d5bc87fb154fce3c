#include <pybind11/stl.h>

#include <algorithm>

#include "arrays.hpp"
#include "pydirect/regression/row_stream.hpp"

namespace pydirect {
namespace {

// Holds what the stream points to.
struct BoundRowStream {
  std::vector<py::array> kept;
  RowStream stream;
  Index n_columns;

  const double* row(const Array<double>& x) const {
    if (x.size() != n_columns) throw std::invalid_argument("x must have a number for each column");
    return x.data();
  }
};

using Arrays = std::vector<Array<double>>;

// Checks only sizes: of what `Stream` has made.
BoundRowStream make(const Arrays& columns, const std::vector<Array<std::int64_t>>& which, const Arrays& kernel,
                    const Array<double>& posterior_covariance, Arrays posterior, Arrays sums, Arrays rows,
                    const Arrays& range, const py::dict& numbers) {
  const auto number = [&](const char* name) { return numbers[name].cast<double>(); };
  const auto count = [&](const char* name) { return numbers[name].cast<Index>(); };
  const Array<double>&mean = columns.at(0), &scale = columns.at(1), &knots = columns.at(2), &scores = columns.at(3);
  const Array<std::int64_t>&kept = which.at(0), &scored = which.at(1);
  const Array<double>&others = kernel.at(0), &weights = kernel.at(1), &product_weights = kernel.at(2),
                     &amplitudes = kernel.at(3), &whitening = kernel.at(4);
  const Index n_columns = mean.shape(0), n_inputs = kept.shape(0) + scored.shape(0), b = whitening.shape(0), n = b + 1;
  require_shape(scale, "scale", {n_columns});
  require_shape(weights, "weights", {n_inputs});
  require_shape(whitening, "whitening", {b, b});
  require_shape(amplitudes, "amplitudes", {4});
  if (product_weights.size() > 0) require_shape(product_weights, "product_weights", {n_inputs});
  const Index n_linear = others.shape(1) - n_inputs;
  require_shape(others, "others", {(b + kLevelPadding - 1) / kLevelPadding, n_inputs + n_linear, kLevelPadding});
  require_shape(posterior_covariance, "covariance", {n, n});
  const Index n_left = count("n_left"), n_waiting = count("n_waiting"), n_summed = count("n_summed");
  require_shape(posterior.at(2), "mean", {n});
  if (posterior[0].shape(0) < n_waiting + n_left || posterior[0].shape(1) != n || posterior[1].size() < n_waiting + n_left)
    throw std::invalid_argument("directions must have room for all rows");
  if (sums.at(0).shape(0) < n_summed + n_left || sums[0].shape(1) != n + 1 || sums.at(1).size() < n_summed + n_left)
    throw std::invalid_argument("sums must have room for all rows");
  if (rows.at(0).shape(0) < n_left || rows[0].shape(1) != n_columns)
    throw std::invalid_argument("rows must have room for all rows");
  for (std::size_t k = 1; k < 5; ++k)
    if (rows.at(k).size() < n_left) throw std::invalid_argument("rows must have room for all rows");
  for (std::size_t k = 0; k < 2; ++k) require_shape(range.at(k), "range", {n_inputs});

  const Index n_axes = std::count_if(product_weights.data(), product_weights.data() + product_weights.size(),
                                     [](double weight) { return weight > 0.0; });
  const bool of_pairs = numbers["of_pairs"].cast<bool>();
  const double per_pair = of_pairs && n_axes > 1 ? 1.0 / (double(n_axes) * double(n_axes - 1)) : 0.0;
  const double* a = amplitudes.data();
  RowMap map{};
  map.columns = {n_columns,   kept.shape(0),       scored.shape(0), knots.shape(1), kept.data(), mean.data(),
                 scale.data(), number("largest"), scored.data(),   knots.data(),   scores.data()};
  map.largest_input = number("largest_input");
  map.kernel = {1, n_inputs, n_linear, b, nullptr, nullptr, others.data(), weights.data(), number("isotropic_weight"),
                product_weights.size() > 0 ? product_weights.data() : nullptr, per_pair, a[0], a[1], a[2], a[3], nullptr,
                nullptr};
  map.linear_reach = number("linear_reach");
  map.twice_smoothness = int(count("twice_smoothness"));
  map.whitening = whitening.data();
  map.mean_missing = number("mean_missing");
  map.constant = number("constant");

  RowState s{};
  s.covariance = posterior_covariance.data();
  s.directions = posterior[0].mutable_data();
  s.signs = posterior[1].mutable_data();
  s.mean = posterior[2].mutable_data();
  s.n_waiting = n_waiting;
  s.sum_rows = sums[0].mutable_data() + n_summed * (n + 1);
  s.sum_weights = sums[1].mutable_data() + n_summed;
  s.sums_of_kernel = numbers["sums_of_kernel"].cast<bool>();
  s.x = rows[0].mutable_data();
  s.y = rows[1].mutable_data();
  s.weight = rows[2].mutable_data();
  s.clock = rows[3].mutable_data();
  s.n_samples_then = rows[4].mutable_data();
  s.lowest = range[0].data();
  s.highest = range[1].data();
  s.n_left = n_left;
  s.n_noises = posterior.at(3).size();
  require_shape(posterior.at(4), "factors", {s.n_noises});
  s.noise_weights = posterior[3].data();
  s.noise_factors = posterior[4].data();
  const std::pair<const char*, double*> fields[] = {{"covariance_scale", &s.covariance_scale},
                                                    {"noise_variance", &s.noise_variance},
                                                    {"prior_variance", &s.prior_variance},
                                                    {"sum_scale", &s.sum_scale},
                                                    {"location", &s.location},
                                                    {"scale", &s.scale},
                                                    {"score_kept", &s.score_kept},
                                                    {"calibration_kept", &s.calibration_kept},
                                                    {"calibration_rows", &s.calibration_rows},
                                                    {"largest_watched", &s.largest_watched},
                                                    {"largest_calibration", &s.largest_calibration},
                                                    {"gross", &s.gross},
                                                    {"gross_scales", &s.gross_scales},
                                                    {"least_faded", &s.least_faded},
                                                    {"faded", &s.faded},
                                                    {"n_samples", &s.n_samples},
                                                    {"posterior_samples", &s.posterior_samples},
                                                    {"calibration_sum", &s.calibration_sum},
                                                    {"calibration_weight", &s.calibration_weight},
                                                    {"score_sum", &s.score_sum},
                                                    {"score_weight", &s.score_weight}};
  for (const auto& [name, field] : fields) *field = number(name);

  std::vector<py::array> all{posterior_covariance};
  for (const Arrays* each : {&columns, &kernel, const_cast<const Arrays*>(&posterior), const_cast<const Arrays*>(&sums),
                             const_cast<const Arrays*>(&rows), &range})
    all.insert(all.end(), each->begin(), each->end());
  all.insert(all.end(), which.begin(), which.end());
  return {std::move(all), RowStream(map, s), n_columns};
}

py::object as_tuple(bool found, const RowPrediction& p) {
  if (!found) return py::none();
  return py::make_tuple(p.mean, p.deviation, p.log_density);
}

}  // namespace

void bind_row_stream(py::module_& m) {
  py::class_<BoundRowStream> bound(m, "RowStream");
  bound
      .def(py::init(&make), "columns"_array, "which"_array, "kernel"_array, "covariance"_array, "posterior"_array,
           "sums"_array, "rows"_array, "range"_array, "numbers"_a)
      .def("predict",
           [](BoundRowStream& own, const Array<double>& x) {
             RowPrediction p;
             return as_tuple(own.stream.predict(own.row(x), &p), p);
           },
           "x"_array)
      .def("learn",
           [](BoundRowStream& own, const Array<double>& x, double y, double weight, double decay, double clock) {
             RowPrediction p;
             return as_tuple(own.stream.learn(own.row(x), y, weight, decay, clock, &p), p);
           },
           "x"_array, "y"_a, "weight"_a, "decay"_a, "clock"_a);
#define PYDIRECT_STATE(name) bound.def_property_readonly(#name, [](const BoundRowStream& own) { return own.stream.state.name; })
  PYDIRECT_STATE(n_rows);
  PYDIRECT_STATE(ratio);
  PYDIRECT_STATE(faded);
  PYDIRECT_STATE(n_samples);
  PYDIRECT_STATE(posterior_samples);
  PYDIRECT_STATE(sum_scale);
  PYDIRECT_STATE(n_outside);
  PYDIRECT_STATE(squares);
  PYDIRECT_STATE(calibration_sum);
  PYDIRECT_STATE(calibration_weight);
  PYDIRECT_STATE(score_sum);
  PYDIRECT_STATE(score_weight);
#undef PYDIRECT_STATE
}

}  // namespace pydirect
