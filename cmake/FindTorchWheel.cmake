# Finds torch as a PyPI wheel carries it: headers and shared libraries, no CMake packages, no CUDA toolkit.
# Input: RINGFOLD_TORCH_ROOT (the wheel's torch folder) or the private environment .venv that scripts/setup.sh makes.
# Output: TorchWheel::torch_cpu (libtorch_cpu + libc10), TorchWheel::torch_cuda where the wheel has libtorch_cuda, and
# TorchWheel_ROOT.
if(RINGFOLD_TORCH_ROOT)
  set(TorchWheel_ROOT ${RINGFOLD_TORCH_ROOT})
else()
  file(GLOB TorchWheel_candidates ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(GET TorchWheel_candidates 0 TorchWheel_ROOT)
endif()
find_path(TorchWheel_INCLUDE ATen/ATen.h PATHS ${TorchWheel_ROOT}/include NO_DEFAULT_PATH NO_CACHE)
find_library(TorchWheel_CPU torch_cpu PATHS ${TorchWheel_ROOT}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TorchWheel_C10 c10 PATHS ${TorchWheel_ROOT}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TorchWheel_CUDA torch_cuda PATHS ${TorchWheel_ROOT}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TorchWheel_C10_CUDA c10_cuda PATHS ${TorchWheel_ROOT}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TorchWheel_CUDART NAMES libcudart.so.13 libcudart.so.12
  PATHS ${TorchWheel_ROOT}/../nvidia/cu13/lib ${TorchWheel_ROOT}/../nvidia/cuda_runtime/lib NO_DEFAULT_PATH NO_CACHE)
find_path(TorchWheel_GLOO gloo/config.h NO_CACHE)
set(TorchWheel_HINT "run scripts/setup.sh, or give -DRINGFOLD_TORCH_ROOT=<site-packages>/torch")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TorchWheel_CPU TorchWheel_C10 TorchWheel_INCLUDE TorchWheel_GLOO
  REASON_FAILURE_MESSAGE "${TorchWheel_HINT} (gloo's headers: Debian package libgloo-dev)")
if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch_cpu)
  # The CUDA wheel's libtorch_cpu needs libcudart and libcupti, which lie in sibling folders of the wheel.
  file(GLOB TorchWheel_NVIDIA ${TorchWheel_ROOT}/../nvidia/*/lib)
  add_library(TorchWheel::c10 SHARED IMPORTED)
  set_target_properties(TorchWheel::c10 PROPERTIES IMPORTED_LOCATION ${TorchWheel_C10})
  add_library(TorchWheel::torch_cpu SHARED IMPORTED)
  set_target_properties(TorchWheel::torch_cpu PROPERTIES
    IMPORTED_LOCATION ${TorchWheel_CPU}
    INTERFACE_INCLUDE_DIRECTORIES
      "${TorchWheel_ROOT}/include;${TorchWheel_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
    INTERFACE_LINK_LIBRARIES TorchWheel::c10)
  # allow-shlib-undefined: libtorch_cpu's own CUDA needs are resolved by its run path, not by our link.
  target_link_options(TorchWheel::torch_cpu INTERFACE -Wl,--allow-shlib-undefined)
  set(CMAKE_BUILD_RPATH ${TorchWheel_ROOT}/lib ${TorchWheel_NVIDIA})
  set(CMAKE_INSTALL_RPATH ${TorchWheel_ROOT}/lib ${TorchWheel_NVIDIA})
  if(TorchWheel_CUDA)
    # Linked whole and always: its operators register themselves when it is loaded. cuBLAS, cuDNN and NCCL may be absent
    # here; the loader wants them where the program runs.
    foreach(name CUDA C10_CUDA CUDART)
      add_library(TorchWheel::${name} SHARED IMPORTED)
      set_target_properties(TorchWheel::${name} PROPERTIES IMPORTED_LOCATION ${TorchWheel_${name}})
    endforeach()
    add_library(TorchWheel::torch_cuda INTERFACE IMPORTED)
    target_link_libraries(TorchWheel::torch_cuda INTERFACE -Wl,--push-state,--no-as-needed TorchWheel::CUDA
      TorchWheel::C10_CUDA TorchWheel::CUDART -Wl,--pop-state TorchWheel::torch_cpu)
  endif()
endif()
