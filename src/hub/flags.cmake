# Models are fetched with libcurl, of which only the header is needed here: the library is loaded when a model is fetched. Without
# the header, and in a browser, models that are here are found, and a fetch is an error.
option(WEFT_CURL "Fetch models with libcurl" ON)
if(WEFT_CURL AND NOT CMAKE_SYSTEM_NAME STREQUAL "WASI")
  find_path(WEFT_CURL_INCLUDE curl/curl.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE})
  if(WEFT_CURL_INCLUDE)
    target_include_directories(weft_hub SYSTEM PRIVATE ${WEFT_CURL_INCLUDE})
    target_compile_definitions(weft_hub PRIVATE WEFT_HAS_CURL)
    target_link_libraries(weft_hub PUBLIC ${CMAKE_DL_LIBS})
  else()
    message(STATUS "libcurl's header was not found, so models cannot be fetched: run script/setup (Debian: libcurl4-openssl-dev)")
  endif()
endif()
target_compile_definitions(weft_hub PRIVATE WEFT_VERSION="${PROJECT_VERSION}")
