// Kriging from each row's own k neighbours: many small systems of a Matérn-3/2 correlation. The row itself is the last
// of the k + 1 points of its neighbourhood. The same bits for any number of threads and any instruction set.
#pragma once

#include "pydirect/types.hpp"

namespace pydirect {

struct Neighbourhoods {
  Index n_rows, n_columns, k;
  const float* rows;           // (n_rows, n_columns)
  const float* points;         // (n_points, n_columns)
  const std::int64_t* chosen;  // (n_rows, k): of the points
};

// Entries of the triangle above the diagonal of k + 1 points, row by row; and with the diagonal of all but the last.
constexpr Index n_distances(Index k) { return k * (k + 1) / 2; }
constexpr Index n_factor_entries(Index k) { return n_distances(k) + k; }

// Squared distances, (n_rows, n_distances).
void neighbour_distances(const Neighbourhoods& n, double* out, int n_threads);

// With K and k the correlations among the neighbours and with the row: upper triangular R with RᵀR = K + η diag(1/ω)
// and, as its last column, ℓ = R⁻ᵀk; (n_rows, n_factor_entries). Weights ω (n_rows, k).
void neighbour_factors(Index n_rows, Index k, const double* distances, const float* weight, double rho, double eta,
                       double* out, int n_threads);

// (n_rows,) each
struct KrigingMoments {
  double* mean;     // ℓᵀz, z = R⁻ᵀr
  double* left;     // 1 − ℓᵀℓ, the share of the variance
  double* scatter;  // zᵀz/k
};

// From residuals r (n_rows, k) of the neighbours.
void krige(Index n_rows, Index k, const double* factors, const float* residuals, const KrigingMoments& out,
           int n_threads);

}  // namespace pydirect
