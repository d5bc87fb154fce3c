# The inner loops in src/cpp/kernels are written once and compiled once per instruction set.
# Every level becomes an OBJECT library; dispatch.cpp picks one table of functions at import.
include(CheckCXXSourceCompiles)

set(PYDIRECT_ISA_LEVELS baseline)
set(PYDIRECT_ISA_FLAGS_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # __builtin_cpu_supports() is in Clang's own runtime, which it does not link by itself on Windows.
  if(WIN32 AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(CMAKE_REQUIRED_LINK_OPTIONS --rtlib=compiler-rt)
    target_link_options(pydirect_flags INTERFACE --rtlib=compiler-rt)
  endif()
  foreach(level x86_64_v3 x86_64_v4)
    string(REPLACE "_v" "-v" march "${level}")
    string(REPLACE "x86_64" "x86-64" march "${march}")
    # The compiler must know the level both as a target and as a question to the CPU.
    set(CMAKE_REQUIRED_FLAGS "-march=${march}")
    check_cxx_source_compiles("int main() { return __builtin_cpu_supports(\"${march}\") ? 0 : 1; }" PYDIRECT_HAS_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(PYDIRECT_HAS_${level})
      list(APPEND PYDIRECT_ISA_LEVELS ${level})
      set(PYDIRECT_ISA_FLAGS_${level} "-march=${march}")
    endif()
  endforeach()
  # 512-bit vectors are used where the level has them; GCC prefers 256 bits otherwise.
  if(PYDIRECT_HAS_x86_64_v4)
    list(APPEND PYDIRECT_ISA_FLAGS_x86_64_v4 "-mprefer-vector-width=512")
  endif()
endif()

# GCC before 13 warns of its own AVX-512 headers, whose "undefined" vectors are initialised with themselves, and of arrays
# that are read only where they have been written.
set(PYDIRECT_KERNEL_WARNINGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(PYDIRECT_KERNEL_WARNINGS "-Wno-uninitialized" "-Wno-maybe-uninitialized")
endif()

# Several files at every level, so that no processor waits for one that compiles everything.
function(pydirect_add_isa_kernels)
  foreach(level IN LISTS PYDIRECT_ISA_LEVELS)
    add_library(kernels_${level} OBJECT
      src/cpp/kernels/networks.cpp
      src/cpp/kernels/weights.cpp
      src/cpp/kernels/features.cpp
      src/cpp/kernels/tiles.cpp)
    target_link_libraries(kernels_${level} PRIVATE pydirect_flags)
    target_compile_definitions(kernels_${level} PRIVATE PYDIRECT_ISA=${level})
    # Last on the command line, so that a -march among the user's flags cannot change a level.
    target_compile_options(kernels_${level} PRIVATE ${PYDIRECT_ISA_FLAGS_${level}} ${PYDIRECT_KERNEL_WARNINGS})
  endforeach()
endfunction()

function(pydirect_link_isa_kernels target)
  foreach(level IN LISTS PYDIRECT_ISA_LEVELS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:kernels_${level}>)
    target_compile_definitions(${target} PRIVATE PYDIRECT_HAS_ISA_${level})
  endforeach()
endfunction()
