# One language level, one set of warnings, one floating-point contract for every room.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(PF_CCACHE ccache)
if(PF_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PF_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${PF_CCACHE})
endif()

# No contraction: a*b+c is one rounding only where the code says fma, so that two instantiations
# of one template give the same bits (invariant 7 of the step).
add_library(pf_flags INTERFACE)
target_compile_options(pf_flags INTERFACE
  # -Wno-restrict: GCC 12 sees overlaps in std::string that are not there (GCC bug 105651).
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${PF_WERROR}>:-Werror> -Wno-restrict -ffp-contract=off -fno-math-errno>)
target_include_directories(pf_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
if(PF_THIRD_PARTY)
  target_include_directories(pf_flags SYSTEM INTERFACE ${PF_THIRD_PARTY}/include)
endif()
if(PF_SANITIZE)
  # GCC warns of uninitialised values that its own instrumentation made up (std::regex, std::variant);
  # the builds without sanitizers keep the warning.
  target_compile_options(pf_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  target_compile_options(pf_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(pf_flags INTERFACE -fsanitize=${PF_SANITIZE})
endif()
find_package(Threads REQUIRED)
target_link_libraries(pf_flags INTERFACE Threads::Threads)
