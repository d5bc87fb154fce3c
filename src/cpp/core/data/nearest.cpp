#include "pydirect/data/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"

namespace pydirect {
namespace {

constexpr Index kSearchesPerChunk = 16;
constexpr Index kGroupsPerChunk = 2;
constexpr Index kStrips = 32;  // of every so many distances the least

// A distance that the k nearest do not exceed, and few others: the k-th of the least of strips.
float limit_of(const float* distances, Index n, Index k) {
  if (k > kStrips || n <= 2 * kStrips) return INFINITY;
  float least[kStrips];
  std::copy_n(distances, kStrips, least);
  for (Index j = kStrips; j + kStrips <= n; j += kStrips)
    for (Index q = 0; q < kStrips; ++q) least[q] = std::min(least[q], distances[j + q]);
  std::nth_element(least, least + k - 1, least + kStrips);
  return least[k - 1];
}

// Values of eight targets' rows, from one of every row.
template <class Value>
void gather(const NearestRows& p, Index group, const Value& value, double* out) {
  const Index n_rows = p.n_neighbours + 1;
  for (Index lane = 0; lane < kTargetsTogether; ++lane) {
    const Index target = group * kTargetsTogether + lane;
    for (Index j = 0; j < n_rows; ++j) {
      const std::int64_t row = target < p.n_targets ? p.rows[target * n_rows + j] : -1;
      out[j * kTargetsTogether + lane] = row < 0 ? 0.0 : value(row);
    }
  }
}

Index padded_inputs(const NearestRows& p) {
  return (p.n_inputs + kInputsTogether - 1) / kInputsTogether * kInputsTogether;
}

void gather_inputs(const NearestRows& p, Index group, double* out) {
  const Index n_rows = p.n_neighbours + 1, row_size = kTargetsTogether;
  for (Index lane = 0; lane < kTargetsTogether; ++lane) {
    const Index target = group * kTargetsTogether + lane;
    for (Index j = 0; j < n_rows; ++j) {
      const std::int64_t row = target < p.n_targets ? p.rows[target * n_rows + j] : -1;
      const double* const x = p.x + std::max<std::int64_t>(row, 0) * p.n_inputs;
      for (Index c = 0; c < p.n_inputs; ++c) out[(c * n_rows + j) * row_size + lane] = x[c];
    }
  }
}

std::vector<double> packs(Index n) { return std::vector<double>(static_cast<std::size_t>(n * kTargetsTogether)); }

// Memory for one group after the other.
struct Scratch {
  explicit Scratch(const NearestProblem& p)
      : inputs(packs(padded_inputs(p.rows) * (p.rows.n_neighbours + 1))),
        present(packs(p.rows.n_neighbours + 1)),
        noise(present),
        b(present),
        residual(packs(p.n_outputs * (p.rows.n_neighbours + 1))),
        alpha(residual),
        slope(packs(p.rows.n_pairs())),
        rough(slope),
        triangle(packs(p.rows.n_pairs() + p.rows.n_neighbours + 1)),
        variance(packs(1)),
        gradient(static_cast<std::size_t>(padded_inputs(p.rows))) {}

  std::vector<double> inputs, present, noise, b, residual, alpha, slope, rough, triangle, variance, gradient;
};

}  // namespace

void nearest_preceding(const NearestSearch& p, std::int64_t* out, int n_threads) {
  for_chunks(p.n_targets, kSearchesPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<float> distances(static_cast<std::size_t>(p.stride)), own(static_cast<std::size_t>(p.n_inputs));
    std::vector<std::pair<float, std::int64_t>> nearest;
    for (Index i = begin; i < end; ++i) {
      const Index target = p.targets[i];
      for (Index c = 0; c < p.n_inputs; ++c) own[static_cast<std::size_t>(c)] = p.x[c * p.stride + target];
      kernels().nearest.scan(p.x, p.n_inputs, p.stride, target, own.data(), distances.data());
      nearest.clear();
      const float limit = limit_of(distances.data(), target, p.n_neighbours);
      for (Index j = 0; j < target; ++j)
        if (distances[static_cast<std::size_t>(j)] <= limit)
          nearest.emplace_back(distances[static_cast<std::size_t>(j)], j);
      if (Index(nearest.size()) > p.n_neighbours) {
        std::nth_element(nearest.begin(), nearest.begin() + p.n_neighbours, nearest.end());
        nearest.resize(static_cast<std::size_t>(p.n_neighbours));
      }
      std::int64_t* const row = out + i * p.n_neighbours;
      std::fill(row, row + p.n_neighbours, -1);
      for (std::size_t j = 0; j < nearest.size(); ++j) row[j] = nearest[j].second;
      std::sort(row, row + nearest.size());
    }
  });
}

