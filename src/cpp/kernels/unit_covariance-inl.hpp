// Covariances of all pairs of a layer's ReLU or Heaviside units, with their adjoints.

// The upper triangle of eight rows into the lower one.
PYDIRECT_OUT_OF_LINE void mirror_rows(Index d, double* matrix, Index begin, Index end) {
  for (Index l = begin + 1; l < d; ++l) {
    const Index last = end < l ? end : l;
    for (Index j = begin; j < last; ++j) matrix[l * d + j] = matrix[j * d + l];
  }
}

template <Activation f>
PYDIRECT_OUT_OF_LINE void fill_units_and_variances(const UnitTable& t, Index d, const double* mean, const double* S,
                                                   double* C) {
  fill_units(t, d, mean, S, [&](const Unit& u, const PackD&, const PackD& variance, Index j, Index n) {
    double hv[PackD::lanes];
    store(hv, unit_variance<f>(u, variance));
    for (Index i = 0; i < n; ++i) C[(j + i) * (d + 1)] = hv[i];
  });
}

template <Activation f>
PYDIRECT_OUT_OF_LINE void fill_units_and_slopes(const UnitTable& t, Index d, const double* mean, const double* S,
                                                const double* C_bar, double* mean_bar, double* S_bar) {
  const PackD zero = broadcast(0.0);
  for (Index j = 0; j < t.stride; j += PackD::lanes) {
    store(t.mean_bar + j, zero);
    store(t.variance_bar + j, zero);
  }
  fill_units(t, d, mean, S, [&](const Unit& u, const PackD& m, const PackD&, Index j, Index n) {
    double hv_bar[PackD::lanes] = {}, variance_bar[PackD::lanes];
    for (Index i = 0; i < n; ++i) hv_bar[i] = C_bar[(j + i) * (d + 1)];
    const UnitSlopes slopes = unit_slopes<f>(u, m, zero, zero, load(hv_bar));
    store_some(mean_bar + j, load_some(mean_bar + j, n) + slopes.mean, n);
    store(variance_bar, slopes.variance);
    for (Index i = 0; i < n; ++i) S_bar[(j + i) * (d + 1)] += variance_bar[i];
  });
}

template <Activation f, bool paper>
void covariance_of_units(bool fast, Index d, const double* mean, const double* S, double* C, double* residual,
                         double* scratch) {
  const UnitTable t = unit_table(d, scratch);
  fill_units_and_variances<f>(t, d, mean, S, C);
  for (Index block = 0; block < d; block += PackD::lanes) {
    const Index end = block + PackD::lanes < d ? block + PackD::lanes : d;
    for (Index j = block; j < end; ++j) {
      const PairUnit uj = unit_everywhere(t, j);
      for (Index l = j + 1; l < d; l += PackD::lanes) {
        const Index n = d - l;
        const PairUnit ul = units_from(t, l);
        const PackD s = load_some(S + j * d + l, n);
        const Correlation c = correlation(s, uj, ul);
        PackD out;
        if constexpr (paper) {
          const PaperTerm p = paper_term<f>(c);
          out = p.factor * paper_exponential(p, uj, ul);
          if constexpr (f == Activation::kRelu) out = s * (uj.cdf * ul.cdf + out);
        } else {
          const PairIntegrals i = integrals(fast, c, uj, ul);
          out = f == Activation::kRelu ? s * uj.cdf * ul.cdf + uj.s * ul.s * i.R : i.T;
          if (f == Activation::kRelu && residual != nullptr) store_some(residual + j * d + l, i.T, n);
        }
        store_some(C + j * d + l, out, n);
      }
    }
    mirror_rows(d, C, block, end);
  }
}

template <Activation f, bool paper>
void adjoint_of_covariance(Index d, const double* mean, const double* S, const double* residual, const double* C_bar,
                           double* mean_bar, double* S_bar, double* scratch) {
  const UnitTable t = unit_table(d, scratch);
  const PackD zero = broadcast(0.0);
  fill_units_and_slopes<f>(t, d, mean, S, C_bar, mean_bar, S_bar);
  for (Index block = 0; block < d; block += PackD::lanes) {
    const Index end = block + PackD::lanes < d ? block + PackD::lanes : d;
    for (Index j = block; j < end; ++j) {
      const PairUnit uj = unit_everywhere(t, j);
      PackD mean_j = zero, variance_j = zero;
      for (Index l = j + 1; l < d; l += PackD::lanes) {
        const Index n = d - l;
        const PairUnit ul = units_from(t, l);
        const PackD s = load_some(S + j * d + l, n), bar = load_some(C_bar + j * d + l, n);
        const Correlation c = correlation(s, uj, ul);
        PairSlopes slopes;
        if constexpr (paper)
          slopes = paper_pair_slopes<f>(c, s, uj, ul);
        else if constexpr (f == Activation::kRelu)
          slopes = exact_slopes<f>(c, load_some(residual + j * d + l, n), uj, ul);
        else
          slopes = exact_slopes<f>(c, zero, uj, ul);
        store_some(S_bar + j * d + l, load_some(S_bar + j * d + l, n) + bar * slopes.S, n);
        mean_j = mean_j + bar * slopes.mean_j;
        variance_j = variance_j + bar * slopes.variance_j;
        store(t.mean_bar + l, load(t.mean_bar + l) + bar * slopes.mean_l);
        store(t.variance_bar + l, load(t.variance_bar + l) + bar * slopes.variance_l);
      }
      // Both triangles count.
      mean_bar[j] += 2.0 * (sum_lanes(mean_j) + t.mean_bar[j]);
      S_bar[j * (d + 1)] += 2.0 * (sum_lanes(variance_j) + t.variance_bar[j]);
    }
    mirror_rows(d, S_bar, block, end);
  }
}

void unit_covariance(Activation f, PairKernel kernel, Index d, const double* mean, const double* S, double* C,
                           double* residual, double* scratch) {
  using A = Activation;
  static constexpr decltype(&covariance_of_units<A::kRelu, false>) of_kernel[2][2] = {
      {covariance_of_units<A::kRelu, false>, covariance_of_units<A::kRelu, true>},
      {covariance_of_units<A::kHeaviside, false>, covariance_of_units<A::kHeaviside, true>}};
  of_kernel[int(f)][int(kernel == PairKernel::kPaper)](kernel == PairKernel::kFast, d, mean, S, C, residual, scratch);
}

void unit_covariance_adjoint(Activation f, PairKernel kernel, Index d, const double* mean, const double* S,
                                   const double* residual, const double* C_bar, double* mean_bar, double* S_bar,
                                   double* scratch) {
  using A = Activation;
  // How the integral was found makes no difference to its derivatives.
  static constexpr decltype(&adjoint_of_covariance<A::kRelu, false>) of_kernel[2][2] = {
      {adjoint_of_covariance<A::kRelu, false>, adjoint_of_covariance<A::kRelu, true>},
      {adjoint_of_covariance<A::kHeaviside, false>, adjoint_of_covariance<A::kHeaviside, true>}};
  of_kernel[int(f)][int(kernel == PairKernel::kPaper)](d, mean, S, residual, C_bar, mean_bar, S_bar, scratch);
}

constexpr void fill(UnitCovarianceKernels& k) {
  k.covariance = unit_covariance;
  k.adjoint = unit_covariance_adjoint;
}
