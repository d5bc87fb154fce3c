#include "arrays.hpp"
#include "pydirect/data/fourier.hpp"

namespace pydirect {
namespace {

// out[:, :2 n_frequencies] = amplitudes ⊙ [cos | sin](2 pi X·frequencies); out may have further columns.
template <class T>
void fourier(const Array<double>& x, const Array<T>& frequencies, const Array<T>& amplitudes, Index n_frequencies,
             Array<T> out, int n_threads) {
  if (x.ndim() != 2 || out.ndim() != 2) throw std::invalid_argument("x and out must have two dimensions");
  const Index n_rows = x.shape(0), n_inputs = x.shape(1), padded = frequencies.shape(1);
  require_shape(frequencies, "frequencies", {n_inputs, padded});
  require_shape(amplitudes, "amplitudes", {padded});
  if (padded % (64 / Index(sizeof(T))) != 0 || n_frequencies > padded || out.shape(0) != n_rows ||
      out.shape(1) < 2 * n_frequencies)
    throw std::invalid_argument("out must have shape (n_rows, >= 2 n_frequencies), frequencies padded columns");
  const FourierBlock<T> block{n_rows,        n_inputs,          padded, x.data(), n_inputs, frequencies.data(), padded,
                              n_frequencies, amplitudes.data(), out.mutable_data(), out.shape(1)};
  py::gil_scoped_release release;
  fourier_features(block, n_threads);
}

}  // namespace

void bind_fourier(py::module_& m) {
  const auto define = [&](auto function) {
    m.def("fourier_features", function, "x"_array, "frequencies"_array, "amplitudes"_array, "n_frequencies"_a,
          "out"_array, "n_threads"_a);
  };
  define(&fourier<double>);
  define(&fourier<float>);
}

}  // namespace pydirect
