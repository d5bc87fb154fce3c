// Chooses the table of kernels once: what PYDIRECT_ISA asks for, else the widest level that this CPU has.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "kernels/kernel_table.hpp"

namespace pydirect {

namespace {

using Fill = void (*)(KernelTable&);

// A pointer that no file of kernels has set would be called as null: rather an error at import.
KernelTable filled_table(const char* name, std::initializer_list<Fill> fills) {
  KernelTable table{};
  table.name = name;
  for (const Fill fill : fills) fill(table);
  constexpr std::size_t n = sizeof(KernelTable) / sizeof(void*);
  static_assert(sizeof(KernelTable) == n * sizeof(void*), "nothing but pointers");
  const void* pointers[n];
  std::memcpy(pointers, &table, sizeof table);
  for (const void* pointer : pointers)
    if (pointer == nullptr) throw std::logic_error("a kernel is missing from the table");
  return table;
}

}  // namespace

// The files of kernels at a level. Where the CPU lacks it, not even the functions that fill its table may run.
#define PYDIRECT_LEVEL(level)                                                                         \
  void fill_features_##level(KernelTable&);                                                           \
  void fill_networks_##level(KernelTable&);                                                           \
  void fill_tiles_##level(KernelTable&);                                                              \
  void fill_weights_##level(KernelTable&);                                                            \
  static const KernelTable& table_##level() {                                                         \
    static const KernelTable table = filled_table(                                                    \
        #level, {fill_features_##level, fill_networks_##level, fill_tiles_##level, fill_weights_##level}); \
    return table;                                                                                     \
  }

PYDIRECT_LEVEL(baseline)
#ifdef PYDIRECT_HAS_ISA_x86_64_v3
PYDIRECT_LEVEL(x86_64_v3)
#endif
#ifdef PYDIRECT_HAS_ISA_x86_64_v4
PYDIRECT_LEVEL(x86_64_v4)
#endif

namespace {

constexpr int kMaxLevels = 3;

int supported_tables(const KernelTable** tables) {
  int count = 0;
  tables[count++] = &table_baseline();
#ifdef PYDIRECT_HAS_ISA_x86_64_v3
  if (__builtin_cpu_supports("x86-64-v3")) tables[count++] = &table_x86_64_v3();
#endif
#ifdef PYDIRECT_HAS_ISA_x86_64_v4
  if (__builtin_cpu_supports("x86-64-v4")) tables[count++] = &table_x86_64_v4();
#endif
  return count;
}

const KernelTable* find_level(const char* name) {
  const KernelTable* tables[kMaxLevels];
  const int count = supported_tables(tables);
  for (int i = 0; i < count; ++i)
    if (std::strcmp(tables[i]->name, name) == 0) return tables[i];
  return nullptr;
}

const KernelTable* choose_initially() {
  if (const char* wanted = std::getenv("PYDIRECT_ISA"); wanted != nullptr && *wanted != '\0') {
    if (const KernelTable* table = find_level(wanted)) return table;
    const KernelTable* tables[kMaxLevels];
    const int count = supported_tables(tables);
    std::string names;
    for (int i = 0; i < count; ++i) names += (i == 0 ? "'" : ", '") + std::string(tables[i]->name) + "'";
    throw std::runtime_error("PYDIRECT_ISA must be one of " + names + " on this build and CPU, got '" + wanted + "'");
  }
  const KernelTable* tables[kMaxLevels];
  return tables[supported_tables(tables) - 1];
}

std::atomic<const KernelTable*> active{nullptr};

}  // namespace

const KernelTable& kernels() {
  const KernelTable* table = active.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = choose_initially();
    active.store(table, std::memory_order_release);
  }
  return *table;
}

int supported_isa_levels(const char** names, int capacity) {
  const KernelTable* tables[kMaxLevels];
  const int count = supported_tables(tables);
  for (int i = 0; i < count && i < capacity; ++i) names[i] = tables[i]->name;
  return count;
}

bool select_isa_level(const char* name) {
  const KernelTable* table = find_level(name);
  if (table == nullptr) return false;
  active.store(table, std::memory_order_release);
  return true;
}

}  // namespace pydirect
