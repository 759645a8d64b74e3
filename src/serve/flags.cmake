# Boost.Beast, which is headers only.
find_path(WEFT_BEAST_INCLUDE boost/beast.hpp)
if(NOT WEFT_BEAST_INCLUDE)
  message(FATAL_ERROR "Boost.Beast was not found: run script/setup (Debian: libboost1.81-dev)")
endif()
target_include_directories(weft_serve SYSTEM PRIVATE ${WEFT_BEAST_INCLUDE})
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/serve/http.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                            COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")  # it waits for clients, and its headers are large
