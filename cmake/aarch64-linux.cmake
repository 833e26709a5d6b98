# SPDX-License-Identifier: MIT
# Toolchain file: cross-compiles for AArch64 with Debian's gcc-aarch64-linux-gnu; tests run under qemu-user.
#     cmake -S . -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux.cmake

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)

# Programs are the build machine's, everything else is the target's.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(weft_qemu NAMES qemu-aarch64 qemu-aarch64-static)
if(weft_qemu)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${weft_qemu} -L /usr/aarch64-linux-gnu)
endif()
