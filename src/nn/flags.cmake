# Vectors of f64, with the same bits on every machine: no fused multiply-adds.
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/nn/draw_elements.cpp APPEND PROPERTY COMPILE_OPTIONS
             -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/nn/draw_elements.cpp PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
