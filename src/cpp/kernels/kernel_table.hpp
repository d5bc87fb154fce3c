// One table of plain function pointers per instruction set; dispatch.cpp chooses one.
// Kernels know pointers, lengths and strides only: no Eigen, no std containers, no allocation, no exceptions.
#pragma once

#include "kernels/cross_covariance.hpp"
#include "kernels/dense.hpp"
#include "kernels/divergence.hpp"
#include "kernels/draws.hpp"
#include "kernels/expectations.hpp"
#include "kernels/factorisation.hpp"
#include "kernels/fourier.hpp"
#include "kernels/gaussian_process.hpp"
#include "kernels/mixture.hpp"
#include "kernels/moment_table.hpp"
#include "kernels/nearest.hpp"
#include "kernels/products.hpp"
#include "kernels/quadratic.hpp"
#include "kernels/quantized.hpp"
#include "kernels/sequential.hpp"
#include "kernels/tiles.hpp"
#include "kernels/tilt.hpp"
#include "kernels/unit_covariance.hpp"
#include "kernels/unit_moments.hpp"

namespace pydirect {

// A group for each file of kernels, which also fills it.
struct KernelTable {
  const char* name;
  TiltKernels tilt;
  MixtureKernels mixture;
  MomentTableKernels moment_table;
  QuadraticKernels quadratic;
  UnitMomentKernels unit_moments;
  UnitCovarianceKernels unit_covariance;
  ExpectationKernels expectations;
  DrawKernels draws;
  DivergenceKernels divergence;
  FactorisationKernels factorisation;
  FourierKernels fourier;
  GaussianProcessKernels gaussian_process;
  CrossCovarianceKernels cross_covariance;
  NearestKernels nearest;
  QuantizedKernels quantized;
  ProductKernels products;
  DenseKernels dense;
  RowKernels<float> rows_of_float;
  RowKernels<double> rows_of_double;
  SequentialKernels<float> sequential_of_float;
  SequentialKernels<double> sequential_of_double;
  TileKernels<float> tiles_of_float;
  TileKernels<double> tiles_of_double;

  template <class T>
  const RowKernels<T>& rows() const {
    if constexpr (sizeof(T) == sizeof(float))
      return rows_of_float;
    else
      return rows_of_double;
  }
  template <class T>
  const SequentialKernels<T>& sequential() const {
    if constexpr (sizeof(T) == sizeof(float))
      return sequential_of_float;
    else
      return sequential_of_double;
  }
  template <class T>
  const TileKernels<T>& tiles() const {
    if constexpr (sizeof(T) == sizeof(float))
      return tiles_of_float;
    else
      return tiles_of_double;
  }
};

// The table in use. Chosen on first call: PYDIRECT_ISA, else the widest level that this CPU has.
const KernelTable& kernels();

// Names of the levels compiled in and supported by this CPU, narrowest first; returns their number.
int supported_isa_levels(const char** names, int capacity);

// Forces a level; false when it is unknown or unsupported here.
bool select_isa_level(const char* name);

}  // namespace pydirect
