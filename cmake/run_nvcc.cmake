# cmake -D report=FILE -P run_nvcc.cmake -- COMMAND...
#   Runs the compiler, keeps what the assembler says of registers and shared memory in FILE and
#   shows the rest only when it fails.
set(command)
set(behind OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(behind)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(behind ON)
  endif()
endforeach()
execute_process(COMMAND ${command} ERROR_VARIABLE messages RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${messages}")
endif()
file(WRITE ${report} "${messages}")
