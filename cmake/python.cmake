# Python headers and, with BRAZE_TORCH, torch's headers and libraries, all from Python_EXECUTABLE.
if(NOT Python_EXECUTABLE AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.Embed)

if(BRAZE_TORCH)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  add_library(braze_torch INTERFACE)
  target_include_directories(braze_torch SYSTEM INTERFACE ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_definitions(braze_torch INTERFACE AT_PER_OPERATOR_HEADERS AT_PARALLEL_OPENMP=1)
  target_link_directories(braze_torch INTERFACE ${TORCH_DIR}/lib)
  target_link_libraries(braze_torch INTERFACE torch torch_cpu torch_python c10)
  target_link_options(braze_torch INTERFACE -Wl,-rpath,${TORCH_DIR}/lib)
  # torch's own OpenMP runtime, for programs that are not loaded into a Python with torch (unit tests).
  file(GLOB TORCH_OPENMP ${TORCH_DIR}/lib/libgomp*.so*)
endif()
