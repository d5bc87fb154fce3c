#include <stdexcept>

#include "arrays.hpp"
#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

py::list isa_levels() {
  const char* names[8];
  const int count = supported_isa_levels(names, 8);
  py::list out;
  for (int i = 0; i < count; ++i) out.append(names[i]);
  return out;
}

py::dict build_config() {
  py::dict d;
  d["version"] = PYDIRECT_VERSION;
  d["compiler"] = PYDIRECT_COMPILER;
  d["user_flags"] = PYDIRECT_USER_FLAGS;
  d["eigen"] = PYDIRECT_EIGEN_VERSION;
  d["openmp"] = has_openmp();
  d["threads"] = default_threads();
  d["isa"] = kernels().name;
  d["isa_levels"] = isa_levels();
  return d;
}

Array<double> exp_array(const Array<double>& x) {
  Array<double> out(x.size());
  kernels().dense.exp(x.size(), x.data(), out.mutable_data());
  return out;
}

Array<double> log_array(const Array<double>& x) {
  Array<double> out(x.size());
  kernels().dense.log(x.size(), x.data(), out.mutable_data());
  return out;
}

// As the Fourier features of one input at frequency one.
template <class T>
py::tuple sincos_turns(const Array<T>& t) {
  constexpr Index padded = 64 / Index(sizeof(T));
  const Index n = t.size();
  const std::vector<T> ones(padded, T(1));
  const std::vector<double> x(t.data(), t.data() + n);
  std::vector<T> out(2 * n), sine(n), cosine(n);
  kernels().fourier(FourierBlock<T>{n, 1, padded, x.data(), 1, ones.data(), padded, 1, ones.data(),
                                    out.data(), 2});
  for (Index i = 0; i < n; ++i) {
    cosine[i] = out[2 * i];
    sine[i] = out[2 * i + 1];
  }
  return py::make_tuple(copy(sine), copy(cosine));
}

}  // namespace

void bind_runtime(py::module_& m) {
  kernels();  // an impossible PYDIRECT_ISA is an error at import, never a silent fallback
  m.def("build_config", &build_config);
  m.def("isa_levels", &isa_levels);
  m.def("select_isa_level", [](const std::string& name) {
    if (!select_isa_level(name.c_str()))
      throw std::invalid_argument("isa level must be one of those that this build and CPU have, got '" + name + "'");
  });
  m.def("default_threads", &default_threads);
  m.def("exp", &exp_array, "x"_array);
  m.def("log", &log_array, "x"_array);
  m.def("sincos_turns", &sincos_turns<double>, "t"_array);
  m.def("sincos_turns", &sincos_turns<float>, "t"_array);
}

}  // namespace pydirect
