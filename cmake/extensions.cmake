# The Python extensions. They and the Python files meet in <build>/python/braze, which can be put on PYTHONPATH.
file(GLOB python_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/python ${CMAKE_SOURCE_DIR}/python/braze/*)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/python/braze)
foreach(file ${python_files})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python/${file} ${CMAKE_BINARY_DIR}/python/${file} SYMBOLIC)
endforeach()

function(braze_extension name)
  cmake_parse_arguments(arg "" "OUTPUT" "SOURCES;LINK" ${ARGN})
  Python_add_library(${name} MODULE WITH_SOABI ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE braze_warnings ${arg_LINK})
  # Before torch's libraries: libtorch 2.11 exports parts of an older std::filesystem, which don't work here.
  target_link_options(${name} PRIVATE LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT})
endfunction()

file(GLOB module_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/braze/module/*.cpp)
if(BRAZE_TORCH AND module_sources)
  braze_extension(_braze SOURCES ${module_sources} OUTPUT ${CMAKE_BINARY_DIR}/python/braze
    LINK braze_trace braze_runtime braze_decompose braze_rewrite braze_partition)
  install(TARGETS _braze LIBRARY DESTINATION braze)
  install(DIRECTORY python/braze/ DESTINATION braze PATTERN "__pycache__" EXCLUDE)
  if(TARGET braze_clang)
    install(TARGETS braze_clang LIBRARY DESTINATION braze)
  endif()
endif()

# torch.compile(backend="braze") finds the backend among the entry points in the metadata of what is installed. A wheel
# has its own from pyproject.toml.
if(NOT SKBUILD)
  set(info ${CMAKE_BINARY_DIR}/python/braze-0.1.0.dist-info)
  file(CONFIGURE OUTPUT ${info}/METADATA CONTENT "Metadata-Version: 2.1\nName: braze\nVersion: 0.1.0\n")
  file(CONFIGURE OUTPUT ${info}/entry_points.txt
    CONTENT "[torch_dynamo_backends]\nbraze = braze._backends:dynamo_backend\n")
  install(DIRECTORY ${info} DESTINATION .)
endif()

# _trace_test: the tracer without capture and compiler, for test/trace.
file(GLOB trace_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/trace_test/*.cpp)
if(BRAZE_TORCH AND BRAZE_TESTS AND trace_test_sources)
  braze_extension(_trace_test SOURCES ${trace_test_sources} OUTPUT ${CMAKE_BINARY_DIR}/test LINK braze_trace braze_runtime)
endif()

# _capture_test: trace_call with a tensor domain of its own, for test/python/test_capture_*.py. Needs no torch headers.
file(GLOB capture_test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/capture_test/*.cpp)
if(BRAZE_TESTS AND capture_test_sources)
  braze_extension(_capture_test SOURCES ${capture_test_sources} OUTPUT ${CMAKE_BINARY_DIR}/test LINK braze_capture)
endif()
