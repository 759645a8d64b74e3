# Writes a header that names the git revision of the tree, "-dirty" with changes; "" outside a repository. The header keeps its
# time while the revision stays.
set(revision "")
find_program(git git)
if(git AND EXISTS ${tree}/.git)
  execute_process(COMMAND ${git} -C ${tree} describe --always --dirty --abbrev=10 OUTPUT_VARIABLE revision
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#pragma once\n#define WEFT_REVISION \"${revision}\"\n")
set(before "")
if(EXISTS ${header})
  file(READ ${header} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${header} "${text}")
endif()
