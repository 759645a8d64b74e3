# Rows of the op table and the functions beside them only describe work, and -O2 takes half as long again to compile them.
get_target_property(graph_sources weft_graph SOURCES)
set(row_sources ${graph_sources})
list(FILTER row_sources INCLUDE REGEX "/graph/ops/")
list(FILTER graph_sources EXCLUDE REGEX "/graph/ops/")
add_library(weft_graph_rows OBJECT ${row_sources})
set_property(TARGET weft_graph PROPERTY SOURCES ${graph_sources} $<TARGET_OBJECTS:weft_graph_rows>)
target_link_libraries(weft_graph_rows PRIVATE weft_ops weft_flags)
target_compile_options(weft_graph_rows PRIVATE $<$<CONFIG:Release>:-O1>)
add_dependencies(weft_graph_rows weft_elementwise_header)
set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS graph_rows)  # the library in one file takes its objects too
