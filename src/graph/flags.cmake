# It makes values, which runtime does: programs that only build graphs link neither.
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/graph/random.cpp PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
