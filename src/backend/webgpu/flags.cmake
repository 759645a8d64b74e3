# Finds the standard webgpu.h. Without it (or with WEFT_WEBGPU=OFF) only what needs no header is built, and opening a WebGPU
# device says how to get one.
option(WEFT_WEBGPU "Build the WebGPU backend (needs webgpu.h: script/setup fetches it)" ON)
set(weft_webgpu_cache ${PROJECT_SOURCE_DIR}/.cache/webgpu)
unset(WEFT_WEBGPU_HEADER CACHE)
if(WEFT_WEBGPU)
  find_path(WEFT_WEBGPU_HEADER webgpu.h HINTS ${WEFT_WEBGPU_HEADER_DIR} ${weft_webgpu_cache}/include PATH_SUFFIXES webgpu
            NO_CMAKE_FIND_ROOT_PATH)  # a header without code, the same for all systems
endif()

if(WEFT_WEBGPU AND WEFT_WEBGPU_HEADER)
  target_include_directories(weft_backend_webgpu SYSTEM PUBLIC ${WEFT_WEBGPU_HEADER})
  target_compile_definitions(weft_backend_webgpu PUBLIC WEFT_HAS_WEBGPU=1)
  target_link_libraries(weft_backend_webgpu PUBLIC ${CMAKE_DL_LIBS})
else()
  if(WEFT_WEBGPU)
    message(WARNING "webgpu.h was not found: the WebGPU backend is left out. Run script/setup, or pass "
                    "-DWEFT_WEBGPU_HEADER_DIR=FOLDER, or silence this with -DWEFT_WEBGPU=OFF.")
  endif()
  target_compile_definitions(weft_backend_webgpu PUBLIC WEFT_HAS_WEBGPU=0)
  foreach(file library library_prints instance device staging buffer pipeline command_sequence
               measure_profile meetings tested_facts backend)
    list(FILTER sources EXCLUDE REGEX "/webgpu/${file}\\.cpp$")
  endforeach()
  set_property(TARGET weft_backend_webgpu PROPERTY SOURCES ${sources})
endif()
# One file for each place that the functions of webgpu.h come from.
get_target_property(sources weft_backend_webgpu SOURCES)
if(CMAKE_SYSTEM_NAME STREQUAL "WASI")
  list(FILTER sources EXCLUDE REGEX "/webgpu/(library|library_prints)\\.cpp$")
else()
  list(FILTER sources EXCLUDE REGEX "/webgpu/library_browser\\.cpp$")
endif()
set_property(TARGET weft_backend_webgpu PROPERTY SOURCES ${sources})
weft_describe(backend_webgpu "/webgpu/wgsl/" backend_webgpu_wgsl)
