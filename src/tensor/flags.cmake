# What a block of a file stands for is defined to the last bit, with products rounded before they are added.
target_compile_options(weft_tensor PRIVATE -ffp-contract=off)
