// The compiler of TypeScript and JSX (Sucrase, a script itself) as bytes of the program.
__asm__(
    ".section .rodata\n"
    ".global weft_sucrase_begin\n"
    ".global weft_sucrase_end\n"
    "weft_sucrase_begin:\n"
    ".incbin \"" WEFT_SUCRASE "\"\n"
    ".byte 0\n"
    "weft_sucrase_end:\n"
    ".previous\n");
