#include "pydirect/data/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "moving.hpp"
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

// Inputs of a group's rows, each target's own: those in which its rows differ, in order, and nothing beyond.
struct GroupInputs {
  std::vector<Index> of_lane[kTargetsTogether];
  std::vector<double> values;  // (n_inputs, k + 1, kTargetsTogether)
  Index n_inputs;              // a multiple of kInputsTogether

  void gather(const NearestRows& p, Index group) {
    const Index n_rows = p.n_neighbours + 1;
    std::size_t most = 0;
    for (Index lane = 0; lane < kTargetsTogether; ++lane) {
      const Index target = group * kTargetsTogether + lane;
      choose(p, target < p.n_targets ? p.rows + target * n_rows : nullptr, of_lane[lane]);
      most = std::max(most, of_lane[lane].size());
    }
    n_inputs = (Index(most) + kInputsTogether - 1) / kInputsTogether * kInputsTogether;
    values.assign(static_cast<std::size_t>(n_inputs * n_rows * kTargetsTogether), 0.0);
    for (Index lane = 0; lane < kTargetsTogether; ++lane) {
      const Index target = group * kTargetsTogether + lane;
      for (Index j = 0; j < n_rows; ++j) {
        const std::int64_t row = target < p.n_targets ? p.rows[target * n_rows + j] : -1;
        const double* const x = p.x + std::max<std::int64_t>(row, 0) * p.n_inputs;
        double* out = values.data() + j * kTargetsTogether + lane;
        for (const Index c : of_lane[lane]) *out = x[c], out += n_rows * kTargetsTogether;
      }
    }
  }

  // Adds sums over the targets, (n_inputs, kTargetsTogether), to those of all inputs.
  void add(const double* sums, double* out) const {
    for (std::size_t i = 0; i < std::size_t(n_inputs); ++i, sums += kTargetsTogether) {
      double lanes[kTargetsTogether];
      std::copy_n(sums, kTargetsTogether, lanes);
      bool alike = true;
      for (const auto& own : of_lane) alike = alike && i < own.size() && own[i] == of_lane[0][i];
      if (alike) {
        for (Index half = kTargetsTogether / 2; half > 0; half /= 2)
          for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        out[of_lane[0][i]] += lanes[0];
        continue;
      }
      for (Index lane = 0; lane < kTargetsTogether; ++lane)
        if (i < of_lane[lane].size()) out[of_lane[lane][i]] += lanes[lane];
    }
  }

 private:
  static void choose(const NearestRows& p, const std::int64_t* rows, std::vector<Index>& out) {
    if (p.n_words == 0) {
      if (out.empty())
        for (Index c = 0; c < p.n_inputs; ++c) out.push_back(c);
      return;
    }
    out.clear();
    for (Index word = 0; word < p.n_words; ++word) {
      std::uint64_t own = 0;
      for (Index j = 0; j <= p.n_neighbours && rows != nullptr; ++j)
        if (rows[j] >= 0) own |= p.moving[rows[j] * p.n_words + word];
      for (; own != 0; own &= own - 1) out.push_back(kInputsPerWord * word + __builtin_ctzll(own));
    }
  }
};

std::vector<double> packs(Index n) { return std::vector<double>(static_cast<std::size_t>(n * kTargetsTogether)); }

// Memory for one group after the other.
struct Scratch {
  explicit Scratch(const NearestProblem& p)
      : present(packs(p.rows.n_neighbours + 1)),
        noise(present),
        b(present),
        residual(packs(p.n_outputs * (p.rows.n_neighbours + 1))),
        alpha(residual),
        slope(packs(p.rows.n_pairs())),
        rough(slope),
        triangle(packs(p.rows.n_pairs() + p.rows.n_neighbours + 1)),
        variance(packs(1)) {}

  GroupInputs inputs;
  std::vector<double> present, noise, b, residual, alpha, slope, rough, triangle, variance, gradient;
};

// Columns of x (n_inputs, stride) of which less than a quarter differs from the first entry, and the others. Distances of
// rows are |x − x_0|² along the former and, where a target differs from x_0 itself, what it changes of them.
struct Scan {
  std::vector<Index> resting, dense;
  std::vector<float> start;  // |x − x_0|² along resting columns, (stride,)

