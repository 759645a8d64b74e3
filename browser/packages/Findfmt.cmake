# fmt, from its source.
if(NOT TARGET fmt::fmt)
  add_library(weft_fmt STATIC ${WEFT_WASM_SOURCES}/fmt/src/format.cc)
  target_include_directories(weft_fmt SYSTEM PUBLIC ${WEFT_WASM_SOURCES}/fmt/include)
  target_compile_options(weft_fmt PRIVATE -w -Os)
  add_library(fmt::fmt ALIAS weft_fmt)
endif()
set(fmt_FOUND TRUE)
