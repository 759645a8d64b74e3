target_link_libraries(weft_speech PRIVATE ZLIB::ZLIB)
