# One file for each system.
set(other_system wasi)
if(CMAKE_SYSTEM_NAME STREQUAL "WASI")
  set(other_system linux)
endif()
list(FILTER sources EXCLUDE REGEX "/processors_${other_system}\\.cpp$")
set_property(TARGET weft_base PROPERTY SOURCES ${sources})
