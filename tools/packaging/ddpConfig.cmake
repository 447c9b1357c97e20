# find_package(ddp): ddp::ddp is the library for C++20, where Abseil is, and ddp::c that for C (ddp/c.h).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_package(absl CONFIG QUIET)
if(NOT absl_FOUND)
  message(STATUS "ddp: Abseil (libabsl-dev) was not found: ddp::c is there, and ddp::ddp is not")
endif()

get_filename_component(_ddp_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(absl_FOUND AND NOT TARGET ddp::ddp)
  add_library(ddp::ddp STATIC IMPORTED)
  set_target_properties(ddp::ddp PROPERTIES
    IMPORTED_LOCATION "${_ddp_prefix}/lib/libddp.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_ddp_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_LIBRARIES
      "absl::statusor;absl::status;absl::strings;Threads::Threads;${CMAKE_DL_LIBS}")
endif()
if(NOT TARGET ddp::c)
  add_library(ddp::c SHARED IMPORTED)
  set_target_properties(ddp::c PROPERTIES
    IMPORTED_LOCATION "${_ddp_prefix}/lib/libddp.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_ddp_prefix}/include")
endif()