  explicit Scan(const NearestSearch& p) {
    if (p.n_inputs >= kManyInputs) start.resize(static_cast<std::size_t>(p.stride));
    for (Index c = 0; c < p.n_inputs; ++c) {
      const float* const x = p.x + c * p.stride;
      const bool rests = !start.empty() && 4 * std::count(x, x + p.stride, x[0]) > 3 * p.stride;
      (rests ? resting : dense).push_back(c);
      for (Index l = 0; l < p.stride && rests; ++l)
        start[static_cast<std::size_t>(l)] += (x[l] - x[0]) * (x[l] - x[0]);
    }
  }
};

}  // namespace

void mark_moving_inputs(const double* x, Index n_rows, Index n_inputs, std::uint64_t* out) {
  const Index n_words = moving_words(n_inputs);
  for (Index i = 0; i < n_rows && n_words > 0; ++i) mark_moving(x + i * n_inputs, x, n_inputs, 1, out + i * n_words);
}

Index moving_words(Index n_inputs) { return n_inputs < kManyInputs ? 0 : n_words_of(n_inputs); }

void nearest_preceding(const NearestSearch& p, std::int64_t* out, int n_threads) {
  const Scan scan(p);
  for_chunks(p.n_targets, kSearchesPerChunk, n_threads, [&](Index begin, Index end) {
    std::vector<float> distances(static_cast<std::size_t>(p.stride)), own(static_cast<std::size_t>(p.n_inputs));
    std::vector<Index> moved;
    std::vector<std::pair<float, std::int64_t>> nearest;
    for (Index i = begin; i < end; ++i) {
      const Index target = p.targets[i];
      for (Index c = 0; c < p.n_inputs; ++c) own[static_cast<std::size_t>(c)] = p.x[c * p.stride + target];
      moved.clear();
      std::copy_if(scan.resting.begin(), scan.resting.end(), std::back_inserter(moved),
                   [&](Index c) { return own[static_cast<std::size_t>(c)] != p.x[c * p.stride]; });
      kernels().nearest.scan({p.x, p.stride, target, own.data(), scan.start.empty() ? nullptr : scan.start.data(),
                              moved.data(), Index(moved.size()), scan.dense.data(), Index(scan.dense.size()),
                              distances.data()});
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
    GroupInputs inputs;
    for (Index group = begin; group < end; ++group) {
      inputs.gather(p, group);
      double* const pairs = out + group * size;
      kernels().nearest.pairs(inputs.values.data(), p.n_neighbours + 1, inputs.n_inputs, pairs);
      for (Index i = 0; i < size; ++i) pairs[i] = std::sqrt(pairs[i]);
    }
  });
}

bool nearest_evidence(const NearestProblem& p, bool with_gradient, double* out, double* weights, double* variances,
                      int n_threads) {
  const NearestRows& rows = p.rows;
  const Index k = rows.n_neighbours, d = rows.n_inputs, n_groups = rows.n_groups(), size = d + 5;
  const auto evidence = kernels().nearest.evidence[kernel_of(p.twice_smoothness)];
  // Every group has its own sums, added up in order: the same for any number of threads.
  std::vector<double> sums(static_cast<std::size_t>(n_groups * size));
  std::vector<char> valid(static_cast<std::size_t>(n_groups));
  for_chunks(n_groups, kGroupsPerChunk, n_threads, [&](Index begin, Index end) {
    Scratch s(p);
    for (Index group = begin; group < end; ++group) {
      s.inputs.gather(rows, group);
      s.gradient.resize(static_cast<std::size_t>(s.inputs.n_inputs * kTargetsTogether));
      gather(rows, group, [](Index) { return 1.0; }, s.present.data());
      gather(rows, group, [&](Index i) { return p.noise[i]; }, s.noise.data());
      for (Index o = 0; o < p.n_outputs; ++o)
        gather(rows, group, [&](Index i) { return p.residual[i * p.n_outputs + o]; },
               s.residual.data() + o * (k + 1) * kTargetsTogether);
      NearestGroup task{k, s.inputs.n_inputs, p.n_outputs, s.inputs.values.data(),
                        p.isotropic + group * rows.n_pairs() * kTargetsTogether, s.present.data(), s.noise.data(),
                        s.residual.data(), p.ard_amplitude, p.isotropic_amplitude, p.isotropic_length_scale,
                        s.triangle.data(), s.slope.data(), s.rough.data(), s.alpha.data(), s.b.data(),
                        s.variance.data(), with_gradient ? s.gradient.data() : nullptr, {}, 0.0, false};
      evidence(task);
      valid[static_cast<std::size_t>(group)] = task.is_valid;
      double* const sum = sums.data() + group * size;
      std::copy(task.sums, task.sums + 4, sum);
      sum[4] = task.distance;
      if (with_gradient && task.is_valid) s.inputs.add(s.gradient.data(), sum + 5);
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
