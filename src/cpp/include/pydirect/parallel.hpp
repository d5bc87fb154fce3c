// One parallel level over fixed chunks. Which thread runs a chunk never changes what the chunk computes,
// so results have the same bits for any number of threads.
#pragma once

#include "pydirect/types.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace pydirect {

bool has_openmp() noexcept;

// What OpenMP says now (OMP_NUM_THREADS, threadpoolctl, omp_set_num_threads), 1 in a serial build.
int default_threads() noexcept;

// True in a process forked from one that had loaded this library: OpenMP's threads, ours or another library's, did not
// come along, and starting a team could hang.
bool in_forked_child() noexcept;

// Calls body(begin, end) for consecutive chunks of [0, count). One thread means no parallel region at all.
template <class Body>
void for_chunks(Index count, Index chunk, int n_threads, const Body& body) {
  const Index n_chunks = (count + chunk - 1) / chunk;
  const auto run = [&](Index k) {
    const Index begin = k * chunk;
    body(begin, begin + chunk < count ? begin + chunk : count);
  };
#ifdef _OPENMP
  if (n_threads > 1 && n_chunks > 1 && !in_forked_child()) {
    const int team = n_chunks < n_threads ? static_cast<int>(n_chunks) : n_threads;
#pragma omp parallel for schedule(dynamic) num_threads(team)
    for (Index k = 0; k < n_chunks; ++k) run(k);
    return;
  }
#else
  (void)n_threads;
#endif
  for (Index k = 0; k < n_chunks; ++k) run(k);
}

}  // namespace pydirect
