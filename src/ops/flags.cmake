# weft/elementwise.hpp and weft/in_place.hpp are written from the op table by a program that links it; folders that come later include it.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)  # the program cannot run here, so the header comes from a native build
  add_custom_target(weft_elementwise_header)
  target_include_directories(weft_ops PUBLIC ${WEFT_NATIVE_BUILD}/generated)
  return()
endif()
add_executable(generate_elementwise ${PROJECT_SOURCE_DIR}/tools/generate_elementwise.cpp)
target_link_libraries(generate_elementwise PRIVATE weft_ops weft_flags)
set(generated_header ${PROJECT_BINARY_DIR}/generated/weft/elementwise.hpp)
set(generated_in_place ${PROJECT_BINARY_DIR}/generated/weft/in_place.hpp)
set(generated_table ${PROJECT_BINARY_DIR}/generated/ops.md)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/weft)
add_custom_command(OUTPUT ${generated_header} ${generated_in_place} ${generated_table}
                   COMMAND generate_elementwise ${generated_header} ${generated_in_place} ${generated_table}
                   DEPENDS generate_elementwise
                   COMMENT "Writing weft/elementwise.hpp and weft/in_place.hpp" VERBATIM)
add_custom_target(weft_elementwise_header DEPENDS ${generated_header} ${generated_in_place} ${generated_table})
install(FILES ${generated_header} ${generated_in_place} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
install(FILES ${generated_table} DESTINATION ${CMAKE_INSTALL_DOCDIR})
