#include "pydirect/logistic/expectations.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr double kQuarterTurn = 1.57079632679489661923;
constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kNormalDensity = 0.39894228040143267794;  // at zero
constexpr Index kRacesPerChunk = 32;
constexpr Index kLogitsPerChunk = 1024;

double normal_cdf(double z) { return 0.5 * std::erfc(-kRootHalf * z); }
double normal_density(double z) { return kNormalDensity * std::exp(-0.5 * z * z); }

// Nodes of a trapezoidal rule, and their mass by a density.
struct Rule {
  std::vector<double> node, mass;

  template <class Density>
  Rule(double step, int lowest, int highest, const Density& density) {
    for (int i = lowest; i <= highest; ++i) {
      node.push_back(step * i);
      mass.push_back(step * density(step * i));
    }
  }
};

// F(y), 1 − F(y) and the first two derivatives of F; F and its derivatives without a factor exp(top).
struct Arrival {
  double arrived = 0.0, running = 0.0, first = 0.0, second = 0.0, top = 0.0;
};

// By a sum over the Gaussian. Far left all terms are tiny.
Arrival narrow_arrival(double y, double angle) {
  static const Rule gaussian(0.25, -144, 40, normal_density);
  const double sd = std::tan(angle), inverse = 1.0 / std::cos(angle);
  const size_t n = gaussian.node.size();
  std::vector<double> hazard(n), exponent(n);
  Arrival a;
  a.top = -HUGE_VAL;
  for (size_t i = 0; i < n; ++i) {
    const double x = gaussian.node[i];
    hazard[i] = std::exp(sd * x - inverse * y);
    exponent[i] = -0.5 * x * x - hazard[i];
    a.top = std::max(a.top, exponent[i]);
  }
  for (size_t i = 0; i < n; ++i) {
    const double w = hazard[i], mass = kNormalDensity * std::exp(exponent[i] - a.top);
    a.arrived += 0.25 * mass;
    a.first += 0.25 * mass * inverse * w;
    a.second += 0.25 * mass * inverse * inverse * (w * w - w);
    a.running -= gaussian.mass[i] * std::expm1(-w);
  }
  return a;
}

// By a sum over the Gumbel variable.
Arrival wide_arrival(double y, double angle) {
  static const Rule gumbel(0.35, -12, 180, [](double g) { return std::exp(-g - std::exp(-g)); });
  const double cosine = std::cos(angle), inverse = 1.0 / std::sin(angle);
  Arrival a;
  for (size_t i = 0; i < gumbel.node.size(); ++i) {
    const double z = (y - cosine * gumbel.node[i]) * inverse, tail = normal_cdf(-std::fabs(z));
    const double mass = gumbel.mass[i], density = mass * normal_density(z) * inverse;
    a.arrived += mass * (z < 0.0 ? tail : 1.0 - tail);
    a.running += mass * (z < 0.0 ? 1.0 - tail : tail);
    a.first += density;
    a.second -= density * inverse * z;
  }
  return a;
}

// See kRunnerAngles.
std::vector<double> runner_table() {
  std::vector<double> table(kRunnerRows * kRunnerStride);
  for (Index row = 0; row < kRunnerRows; ++row)
    for (Index node = 0; node < kRunnerNodes; ++node) {
      const double y = kRunnerFirst + kRunnerSpacing * double(node);
      const double angle = kQuarterTurn * double(row) / double(kRunnerAngles);
      const Arrival a = 2 * row <= kRunnerAngles ? narrow_arrival(y, angle) : wide_arrival(y, angle);
      const double hazard = a.running < 0.5 ? -std::log1p(-a.running) : -a.top - std::log(a.arrived);
      // Derivatives of h = −log F and of log h.
      const double h1 = -a.first / a.arrived, h2 = h1 * h1 - a.second / a.arrived;
      const double slope = h1 / hazard, bend = h2 / hazard - slope * slope;
      double* out = table.data() + row * kRunnerStride + 3 * node;
      out[0] = std::log(hazard);
      out[1] = kRunnerSpacing * slope;
      out[2] = 0.5 * kRunnerSpacing * kRunnerSpacing * bend;
    }
  return table;
}

