# libbraze_clang.so: clang, LLVM's X86 back end and JITLink in one static shared object with hidden symbols.
# Hidden, because LLVM's options are global to a library: another LLVM in the process must not see ours.
# Skipped with a message where clang's development files are missing; braze then uses a system compiler.
find_path(LLVM19_ROOT NAMES bin/llvm-config HINTS /usr/lib/llvm-19 NO_DEFAULT_PATH)
if(NOT LLVM19_ROOT OR NOT EXISTS ${LLVM19_ROOT}/lib/libclangFrontend.a)
  message(STATUS "clang 19's development files not found: libbraze_clang.so is not built")
  return()
endif()

execute_process(COMMAND ${LLVM19_ROOT}/bin/llvm-config --link-static --libs
    passes orcjit jitlink x86 irreader frontendopenmp frontendhlsl frontenddriver frontendoffloading
    coverage lto windowsdriver option
  OUTPUT_VARIABLE llvm_libs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(llvm_libs)
list(FILTER llvm_libs EXCLUDE REGEX "Polly")
set(clang_libs)
foreach(part Frontend CodeGen Serialization Parse Sema APINotes Analysis Edit Support ASTMatchers Driver AST Lex Basic)
  list(APPEND clang_libs -lclang${part})
endforeach()

file(GLOB clang_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/braze/jit/clang/*.cpp)
if(NOT clang_sources)
  return()
endif()
find_library(zstd_library NAMES zstd libzstd.so.1)   # LLVM's; the run-time package alone is enough
if(NOT zstd_library)
  message(STATUS "libzstd, which LLVM needs, was not found: libbraze_clang.so is not built")
  return()
endif()
add_library(braze_clang MODULE ${clang_sources})
set_target_properties(braze_clang PROPERTIES PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/braze)
target_include_directories(braze_clang PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(braze_clang SYSTEM PRIVATE ${LLVM19_ROOT}/include)
target_compile_definitions(braze_clang PRIVATE _GNU_SOURCE __STDC_CONSTANT_MACROS __STDC_LIMIT_MACROS)
target_compile_options(braze_clang PRIVATE -fno-rtti -fno-exceptions)
target_link_directories(braze_clang PRIVATE ${LLVM19_ROOT}/lib)
target_link_libraries(braze_clang PRIVATE braze_warnings
  -Wl,--start-group ${clang_libs} -Wl,--end-group ${llvm_libs}
  z ${zstd_library} pthread dl rt m)
target_link_options(braze_clang PRIVATE
  -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,defs -Wl,--gc-sections -Wl,-s -static-libstdc++)
