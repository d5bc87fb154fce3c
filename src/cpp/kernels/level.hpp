// How a file of kernels starts. Each is compiled once per instruction set, with PYDIRECT_ISA set to the level's name, and
// defines PYDIRECT_FILL(name of the file), which sets its groups of the table.
#pragma once

#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/kernel_table.hpp"

#define PYDIRECT_JOIN_(a, b) a##b
#define PYDIRECT_JOIN(a, b) PYDIRECT_JOIN_(a, b)
#define PYDIRECT_FILL(file) void PYDIRECT_JOIN(fill_##file##_, PYDIRECT_ISA)(KernelTable & table)

// All kernels stand in this namespace: nothing of a level may be merged with what another has compiled.
namespace pydirect {
namespace {
namespace PYDIRECT_ISA {

#include "kernels/simd.hpp"

}  // namespace PYDIRECT_ISA
}  // namespace
}  // namespace pydirect