// l and its derivatives in y, see kLogitAngles, by a sum over the Gaussian.
void narrow_logit(double y, double angle, double* out) {
  static const Rule gaussian(0.25, -34, 34, normal_density);
  const double sd = std::tan(angle), scale = 1.0 / std::cos(angle);
  double partition = 0.0, probability = 0.0, curvature = 0.0, third = 0.0;
  for (size_t i = 0; i < gaussian.node.size(); ++i) {
    const double z = sd * gaussian.node[i] - scale * y, mass = gaussian.mass[i], e = std::exp(-std::fabs(z));
    const double smaller = e / (1.0 + e), larger = 1.0 / (1.0 + e), bump = smaller * larger;
    partition += mass * (std::max(z, 0.0) + std::log1p(e));
    probability += mass * (z < 0.0 ? smaller : larger);
    curvature += mass * bump;
    third += mass * bump * (z < 0.0 ? larger - smaller : smaller - larger);
  }
  out[0] = partition / scale;
  out[1] = -probability;
  out[2] = scale * curvature;
  out[3] = -scale * scale * third;
}

// σ is the distribution function of a logistic variable: by a sum over that.
void wide_logit(double y, double angle, double* out) {
  static const Rule logistic(0.75, -40, 40, [](double g) { return 0.25 / std::pow(std::cosh(0.5 * g), 2); });
  const double cosine = std::cos(angle), sine = std::sin(angle);
  std::fill(out, out + 4, 0.0);
  for (size_t i = 0; i < logistic.node.size(); ++i) {
    const double z = (cosine * logistic.node[i] - y) / sine, mass = logistic.mass[i];
    const double below = normal_cdf(z), density = normal_density(z);
    out[0] += mass * sine * (z * below + density);
    out[1] -= mass * below;
    out[2] += mass * density / sine;
    out[3] += mass * density * z / (sine * sine);
  }
}

std::vector<double> logit_table() {
  std::vector<double> table((kLogitAngles + 1) * kLogitStride);
  for (Index row = 0; row <= kLogitAngles; ++row)
    for (Index node = 0; node < kLogitNodes; ++node) {
      const double y = kLogitSpacing * double(node), angle = kQuarterTurn * double(row) / double(kLogitAngles);
      double* out = table.data() + row * kLogitStride + 4 * node;
      if (std::tan(angle) < 2.0)
        narrow_logit(y, angle, out);
      else
        wide_logit(y, angle, out);
      double power = 1.0;
      for (int i = 1; i < 4; ++i) out[i] *= power *= kLogitSpacing;
    }
  return table;
}

// Nodes y = ξ + κ (e^ξ − 1), which go far where the Gumbel distribution has its slow tail, at equal steps in ξ. The
// winner of many equals is the surer, hence shorter steps.
struct RaceNodes {
  std::vector<double> node, weight;
};

RaceNodes race_nodes(Index n_classes) {
  constexpr double stretch = 0.1, earliest = 16.0, latest = 9.0;
  const double step = n_classes <= 10 ? 0.4 : 0.4 * std::pow(10.0 / double(n_classes), 0.2);
  RaceNodes r;
  for (Index i = -Index(earliest / step); i <= Index(latest / step); ++i) {
    const double xi = step * double(i), stretched = stretch * std::exp(xi);
    r.node.push_back(xi + stretched - stretch);
    r.weight.push_back(step * (1.0 + stretched) / kRunnerSpacing);
  }
  return r;
}

}  // namespace

void expected_softmax(const SoftmaxRows& rows, int n_threads) {
  static const std::vector<double> table = runner_table();
  const RaceNodes nodes = race_nodes(rows.n_classes);
  for_chunks(rows.n_rows, kRacesPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<double> scratch(rows.n_classes * kRaceScratch);
    SoftmaxRows part = rows;
    part.n_rows = end - begin;
    part.mean += begin * rows.n_classes;
    part.variance += begin;
    part.table = table.data();
    part.n_nodes = Index(nodes.node.size());
    part.node = nodes.node.data();
    part.weight = nodes.weight.data();
    part.scratch = scratch.data();
    part.log_partition += begin;
    part.probability += begin * rows.n_classes;
    part.curvature += begin;
    kernels().expectations.softmax(part);
  });
}

void expected_sigmoid(const SigmoidRows& rows, int n_threads) {
  static const std::vector<double> table = logit_table();
  for_chunks(rows.n_rows, kLogitsPerChunk, n_threads, [&](Index begin, Index end) {
    kernels().expectations.sigmoid({end - begin, rows.mean + begin, rows.variance + begin, table.data(),
                                    rows.log_partition + begin, rows.probability + begin, rows.curvature + begin});
  });
}

}  // namespace pydirect