void nearest_distances(const NearestRows& p, double* out, int n_threads) {
  const Index size = p.n_pairs() * kTargetsTogether;
  for_chunks(p.n_groups(), kGroupsPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<double> inputs = packs(padded_inputs(p) * (p.n_neighbours + 1));
    for (Index group = begin; group < end; ++group) {
      gather_inputs(p, group, inputs.data());
      double* const pairs = out + group * size;
      kernels().nearest.pairs(inputs.data(), p.n_neighbours + 1, padded_inputs(p), pairs);
      for (Index i = 0; i < size; ++i) pairs[i] = std::sqrt(pairs[i]);
    }
  });
}

bool nearest_evidence(const NearestProblem& p, bool with_gradient, double* out, double* weights, double* variances,
                      int n_threads) {
  const NearestRows& rows = p.rows;
  const Index k = rows.n_neighbours, d = rows.n_inputs, n_groups = rows.n_groups(), size = d + 5;
  const auto evidence = kernels().nearest.evidence[p.twice_smoothness / 2];
  // Every group has its own sums, added up in order: the same for any number of threads.
  std::vector<double> sums(static_cast<std::size_t>(n_groups * size));
  std::vector<char> valid(static_cast<std::size_t>(n_groups));
  for_chunks(n_groups, kGroupsPerChunk, n_threads, [&](Index begin, Index end) {
    Scratch s(p);
    for (Index group = begin; group < end; ++group) {
      gather_inputs(rows, group, s.inputs.data());
      gather(rows, group, [](Index) { return 1.0; }, s.present.data());
      gather(rows, group, [&](Index i) { return p.noise[i]; }, s.noise.data());
      for (Index o = 0; o < p.n_outputs; ++o)
        gather(rows, group, [&](Index i) { return p.residual[i * p.n_outputs + o]; },
               s.residual.data() + o * (k + 1) * kTargetsTogether);
      NearestGroup task{k, padded_inputs(rows), p.n_outputs, s.inputs.data(),
                        p.isotropic + group * rows.n_pairs() * kTargetsTogether, s.present.data(), s.noise.data(),
                        s.residual.data(), p.ard_amplitude, p.isotropic_amplitude, p.isotropic_length_scale,
                        s.triangle.data(), s.slope.data(), s.rough.data(), s.alpha.data(), s.b.data(),
                        s.variance.data(), with_gradient ? s.gradient.data() : nullptr, {}, 0.0, false};
      evidence(task);
      valid[static_cast<std::size_t>(group)] = task.is_valid;
      double* const sum = sums.data() + group * size;
      std::copy(task.sums, task.sums + 4, sum);
      sum[4] = task.distance;
      if (with_gradient) std::copy(s.gradient.data(), s.gradient.data() + d, sum + 5);
      for (Index lane = 0; lane < kTargetsTogether && weights != nullptr; ++lane) {
        const Index target = group * kTargetsTogether + lane;
        if (target >= rows.n_targets) break;
        variances[target] = s.variance[static_cast<std::size_t>(lane)];
        for (Index j = 0; j <= k; ++j)
          weights[target * (k + 1) + j] = s.b[static_cast<std::size_t>(j * kTargetsTogether + lane)];
      }
    }
  });
  std::fill(out, out + size, 0.0);
  for (std::size_t i = 0; i < sums.size(); ++i) out[i % static_cast<std::size_t>(size)] += sums[i];
  return std::all_of(valid.begin(), valid.end(), [](char each) { return each; });
}

}  // namespace pydirect
