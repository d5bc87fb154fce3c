#include "pydirect/parallel.hpp"

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define PYDIRECT_HAS_FORK 1
#endif

namespace pydirect {
namespace {

std::atomic<bool> forked{false};

#ifdef PYDIRECT_HAS_FORK
void after_fork_in_child() { forked.store(true); }

const bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
#endif

}  // namespace

bool has_openmp() noexcept {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

int default_threads() noexcept {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

bool in_forked_child() noexcept {
#ifdef PYDIRECT_HAS_FORK
  (void)registered;
#endif
  return forked.load(std::memory_order_relaxed);
}

}  // namespace pydirect
