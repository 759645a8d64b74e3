# QuickJS-NG, which script/setup fetches, as a library of its own: it takes longer to compile than this folder.
set(WEFT_QUICKJS_DIR "${PROJECT_SOURCE_DIR}/.cache/script/quickjs" CACHE PATH "Folder with the sources of QuickJS-NG")
set(WEFT_SUCRASE "${PROJECT_SOURCE_DIR}/.cache/script/sucrase.js" CACHE FILEPATH "Sucrase, joined by script/setup")
if(NOT EXISTS ${WEFT_QUICKJS_DIR}/quickjs.c OR NOT EXISTS ${WEFT_SUCRASE})
  message(FATAL_ERROR "QuickJS-NG or Sucrase was not found: run script/setup")
endif()
add_library(weft_quickjs STATIC ${WEFT_QUICKJS_DIR}/quickjs.c ${WEFT_QUICKJS_DIR}/libregexp.c
            ${WEFT_QUICKJS_DIR}/libunicode.c ${WEFT_QUICKJS_DIR}/dtoa.c ${PROJECT_SOURCE_DIR}/src/script/embedded.c)
set_target_properties(weft_quickjs PROPERTIES UNITY_BUILD OFF C_STANDARD 11)
if(WEFT_CCACHE)
  set_target_properties(weft_quickjs PROPERTIES C_COMPILER_LAUNCHER ${WEFT_CCACHE})
endif()
target_compile_options(weft_quickjs PRIVATE -w -funsigned-char $<$<CONFIG:Release>:-O2>)
target_compile_definitions(weft_quickjs PRIVATE _GNU_SOURCE)
if(WEFT_SANITIZE)
  target_compile_options(weft_quickjs PRIVATE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
endif()
target_include_directories(weft_quickjs SYSTEM INTERFACE ${WEFT_QUICKJS_DIR})
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/script/embedded.c PROPERTIES
                            OBJECT_DEPENDS "${WEFT_SUCRASE};${PROJECT_SOURCE_DIR}/src/script/web.js;${PROJECT_SOURCE_DIR}/src/script/url.js"
                            COMPILE_DEFINITIONS "WEFT_SUCRASE=\"${WEFT_SUCRASE}\";WEFT_SCRIPTS=\"${PROJECT_SOURCE_DIR}/src/script\"")
target_link_libraries(weft_quickjs PRIVATE Threads::Threads)
target_link_libraries(weft_script PUBLIC weft_quickjs)
set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS quickjs)
