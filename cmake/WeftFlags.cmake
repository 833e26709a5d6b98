# SPDX-License-Identifier: MIT
# Compiler flags, as two targets: weft_flags for our own sources, weft_public_flags for whoever links the library too.

find_package(Threads REQUIRED)
include(CheckIncludeFile)

add_library(weft_public_flags INTERFACE)
target_link_libraries(weft_public_flags INTERFACE Threads::Threads)

# Without this musl-gcc makes programs in which the unwinder finds nothing. Other drivers have it anyway.
include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ features.h WEFT_GLIBC)
if(NOT WEFT_GLIBC)
  target_link_options(weft_public_flags INTERFACE -Wl,--eh-frame-hdr)
  set(WEFT_PC_LINK "-Wl,--eh-frame-hdr ")
endif()

add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE _GNU_SOURCE)
# Tables: a panic unwinds through our functions, and is stopped by what they say (src/context/unwind.h).
target_compile_options(weft_flags INTERFACE -pthread -Wall -Wextra -Wpedantic -fasynchronous-unwind-tables)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  target_compile_options(weft_flags INTERFACE -Wno-gnu-statement-expression -Wno-gnu-zero-variadic-macro-arguments)
endif()

if(WEFT_DEBUG_CHECKS)
  target_compile_definitions(weft_flags INTERFACE WEFT_DEBUG_CHECKS=1)
endif()

if(WEFT_VALGRIND_REQUESTS)
  check_include_file(valgrind/valgrind.h WEFT_HAVE_VALGRIND_H)
  if(WEFT_HAVE_VALGRIND_H)
    target_compile_definitions(weft_flags INTERFACE WEFT_VALGRIND=1)
  endif()
endif()

if(WEFT_SANITIZE STREQUAL address)
  set(weft_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(WEFT_SANITIZE STREQUAL thread)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "WEFT_SANITIZE=thread needs clang: gcc's run-time library ends at 8,000 fibers")
  endif()
  set(weft_sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT WEFT_SANITIZE STREQUAL none)
  message(FATAL_ERROR "WEFT_SANITIZE is none, address or thread, not '${WEFT_SANITIZE}'")
endif()
if(weft_sanitize)
  target_compile_options(weft_flags INTERFACE ${weft_sanitize})
  target_link_options(weft_public_flags INTERFACE ${weft_sanitize})
endif()
