target_link_libraries(weft_io PRIVATE ZLIB::ZLIB)
# What a block of a file stands for is defined to the last bit, with products rounded before they are added.
target_compile_options(weft_io PRIVATE -ffp-contract=off)
