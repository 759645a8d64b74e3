# PCRE2 for regular expressions.
find_path(WEFT_PCRE2_INCLUDE pcre2.h)
if(NOT WEFT_PCRE2_INCLUDE)
  message(FATAL_ERROR "PCRE2 was not found: run script/setup (Debian: libpcre2-dev)")
endif()
target_include_directories(weft_schema SYSTEM PRIVATE ${WEFT_PCRE2_INCLUDE})
target_link_libraries(weft_schema PRIVATE pcre2-8)
