# Compiler-wide conveniences: ccache and a faster linker when they are there, one interface target for warnings.
find_program(RINGFOLD_CCACHE ccache)
if(RINGFOLD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness lets ccache work together with the precompiled torch header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${RINGFOLD_CCACHE})
  message(STATUS "Ringfold: compiling through ${RINGFOLD_CCACHE}")
endif()
find_program(RINGFOLD_MOLD mold)
if(RINGFOLD_MOLD)
  add_link_options(-fuse-ld=mold)
  message(STATUS "Ringfold: linking with ${RINGFOLD_MOLD}")
endif()

add_library(ringfold_warnings INTERFACE)
target_compile_options(ringfold_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${RINGFOLD_WERROR}>:-Werror>>)

add_library(ringfold_sanitize INTERFACE)
if(RINGFOLD_SANITIZE)
  target_compile_options(ringfold_sanitize INTERFACE -fsanitize=${RINGFOLD_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(ringfold_sanitize INTERFACE -fsanitize=${RINGFOLD_SANITIZE})
endif()
if(RINGFOLD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "RINGFOLD_FUZZ needs clang and its libFuzzer: cmake --preset fuzz (Debian: clang)")
  endif()
  target_compile_options(ringfold_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()
