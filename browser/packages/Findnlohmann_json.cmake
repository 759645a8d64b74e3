# nlohmann_json has headers only, so those of the machine serve: script/setup --wasm links them into the fetched sources.
if(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE ${WEFT_WASM_SOURCES}/prefix/include)
endif()
set(nlohmann_json_FOUND TRUE)
