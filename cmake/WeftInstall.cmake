# SPDX-License-Identifier: MIT
# Installation, pkg-config files and the CMake package.

include(CMakePackageConfigHelpers)

# pkg-config: paths relative to the file itself, so that a moved installation still works.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(WEFT_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(WEFT_PC_LIBDIR "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(WEFT_PC_INCLUDEDIR "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH weft_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" weft_pc_up "${weft_pc_up}")
  set(WEFT_PC_PREFIX "\${pcfiledir}/${weft_pc_up}")
  set(WEFT_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(WEFT_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)

# The same for a build tree: PKG_CONFIG_PATH=build pkg-config weft.
file(RELATIVE_PATH weft_pc_include ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/include)
set(WEFT_PC_PREFIX "\${pcfiledir}")
set(WEFT_PC_LIBDIR "\${pcfiledir}")
set(WEFT_PC_INCLUDEDIR "\${pcfiledir}/${weft_pc_include}")
set(WEFT_PC_RPATH "-Wl,-rpath,\${libdir} ")
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft-uninstalled.pc @ONLY)

# The man pages, from the comments of the headers.
find_program(WEFT_AWK awk)
if(WEFT_AWK)
  file(GLOB weft_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/include/weft/*.h)
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/man/made
    COMMAND ${PROJECT_SOURCE_DIR}/tools/man pages ${PROJECT_BINARY_DIR}/man
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/made
    DEPENDS ${weft_headers} ${PROJECT_SOURCE_DIR}/tools/man ${PROJECT_SOURCE_DIR}/tools/man.awk
    COMMENT "Making the man pages")
  add_custom_target(weft_man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/made)
else()
  message(STATUS "weft: no awk, the man pages are left out")
endif()

if(NOT WEFT_TOP_LEVEL AND NOT WEFT_INSTALL)
  return()
endif()

set(weft_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(TARGETS weft_static weft_shared weft_pic weft_public_flags EXPORT weft-targets ARCHIVE DESTINATION
        ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${weft_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in ${PROJECT_BINARY_DIR}/weft-config.cmake
                              INSTALL_DESTINATION ${weft_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
        DESTINATION ${weft_cmake_dir})
if(WEFT_AWK)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
