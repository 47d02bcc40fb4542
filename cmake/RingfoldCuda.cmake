# Decides whether the CUDA parts are built (RINGFOLD_WITH_CUDA = AUTO | ON | OFF) and makes two targets that define the
# same functions, of which every program links one:
#   ringfold_no_cuda  object library of the twin files no_*.cpp: a program that never asks for the CUDA libraries
#   ringfold_cuda     object library of the folders cuda/, cudnn/ and nccl/: for `ringfold-cuda` and the GPU tests
# The objects are compiled here without a GPU; cuBLAS, cuDNN and NCCL are needed only where such a program runs.
set(RINGFOLD_CUDA_SOURCES "/(cuda|cudnn|nccl)/[^/]+$")
set(RINGFOLD_NO_CUDA_SOURCES "/no_(cuda|cudnn|nccl)\\.cpp$")

set(RINGFOLD_WITH_CUDA AUTO CACHE STRING "Build ringfold-cuda: AUTO (where nvcc and headers are found), ON, OFF")
set(RINGFOLD_CUDA_MISSING "")
if(RINGFOLD_WITH_CUDA AND RINGFOLD_WITH_TORCH)
  find_program(RINGFOLD_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(RINGFOLD_NVCC)
    get_filename_component(RINGFOLD_CUDA_HOME ${RINGFOLD_NVCC} REALPATH)
    get_filename_component(RINGFOLD_CUDA_HOME ${RINGFOLD_CUDA_HOME}/../.. ABSOLUTE)
  endif()
  find_path(RINGFOLD_NCCL_INCLUDE nccl.h PATHS ${RINGFOLD_CUDA_HOME}/include)
  find_path(RINGFOLD_CUDNN_INCLUDE cudnn.h PATHS ${RINGFOLD_CUDA_HOME}/include)
  find_library(RINGFOLD_CUDNN cudnn PATHS ${RINGFOLD_CUDA_HOME}/lib64)
  foreach(part RINGFOLD_NVCC RINGFOLD_NCCL_INCLUDE RINGFOLD_CUDNN_INCLUDE RINGFOLD_CUDNN TorchWheel_CUDA)
    if(NOT ${part})
      string(APPEND RINGFOLD_CUDA_MISSING " ${part}")
    endif()
  endforeach()
else()
  set(RINGFOLD_CUDA_MISSING " (switched off)")
endif()
if(RINGFOLD_CUDA_MISSING AND RINGFOLD_WITH_CUDA STREQUAL "ON")
  message(FATAL_ERROR "Ringfold: RINGFOLD_WITH_CUDA is ON, but these were not found:${RINGFOLD_CUDA_MISSING}. "
    "They come with CUDA's toolkit (nvcc, nccl.h, cudnn.h, libcudnn.so) and the CUDA wheel of torch.")
endif()
if(RINGFOLD_CUDA_MISSING)
  set(RINGFOLD_HAS_CUDA OFF)
  message(STATUS "Ringfold: without CUDA; missing:${RINGFOLD_CUDA_MISSING}")
else()
  set(RINGFOLD_HAS_CUDA ON)
  message(STATUS "Ringfold: with CUDA from ${RINGFOLD_CUDA_HOME}")
  # wgmma and setmaxnreg exist only under the name 90a.
  set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "CUDA architectures")
  set(CMAKE_CUDA_COMPILER ${RINGFOLD_NVCC})
  enable_language(CUDA)
endif()

function(ringfold_twin_target name pattern)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ringfold/*.cpp
    ${PROJECT_SOURCE_DIR}/src/ringfold/*.cu)
  list(FILTER sources INCLUDE REGEX ${pattern})
  add_library(${name} OBJECT ${sources})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE fmt::fmt-header-only ringfold_warnings)
  ringfold_use_torch(${name})
endfunction()

function(ringfold_cuda_targets)
  ringfold_twin_target(ringfold_no_cuda ${RINGFOLD_NO_CUDA_SOURCES})
  if(NOT RINGFOLD_HAS_CUDA)
    return()
  endif()
  ringfold_twin_target(ringfold_cuda ${RINGFOLD_CUDA_SOURCES})
  target_include_directories(ringfold_cuda SYSTEM PUBLIC ${RINGFOLD_CUDA_HOME}/include ${RINGFOLD_NCCL_INCLUDE}
    ${RINGFOLD_CUDNN_INCLUDE})
  # CMake 3.25 does not know that nvcc 13 speaks C++20.
  target_compile_options(ringfold_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo>)
endfunction()

# ringfold_link_twins(TARGET [CUDA]): the objects of one of the two, and with CUDA the libraries they need.
function(ringfold_link_twins target)
  if("CUDA" IN_LIST ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:ringfold_cuda>)
    target_link_libraries(${target} PRIVATE TorchWheel::torch_cuda ${RINGFOLD_CUDNN})
  else()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:ringfold_no_cuda>)
  endif()
endfunction()
