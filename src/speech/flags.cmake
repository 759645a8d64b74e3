# zlib for the ratio that tells repetitions, utf8proc for small letters.
target_include_directories(weft_speech SYSTEM PRIVATE ${WEFT_UTF8PROC_INCLUDE})
target_link_libraries(weft_speech PRIVATE ZLIB::ZLIB utf8proc)
