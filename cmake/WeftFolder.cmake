# weft_folder(NAME DEPS...): one static library a folder of src/, weft_NAME, from every .cpp in it and in the folders inside
# it. A folder links only the folders named here, so that an include that runs against the order of folders does not link
# (script/lint says it sooner).
# Flags for single files stand in the folder's own flags.cmake, when there is one.
add_library(weft_flags INTERFACE)
define_property(TARGET PROPERTY WEFT_PLAIN_CODE INITIALIZE_FROM_VARIABLE WEFT_PLAIN_CODE
                BRIEF_DOCS "Whether the target's own code is compiled without optimisation")
# Messages name source files from the project's root on, wherever it was built.
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                       -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects its garbage from 1 GB on, not from 128 MB: a tenth less time for a quarter more memory.
  target_compile_options(weft_flags INTERFACE --param=ggc-min-heapsize=1000000)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(weft_flags INTERFACE -Wno-restrict)  # false alarms on "literal" + std::string (GCC bug 105651)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # `a | b ? c : d` with vectors is meant as it is read, and GCC has warnings that Clang does not know.
  target_compile_options(weft_flags INTERFACE -Wno-bitwise-conditional-parentheses -Wno-unknown-warning-option)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # As on x86-64, a plain char is signed, and a product is rounded before it is added, unless a kernel asks for a fused one.
  target_compile_options(weft_flags INTERFACE -fsigned-char -ffp-contract=off)
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(weft_flags INTERFACE LINKER:-z,relro LINKER:-z,now)  # what is imported cannot be overwritten
endif()
# With WEFT_SANITIZE the folders of WEFT_SANITIZE_FOLDERS, or all of them, and what is not a folder, are sanitized.
define_property(TARGET PROPERTY WEFT_UNSANITIZED INITIALIZE_FROM_VARIABLE WEFT_UNSANITIZED
                BRIEF_DOCS "Whether a sanitized build leaves the target as it is")
set(unsanitized 1)
if(WEFT_SANITIZE)
  set(unsanitized $<BOOL:$<TARGET_PROPERTY:WEFT_UNSANITIZED>>)
endif()
set(sanitized $<NOT:${unsanitized}>)
# Code without optimisation.
set(plain $<OR:$<CONFIG:Debug>,$<BOOL:$<TARGET_PROPERTY:WEFT_PLAIN_CODE>>>)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")  # readers of hostile files; a slip ends the program at once
  # FORTIFY needs an optimising compiler.
  target_compile_options(weft_flags INTERFACE $<${unsanitized}:-fstack-protector-strong> $<${unsanitized}:-U_FORTIFY_SOURCE>
                         $<$<AND:${unsanitized},$<NOT:${plain}>>:-D_FORTIFY_SOURCE=2>)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_flags INTERFACE "$<${sanitized}:-fsanitize=${WEFT_SANITIZE}>" $<${sanitized}:-fno-sanitize-recover=all>
                         $<${sanitized}:-fno-omit-frame-pointer> $<${sanitized}:-g1>
                         $<$<AND:${sanitized},$<NOT:${plain}>>:-O1>)
  target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

set_property(GLOBAL PROPERTY WEFT_FOLDERS "")
function(weft_folder folder)
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${folder}/*/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${folder}/*/*/*.cpp)
  if(NOT sources OR (WEFT_ONLY_FOLDERS AND NOT folder IN_LIST WEFT_ONLY_FOLDERS))
    return()
  endif()
  if(WEFT_SANITIZE_FOLDERS AND NOT folder IN_LIST WEFT_SANITIZE_FOLDERS)
    set(WEFT_UNSANITIZED ON)  # of all targets that this function makes
  endif()
  add_library(weft_${name} STATIC ${sources})
  target_include_directories(weft_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                             ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(weft_${name} PUBLIC fmt::fmt nlohmann_json::nlohmann_json Threads::Threads PRIVATE weft_flags)
  foreach(dependency ${ARGN})
    if(TARGET weft_${dependency})
      target_link_libraries(weft_${name} PUBLIC weft_${dependency})
    endif()
  endforeach()
  if(TARGET weft_elementwise_header)  # made by ops; every later folder may include it
    add_dependencies(weft_${name} weft_elementwise_header)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/${folder}/flags.cmake)
    include(${PROJECT_SOURCE_DIR}/src/${folder}/flags.cmake)
  endif()
  set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS ${name})
endfunction()

# weft_describe(FOLDER EXPRESSION PART): files of the folder whose paths match only describe work: rows, texts of shaders.
# They are compiled with -Og, which takes a quarter less time than -O1 for code that runs once, as objects of the target weft_PART
# that the folder's library holds.
macro(weft_describe folder expression part)
  get_target_property(all_sources weft_${folder} SOURCES)
  set(part_sources ${all_sources})
  list(FILTER part_sources INCLUDE REGEX "${expression}")
  list(FILTER all_sources EXCLUDE REGEX "${expression}")
  add_library(weft_${part} OBJECT ${part_sources})
  set_property(TARGET weft_${folder} PROPERTY SOURCES ${all_sources} $<TARGET_OBJECTS:weft_${part}>)
  target_include_directories(weft_${part} PRIVATE $<TARGET_PROPERTY:weft_${folder},INCLUDE_DIRECTORIES>)
  target_compile_definitions(weft_${part} PRIVATE $<TARGET_PROPERTY:weft_${folder},COMPILE_DEFINITIONS>)
  target_link_libraries(weft_${part} PRIVATE weft_flags)
  target_compile_options(weft_${part} PRIVATE $<$<CONFIG:Release>:-Og>)
  add_dependencies(weft_${part} weft_elementwise_header)
  set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS ${part})  # the library in one file takes its objects too
endmacro()
