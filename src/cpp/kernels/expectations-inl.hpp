// Expectations of softmax and logistic likelihoods over independent Gaussian logits.

// Softmax as a race (logistic/expectations.py has the identities): integrals over the time of the winner.
constexpr double kRaceStart = 22.0;  // Σ −log F above which nobody has arrived
constexpr double kRaceEnd = 2e-10;   // and below which everybody has

// One over the products of differences of the integers 0 to 5.
constexpr double kLagrange[kAngleOrder] = {-1.0 / 120, 1.0 / 24, -1.0 / 12, 1.0 / 12, -1.0 / 24, 1.0 / 120};

// The table's rows around one angle, combined by Lagrange's polynomials.
struct AngleStencil {
  const double* row[kAngleOrder];
  double weight[kAngleOrder];
};

PYDIRECT_INLINE AngleStencil stencil_at(const double* table, double sd) {
  AngleStencil s;
  const double angle = std::atan(sd) * (double(kRunnerAngles) / 1.57079632679489661923);
  const Index interval = angle < double(kRunnerAngles - 1) ? Index(angle) : kRunnerAngles - 1;
  constexpr Index before = kAngleOrder / 2 - 1;
  const double x = angle - double(interval) + double(before);
  for (Index q = 0; q < kAngleOrder; ++q) {
    const Index row = interval + q - before;
    s.row[q] = table + (row < 0 ? -row : row) * kRunnerStride;  // even in sd
    double product = 1.0;
    for (Index other = 0; other < kAngleOrder; ++other)
      if (other != q) product *= x - double(other);
    s.weight[q] = product * kLagrange[q];
  }
  return s;
}

PYDIRECT_INLINE void combine(const AngleStencil& s, Index begin, Index end, double* out) {
  PackD weight[kAngleOrder];
  PYDIRECT_UNROLL for (Index q = 0; q < kAngleOrder; ++q) weight[q] = broadcast(s.weight[q]);
  for (Index j = begin; j < end; j += PackD::lanes) {
    PackD sum = weight[0] * load(s.row[0] + j);
    PYDIRECT_UNROLL for (Index q = 1; q < kAngleOrder; ++q) sum = sum + weight[q] * load(s.row[q] + j);
    store(out + j, sum);
  }
}

// Hermite's polynomial on [0, 1]: from the value, first and half the second derivative at both ends.
struct Quintic {
  PackD a0, a1, a2, a3, a4, a5;

  PYDIRECT_INLINE Quintic(const PackD& value0, const PackD& first0, const PackD& half_second0, const PackD& value1,
                          const PackD& first1, const PackD& half_second1)
      : a0(value0), a1(first0), a2(half_second0) {
    const PackD b0 = value1 - a0 - a1 - a2, b1 = first1 - a1 - broadcast(2.0) * a2, b2 = half_second1 - a2;
    a3 = broadcast(10.0) * b0 - broadcast(4.0) * b1 + b2;
    a4 = broadcast(7.0) * b1 - broadcast(15.0) * b0 - broadcast(2.0) * b2;
    a5 = broadcast(6.0) * b0 - broadcast(3.0) * b1 + b2;
  }
  PYDIRECT_INLINE PackD at(const PackD& x) const {
    return a0 + x * (a1 + x * (a2 + x * (a3 + x * (a4 + x * a5))));
  }
  PYDIRECT_INLINE PackD slope_at(const PackD& x) const {
    return a1 + x * (broadcast(2.0) * a2 +
                     x * (broadcast(3.0) * a3 + x * (broadcast(4.0) * a4 + x * (broadcast(5.0) * a5))));
  }
};

// −log F at places in units of the table's nodes, and its rate of fall per unit.
PYDIRECT_INLINE PackD hazard_at(const double* log_hazard, const PackD& place, PackD& rate) {
  const PackD inside = min(max(broadcast(0.0), place), broadcast(double(kRunnerNodes - 1)));
  const PackD shift = broadcast(rounding_shift<double>());
  const PackD node = min((inside - broadcast(0.5)) + shift - shift, broadcast(double(kRunnerNodes - 2)));
  const PackD f = inside - node;
  double index[PackD::lanes], gathered[6][PackD::lanes];
  store(index, node);
  PYDIRECT_UNROLL for (int l = 0; l < PackD::lanes; ++l) {
    const double* from = log_hazard + 3 * Index(index[l]);
    PYDIRECT_UNROLL for (int c = 0; c < 6; ++c) gathered[c][l] = from[c];
  }
  const Quintic log_hazard_at(load(gathered[0]), load(gathered[1]), load(gathered[2]), load(gathered[3]),
                              load(gathered[4]), load(gathered[5]));
  const PackD value = log_hazard_at.at(f), slope = log_hazard_at.slope_at(f);
  // Beyond the table log(−log F) is linear: exactly so where the Gumbel tail is.
  const PackD hazard = exp(min(value + (place - inside) * slope, broadcast(700.0)));
  rate = broadcast(0.0) - hazard * slope;
  return hazard;
}

