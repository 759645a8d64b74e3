#PCRE2 for regular expressions of tokenizer.json, utf8proc for Unicode, simdjson because such files are large.
find_package(simdjson REQUIRED GLOBAL) find_path(WEFT_PCRE2_INCLUDE pcre2.h) find_path(WEFT_UTF8PROC_INCLUDE utf8proc.h)
    foreach (library PCRE2 UTF8PROC) if (NOT WEFT_${library} _INCLUDE)
        message(FATAL_ERROR "${library} was not found: run script/setup (Debian: libpcre2-dev, libutf8proc-dev)")
            endif() endforeach()
                target_include_directories(weft_text SYSTEM PRIVATE ${WEFT_PCRE2_INCLUDE} ${WEFT_UTF8PROC_INCLUDE})
                    target_link_libraries(weft_text PRIVATE pcre2 - 8 utf8proc simdjson::simdjson)
