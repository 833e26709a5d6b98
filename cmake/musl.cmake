# SPDX-License-Identifier: MIT
# Toolchain file: musl instead of glibc, through its compiler wrapper (Debian: musl-tools); programs are static.
#     cmake -S . -B build/musl -DCMAKE_TOOLCHAIN_FILE=cmake/musl.cmake

set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_ASM_COMPILER musl-gcc)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(WEFT_TEST_CXX OFF CACHE BOOL "") # the wrapper has no C++ library: the system's needs glibc
set(WEFT_VALGRIND_REQUESTS OFF CACHE BOOL "") # nor the system's headers
