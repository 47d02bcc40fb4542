# ringfold_library(NAME [TORCH] [DEPENDS ...] [PRIVATE ...]): the library of one folder of src/ringfold.
# TORCH targets share one precompiled torch header, built once by the first of them (mesh).
function(ringfold_library name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ringfold/${name}/*.cpp)
  # Twin files are no part of the folder's library: every program chooses one of them (RingfoldCuda.cmake).
  list(FILTER sources EXCLUDE REGEX ${RINGFOLD_CUDA_SOURCES})
  list(FILTER sources EXCLUDE REGEX ${RINGFOLD_NO_CUDA_SOURCES})
  add_library(ringfold_${name} STATIC ${sources})
  add_library(ringfold::${name} ALIAS ringfold_${name})
  set_target_properties(ringfold_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(ringfold_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(ringfold_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE} ringfold_warnings
    PUBLIC ringfold_sanitize)
  target_compile_definitions(ringfold_${name} PRIVATE $<$<BOOL:${RINGFOLD_VALIDATE_PLANS}>:RINGFOLD_VALIDATE_PLANS>)
  if(ARG_TORCH)
    ringfold_use_torch(ringfold_${name})
  endif()
endfunction()

# Links torch and reuses the precompiled header. GCC wants the same flags on every user, hence no per-target options.
function(ringfold_use_torch target)
  target_link_libraries(${target} PUBLIC TorchWheel::torch_cpu)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess -Winvalid-pch>)
  if(NOT TARGET ringfold_torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "// Owner of the precompiled torch header.\n")
    add_library(ringfold_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(ringfold_torch_pch PRIVATE TorchWheel::torch_cpu ringfold_warnings)
    target_compile_options(ringfold_torch_pch PRIVATE -fpch-preprocess)
    target_precompile_headers(ringfold_torch_pch PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>
      <algorithm> <cstdint> <memory> <optional> <span> <string> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ringfold_torch_pch)
endfunction()

# ringfold_test(NAME [TORCH] LINK ...): one GoogleTest program from tests/NAME/*.cpp, one CTest entry a test.
function(ringfold_test name)
  cmake_parse_arguments(ARG "TORCH" "TWINS" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} fmt::fmt-header-only nlohmann_json::nlohmann_json
    GTest::gtest GTest::gmock GTest::gtest_main ringfold_warnings)
  target_compile_definitions(test_${name} PRIVATE
    RINGFOLD_SOURCE_DIR="${PROJECT_SOURCE_DIR}" RINGFOLD_BINARY="$<TARGET_FILE:ringfold>")
  if(ARG_TORCH)
    # -fPIC as the libraries have it: the -fPIE of an executable would make the precompiled header unusable.
    set_target_properties(test_${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(test_${name} PRIVATE -fPIC)
    ringfold_use_torch(test_${name})
    ringfold_link_twins(test_${name} ${ARG_TWINS})
  endif()
  add_dependencies(test_${name} ringfold)
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}/" DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${name} TIMEOUT 300)
endfunction()

# Lets other projects use the planner from this build tree: find_package(ringfold) with ringfold_DIR, ringfold::plan.
function(ringfold_export_planner)
  export(TARGETS ringfold_plan ringfold_base ringfold_warnings ringfold_sanitize NAMESPACE ringfold::
    FILE ${CMAKE_BINARY_DIR}/ringfold-targets.cmake)
  file(WRITE ${CMAKE_BINARY_DIR}/ringfold-config.cmake "include(CMakeFindDependencyMacro)\n"
    "foreach(package fmt spdlog nlohmann_json Threads)\n  find_dependency(\${package})\nendforeach()\n"
    "include(\${CMAKE_CURRENT_LIST_DIR}/ringfold-targets.cmake)\n")
endfunction()
