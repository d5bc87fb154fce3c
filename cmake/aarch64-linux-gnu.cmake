# Cross-compiles for aarch64 Linux with Debian's g++-aarch64-linux-gnu; .ci/aarch64 lays out the folders.
# PYDIRECT_SYSROOT holds that machine's Python with its headers, PYDIRECT_SITE its NumPy.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PYDIRECT_SYSROOT PYDIRECT_SITE)

# Python's pyconfig.h is found by a path below the sysroot's include folder; its C headers stay behind the compiler's own.
set(CMAKE_C_FLAGS_INIT "-idirafter ${PYDIRECT_SYSROOT}/usr/include")
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${PYDIRECT_SYSROOT}/usr/include")
set(Python_INCLUDE_DIR "${PYDIRECT_SYSROOT}/usr/include/python3.11")
set(Python_NumPy_INCLUDE_DIR "${PYDIRECT_SITE}/numpy/_core/include")
set(PYTHON_MODULE_EXTENSION ".cpython-311-aarch64-linux-gnu.so")
