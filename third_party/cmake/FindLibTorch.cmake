# Finds LibTorch by its files, whatever it came from (PyPI wheel, libtorch archive, own build), without its own
# CMake config: that one demands a CUDA toolkit even for targets that build no CUDA code.
#
# Searched: CMAKE_PREFIX_PATH, then the project's .venv. Targets:
#   LibTorch::cpu   torch_cpu and c10: everything but CUDA kernels; starts in half the time and a quarter of the
#                   memory of the whole, so only the CUDA plugin links more
#   LibTorch::cuda  torch_cuda, c10_cuda, the CUDA runtime and NCCL; exists if TRAINER_CUDA_FOUND
#   fmt::fmt        the fmt headers inside LibTorch, alone on their include path
file(GLOB _venv_torch LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
find_path(LIBTORCH_INCLUDE_DIR torch/csrc/distributed/c10d/ProcessGroup.hpp
  HINTS ${_venv_torch} PATH_SUFFIXES include)
find_library(LIBTORCH_CPU_LIBRARY torch_cpu HINTS ${_venv_torch} PATH_SUFFIXES lib)
find_library(LIBTORCH_C10_LIBRARY c10 HINTS ${_venv_torch} PATH_SUFFIXES lib)
if(LIBTORCH_INCLUDE_DIR)
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS "${LIBTORCH_INCLUDE_DIR}/torch/headeronly/version.h" _line REGEX "define TORCH_VERSION_${_part} ")
    string(REGEX REPLACE ".* " "" _number "${_line}")
    list(APPEND _numbers ${_number})
  endforeach()
  list(JOIN _numbers "." LibTorch_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch VERSION_VAR LibTorch_VERSION
  REQUIRED_VARS LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY LIBTORCH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or give -DCMAKE_PREFIX_PATH=<libtorch>")

get_filename_component(_torch_lib_dir "${LIBTORCH_CPU_LIBRARY}" DIRECTORY)
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  # The OpenMP run time that LibTorch brings along: a second one would have threads of its own. Where it brings none it
  # uses the compiler's.
  file(GLOB LIBTORCH_GOMP_LIBRARY "${_torch_lib_dir}/libgomp*.so*")
  if(LIBTORCH_GOMP_LIBRARY)
    list(GET LIBTORCH_GOMP_LIBRARY 0 LIBTORCH_GOMP_LIBRARY)
  else()
    set(LIBTORCH_GOMP_LIBRARY gomp)
  endif()
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    "${LIBTORCH_INCLUDE_DIR}" "${LIBTORCH_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_definitions(LibTorch::cpu INTERFACE USE_C10D_GLOO FMT_HEADER_ONLY=1)
  target_link_libraries(LibTorch::cpu INTERFACE "${LIBTORCH_CPU_LIBRARY}" "${LIBTORCH_C10_LIBRARY}")

  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt_include")
  file(CREATE_LINK "${LIBTORCH_INCLUDE_DIR}/fmt" "${PROJECT_BINARY_DIR}/fmt_include/fmt" SYMBOLIC)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_include_directories(fmt::fmt SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/fmt_include")
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
endif()

set(TRAINER_CUDA_FOUND OFF)
if(LibTorch_FOUND AND NOT TRAINER_CUDA STREQUAL "OFF")
  # Of the same LibTorch: a CPU-only one has none.
  find_library(LIBTORCH_CUDA_LIBRARY torch_cuda PATHS "${_torch_lib_dir}" NO_DEFAULT_PATH)
  find_library(LIBTORCH_C10_CUDA_LIBRARY c10_cuda PATHS "${_torch_lib_dir}" NO_DEFAULT_PATH)
  get_filename_component(_site_packages "${LIBTORCH_INCLUDE_DIR}/../.." ABSOLUTE)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${_site_packages}/nvidia/nccl/include")
  # The pip toolkit (setup.sh installs it where no other is) is found when no nvcc is on PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS "${_site_packages}/nvidia/cu13/bin/nvcc")
    find_program(_nvcc_on_path nvcc)
    if(NOT _nvcc_on_path)
      set(CMAKE_CUDA_COMPILER "${_site_packages}/nvidia/cu13/bin/nvcc")
      set(CUDAToolkit_ROOT "${_site_packages}/nvidia/cu13")
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND LIBTORCH_CUDA_LIBRARY AND LIBTORCH_C10_CUDA_LIBRARY AND NCCL_INCLUDE_DIR)
    set(TRAINER_CUDA_FOUND ON)
    find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${_site_packages}/nvidia/nccl/lib")
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    target_include_directories(LibTorch::cuda SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu "${LIBTORCH_CUDA_LIBRARY}"
      "${LIBTORCH_C10_CUDA_LIBRARY}" "${NCCL_LIBRARY}" CUDA::cudart) # of find_package(CUDAToolkit)
  elseif(TRAINER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRAINER_CUDA=ON, but not all of it was found: nvcc '${CMAKE_CUDA_COMPILER}', torch_cuda "
      "'${LIBTORCH_CUDA_LIBRARY}', nccl.h '${NCCL_INCLUDE_DIR}'; run scripts/setup.sh, or set CUDACXX and "
      "CMAKE_PREFIX_PATH, or TRAINER_CUDA=OFF")
  endif()
endif()
