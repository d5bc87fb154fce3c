#include "pydirect/regression/sequential.hpp"

#include <algorithm>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "pydirect/parallel.hpp"
#include "sequential_uniforms.hpp"

namespace pydirect {
namespace {

constexpr Index kPositionsPerChunk = 8, kDrawsPerChunk = 16;

// A panel of positions and the draws of all runs there.
template <class T>
class Sampler {
 public:
  static constexpr Index run = kDrawRun<T>;

  Sampler(const SequentialProblem<T>& p, const SequentialDraws& d)
      : p_(p), d_(d), n_runs_((d.n_draws + run - 1) / run), padded_(padded_draws(d.n_draws)),
        offset_(kDrawPanel * p.n_levels), scaled_(offset_.size()), tilt_(offset_.size()), uniforms_(kDrawPanel * padded_),
        excess_(n_runs_ * p.n_weights * run), codes_(p.n_weights * padded_),
        log_normaliser_(padded_), log_q_(padded_) {}

  void draw(int n_threads) {
    for (Index end = p_.n_weights; end > 0; end -= (end - 1) % kDrawPanel + 1) {
      const Index begin = end - ((end - 1) % kDrawPanel + 1);
      for_chunks(end - begin, kPositionsPerChunk, n_threads, [&](Index first, Index last) {
        UniformNumbers numbers(d_.kind, d_.n_draws, d_.seed);
        for (Index row = first; row < last; ++row) {
          set_tables(begin + row, row);
          if (d_.kind != DrawKind::kNearest)
            numbers.of_weight(p_.order[begin + row], uniforms_.data() + row * padded_);
        }
      });
      // As many runs together as threads allow: they share reads of the factor.
      for_chunks(n_runs_, (n_runs_ + n_threads - 1) / n_threads, n_threads, [&](Index first, Index last) {
        for (Index r = first; r < last; ++r) draw_panel(begin, end, r);
      });
    }
    std::copy_n(log_normaliser_.data(), d_.n_draws, d_.log_normaliser);
    std::copy_n(log_q_.data(), d_.n_draws, d_.log_q);
    for_chunks(d_.n_draws, kDrawsPerChunk, n_threads, [&](Index first, Index last) { scatter(first, last); });
  }

 private:
  // Of position j, a row of the panel.
  void set_tables(Index j, Index row) {
    const double diagonal = p_.factor[j * (p_.n_weights + 1)], mean = p_.mean[j];
    const double *levels = p_.levels + j * p_.level_stride, *tilt = p_.tilt + j * p_.tilt_stride;
    for (Index k = 0; k < p_.n_levels; ++k) {
      const Index at = row * p_.n_levels + k;
      offset_[at] = T(levels[k] - mean);
      scaled_[at] = T(diagonal * (levels[k] - mean));
      tilt_[at] = T(tilt[k]);
    }
  }

  void draw_panel(Index begin, Index end, Index r) {
    const Index b = p_.n_weights;
    kernels().sequential<T>().draw(
        {end - begin, b - end, p_.n_levels, p_.factor + begin * (b + 1), b, offset_.data(), scaled_.data(),
         tilt_.data()},
        {d_.kind == DrawKind::kNearest ? nullptr : uniforms_.data() + r * run, padded_,
         excess_.data() + (r * b + begin) * run, codes_.data() + begin * padded_ + r * run, padded_,
         log_normaliser_.data() + r * run, log_q_.data() + r * run});
  }

  void scatter(Index first, Index last) {
    for (Index j = 0; j < p_.n_weights; ++j)
      for (Index i = first; i < last; ++i) d_.codes[i * p_.n_weights + p_.order[j]] = codes_[j * padded_ + i];
  }

  const SequentialProblem<T>& p_;
  const SequentialDraws& d_;
  const Index n_runs_, padded_;
  std::vector<T> offset_, scaled_, tilt_;  // (kDrawPanel, n_levels)
  std::vector<double> uniforms_;           // (kDrawPanel, padded)
  std::vector<T> excess_;                  // (n_runs, n_weights, run)
  std::vector<std::uint8_t> codes_;        // (n_weights, padded)
  std::vector<double> log_normaliser_, log_q_;
};

}  // namespace

template <class T>
void draw_sequentially(const SequentialProblem<T>& problem, const SequentialDraws& draws, int n_threads) {
  Sampler<T>(problem, draws).draw(std::max(1, n_threads));
}

template void draw_sequentially(const SequentialProblem<float>&, const SequentialDraws&, int);
template void draw_sequentially(const SequentialProblem<double>&, const SequentialDraws&, int);

}  // namespace pydirect
