#include "pydirect/parallel.hpp"

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define PYDIRECT_HAS_FORK 1
#endif

namespace pydirect {
namespace {

std::atomic<bool> threads_started{false};
std::atomic<bool> forked_since{false};

#ifdef PYDIRECT_HAS_FORK
void after_fork_in_child() {
  if (threads_started.load()) forked_since.store(true);
}
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

bool forked_after_threads() noexcept { return forked_since.load(std::memory_order_relaxed); }

void remember_threads_started() noexcept {
#ifdef PYDIRECT_HAS_FORK
  static const bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
  (void)registered;
#endif
  threads_started.store(true, std::memory_order_relaxed);
}

}  // namespace pydirect