// Trapezoidal rule in ξ, y = ξ + κ (e^ξ − 1) since the origin; see core/logistic/expectations.cpp.
PYDIRECT_INLINE void softmax_row(const SoftmaxRows& p, const double* mean, double variance, double* log_partition,
                                 double* probability, double* curvature) {
  const Index n = p.n_classes;
  constexpr Index lanes = PackD::lanes;
  double *start = p.scratch, *rates = start + lanes * n, *wins = rates + lanes * n;
  double largest = mean[0];
  for (Index k = 1; k < n; ++k) largest = std::fmax(largest, mean[k]);
  const double sd = std::sqrt(variance), scale = std::sqrt(1.0 + variance), origin = largest + kRaceOrigin * sd;
  constexpr double per_node = 1.0 / kRunnerSpacing;
  const double leader = kRaceOrigin * sd / scale;  // y at the origin
  double equals = 0.0;
  for (Index k = 0; k < n; ++k) {
    const double gap = (largest - mean[k]) / scale;
    start[k] = (leader + gap - kRunnerFirst) * per_node;
    const double near = std::fmax(1.0 - 0.25 * gap, 0.0);
    equals += near * near * near;
    store(wins + lanes * k, broadcast(0.0));
  }
  // About where the race starts, lest packs of no use are run: where −log F of so many equals is kRaceStart, between
  // its approximations for Gumbel and for Gaussian variables.
  const double each = kRaceStart / equals, gumbel = -std::log(each), gaussian = 1.3 - 1.13 * std::sqrt(2.0 * each);
  const double begin = gumbel + (gaussian - gumbel) * (sd / scale) - leader;
  const double steps = (begin - p.node[0]) / (p.node[1] - p.node[0]);
  const Index middle = Index(std::fmin(std::fmax(steps, 0.0), double(p.n_nodes - lanes)));
  const AngleStencil stencil = stencil_at(p.table, sd);
  double log_hazard[kRunnerStride];
  Index filled = kRunnerStride;

  PackD mass = broadcast(0.0), time = mass, bend = mass;
  // Eight nodes; returns Σ −log F at both ends.
  double first = 0.0, last = 0.0;
  const auto run = [&](Index at) {
    const PackD node = load(p.node + at), weight = load(p.weight + at), since = node * broadcast(per_node);
    const double lowest = std::fmax((leader + p.node[at] - kRunnerFirst) * per_node - 1.0, 0.0);
    if (lowest * 3.0 < double(filled)) {
      const Index from = 3 * Index(lowest) / lanes * lanes;
      combine(stencil, from, filled, log_hazard);
      filled = from;
    }
    PackD hazard = broadcast(0.0), rate = hazard, square = hazard;
    for (Index k = 0; k < n; ++k) {
      PackD own;
      hazard = hazard + hazard_at(log_hazard, broadcast(start[k]) + since, own);
      rate = rate + own;
      square = square + own * own;
      store(rates + lanes * k, own);
    }
    const PackD none = exp(broadcast(0.0) - hazard) * weight;
    for (Index k = 0; k < n; ++k) store(wins + lanes * k, load(wins + lanes * k) + none * load(rates + lanes * k));
    const PackD someone = none * rate;
    mass = mass + someone;
    time = time + someone * node;
    bend = bend + none * (rate * rate - square);
    double ends[lanes];
    store(ends, hazard);
    first = ends[0];
    last = ends[lanes - 1];
  };
  run(middle);
  const double earliest = first;
  for (Index at = middle + lanes; at <= p.n_nodes - lanes && last > kRaceEnd; at += lanes) run(at);
  first = earliest;
  for (Index at = middle - lanes; at >= 0 && first < kRaceStart; at -= lanes) run(at);

  // The mass is one; its error is shared by all.
  const double total = sum_lanes(mass);
  *log_partition = origin + scale * (sum_lanes(time) / total) - 0.57721566490153286061;
  for (Index k = 0; k < n; ++k) probability[k] = sum_lanes(load(wins + lanes * k)) / total;
  *curvature = n > 1 ? std::fmax(sum_lanes(bend), 0.0) * per_node / (scale * total * double(n - 1)) : 0.0;
}

void expected_softmax(const SoftmaxRows& p) {
  for (Index i = 0; i < p.n_rows; ++i)
    softmax_row(p, p.mean + i * p.n_classes, p.variance[i], p.log_partition + i, p.probability + i * p.n_classes,
                p.curvature + i);
}

