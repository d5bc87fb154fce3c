#include <pybind11/pybind11.h>

namespace pydirect {
void bind_runtime(pybind11::module_&);
void bind_dense(pybind11::module_&);
void bind_descent(pybind11::module_&);
void bind_expectations(pybind11::module_&);
void bind_factorisation(pybind11::module_&);
void bind_fourier(pybind11::module_&);
void bind_gaussian_network(pybind11::module_&);
void bind_gaussian_process(pybind11::module_&);
void bind_inputs(pybind11::module_&);
void bind_kron(pybind11::module_&);
void bind_local_process(pybind11::module_&);
void bind_mean_field(pybind11::module_&);
void bind_mixture(pybind11::module_&);
void bind_nearest(pybind11::module_&);
void bind_moment_table(pybind11::module_&);
void bind_monte_carlo(pybind11::module_&);
void bind_quadratic_network(pybind11::module_&);
void bind_quantized(pybind11::module_&);
void bind_recursive(pybind11::module_&);
void bind_row_stream(pybind11::module_&);
void bind_screen(pybind11::module_&);
void bind_sequential(pybind11::module_&);
void bind_statistics(pybind11::module_&);
void bind_unit_moments(pybind11::module_&);
}  // namespace pydirect

PYBIND11_MODULE(_core, m) {
  m.doc() = "Compiled kernels of pydirect. Arguments are trusted: the Python layer has validated them.";
  pydirect::bind_runtime(m);
  pydirect::bind_unit_moments(m);
  pydirect::bind_gaussian_network(m);
  pydirect::bind_dense(m);
  pydirect::bind_expectations(m);
  pydirect::bind_factorisation(m);
  pydirect::bind_fourier(m);
  pydirect::bind_gaussian_process(m);
  pydirect::bind_descent(m);
  pydirect::bind_inputs(m);
  pydirect::bind_kron(m);
  pydirect::bind_nearest(m);
  pydirect::bind_screen(m);
  pydirect::bind_statistics(m);
  pydirect::bind_local_process(m);
  pydirect::bind_recursive(m);
  pydirect::bind_row_stream(m);
  pydirect::bind_mean_field(m);
  pydirect::bind_moment_table(m);
  pydirect::bind_quadratic_network(m);
  pydirect::bind_mixture(m);
  pydirect::bind_sequential(m);
  pydirect::bind_monte_carlo(m);
  pydirect::bind_quantized(m);
}
