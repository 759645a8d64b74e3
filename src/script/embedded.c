// Scripts as bytes of the program: the compiler of TypeScript and JSX (Sucrase), and the globals of the web.
#define EMBED(name, file)        \
  __asm__(                       \
      ".section .rodata\n"       \
      ".global weft_" #name "_begin\n" \
      ".global weft_" #name "_end\n"   \
      "weft_" #name "_begin:\n" \
      ".incbin \"" file "\"\n"  \
      ".byte 0\n"               \
      "weft_" #name "_end:\n"   \
      ".previous\n")

EMBED(sucrase, WEFT_SUCRASE);
EMBED(web, WEFT_SCRIPTS "/web.js");
EMBED(url, WEFT_SCRIPTS "/url.js");