// atan(x) / x in x² ≤ 1; 3e-12.
constexpr double kArctangent[] = {
    0.9999999999984474, -0.33333333270689497, 0.19999995789319125, -0.1428560207525434, 0.11109537127557531,
    -0.09077527589746069, 0.0761738907356587, -0.06375162969085353, 0.05063515382069806,
    -0.035511959808760804, 0.02016183314512802, -0.0083749568046912, 0.0022087624862270855,
    -0.00027363029739591873};

// Eight logits at once: Lagrange's polynomials in the angle, Hermite's in y.
PYDIRECT_INLINE void sigmoid_pack(const SigmoidRows& p, Index i) {
  const Index left = p.n_rows - i;
  const PackD mean = load_some(p.mean + i, left), variance = load_some(p.variance + i, left);
  const PackD zero = broadcast(0.0), one = broadcast(1.0), shift = broadcast(rounding_shift<double>());
  const auto below = [&](const PackD& x, double most) {
    return min(x - broadcast(0.5) + shift - shift, broadcast(most));
  };
  const auto within = [&](const PackD& x, double most) { return min(max(zero, x), broadcast(most)); };

  const PackD sd = sqrt(variance), scale = sqrt(one + variance);
  const PackD tangent = min(sd, one / sd), square = tangent * tangent;
  constexpr int n_terms = sizeof kArctangent / sizeof *kArctangent;
  PackD arc = broadcast(kArctangent[n_terms - 1]);
  PYDIRECT_UNROLL for (int k = n_terms - 2; k >= 0; --k) arc = arc * square + broadcast(kArctangent[k]);
  arc = arc * tangent * broadcast(double(kLogitAngles) / 1.57079632679489661923);
  const PackD angle = within(select(less(one, sd), broadcast(double(kLogitAngles)) - arc, arc), kLogitAngles);
  const PackD interval = below(angle, kLogitAngles - 1);
  const PackD place = within(abs(mean) / scale * broadcast(1.0 / kLogitSpacing), kLogitNodes - 1);
  const PackD node = below(place, kLogitNodes - 2);

  constexpr Index before = kAngleOrder / 2 - 1;
  const PackD x = angle - interval + broadcast(double(before));
  PackD ahead[kAngleOrder], behind = one;
  ahead[0] = one;
  PYDIRECT_UNROLL for (Index q = 1; q < kAngleOrder; ++q) ahead[q] = ahead[q - 1] * (x - broadcast(double(q - 1)));
  double weight[kAngleOrder][PackD::lanes], first_row[PackD::lanes], first_node[PackD::lanes];
  PYDIRECT_UNROLL for (Index q = kAngleOrder - 1; q >= 0; --q) {
    store(weight[q], ahead[q] * behind * broadcast(kLagrange[q]));
    behind = behind * (x - broadcast(double(q)));
  }
  store(first_row, interval);
  store(first_node, node);
  double cell[PackD::lanes][PackD::lanes], column[PackD::lanes][PackD::lanes];
  for (int l = 0; l < PackD::lanes; ++l) {
    const double* from = p.table + 4 * Index(first_node[l]);
    PackD sum = zero;
    PYDIRECT_UNROLL for (Index q = 0; q < kAngleOrder; ++q) {
      Index row = Index(first_row[l]) + q - before;
      row = row < 0 ? -row : row > kLogitAngles ? 2 * kLogitAngles - row : row;  // even about both ends
      sum = sum + broadcast(weight[q][l]) * load(from + row * kLogitStride);
    }
    store(cell[l], sum);
  }
  for (int l = 0; l < PackD::lanes; ++l)
    PYDIRECT_UNROLL for (int c = 0; c < PackD::lanes; ++c) column[c][l] = cell[l][c];

  const PackD f = place - node;
  const PackD half = broadcast(0.5), first = load(column[1]), second = load(column[2]), third = load(column[3]);
  const Quintic value(load(column[0]), first, half * second, load(column[4]), load(column[5]), half * load(column[6]));
  const Quintic fall(first, second, half * third, load(column[5]), load(column[6]), half * load(column[7]));
  const Mask<double> positive = less(zero, mean);
  const PackD smaller = max(zero, zero - fall.at(f) * broadcast(1.0 / kLogitSpacing));
  store_some(p.log_partition + i, value.at(f) * scale + max(zero, mean), left);
  store_some(p.probability + i, select(positive, one - smaller, smaller), left);
  store_some(p.curvature + i,
             max(zero, fall.slope_at(f) * broadcast(1.0 / (kLogitSpacing * kLogitSpacing)) / scale), left);
}

void expected_sigmoid(const SigmoidRows& p) {
  for (Index i = 0; i < p.n_rows; i += PackD::lanes) sigmoid_pack(p, i);
}

constexpr void fill(ExpectationKernels& k) {
  k.softmax = expected_softmax;
  k.sigmoid = expected_sigmoid;
}
