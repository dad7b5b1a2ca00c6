# ccache and mold where they are installed; warnings as errors; sanitizers on request.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=mold)
elseif(MOLD AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1)
  add_link_options(-fuse-ld=mold)
endif()

add_library(braze_warnings INTERFACE)
target_compile_options(braze_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror
  -Wno-missing-field-initializers    # members left out have their default
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)   # false alarms of GCC 12 in std::optional
if(BRAZE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
