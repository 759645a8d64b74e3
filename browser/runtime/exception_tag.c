// The tag of C++ exceptions. Position-independent code refers to it and leaves its definition to the program.
__asm__(
    ".tagtype __cpp_exception i32\n"
    ".globl __cpp_exception\n"
    "__cpp_exception:\n");
