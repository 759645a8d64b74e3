# Kernels of one instruction set each get its flags; everything else runs on any processor of the architecture.
# The rest is hot too: what one file inlines shall not depend on its neighbours.
set_property(TARGET weft_backend_cpu PROPERTY UNITY_BUILD OFF)
target_link_libraries(weft_backend_cpu PUBLIC weft_base)
# Machine code of chains is put together by Xbyak, which has headers only.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  find_path(WEFT_XBYAK_INCLUDE xbyak/xbyak.h)
  if(NOT WEFT_XBYAK_INCLUDE)
    message(FATAL_ERROR "Xbyak was not found: run script/setup (Debian: libxbyak-dev)")
  endif()
  target_include_directories(weft_backend_cpu SYSTEM PRIVATE ${WEFT_XBYAK_INCLUDE})
endif()
set(cpu_folder ${PROJECT_SOURCE_DIR}/src/backend/cpu)
# Loops over memory, which only -O3 turns into vectors.
set_property(SOURCE ${cpu_folder}/loop/run.cpp ${cpu_folder}/scan.cpp ${cpu_folder}/scatter.cpp
             ${cpu_folder}/scatter_rows.cpp ${cpu_folder}/sort.cpp APPEND PROPERTY COMPILE_OPTIONS -O3)
set(sums_in_registers)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(sums_in_registers -fno-schedule-insns)  # loads moved ahead of sums that fill the registers would push sums into memory
endif()
set(gemm_flags ${sums_in_registers} -O3 -fno-ivopts)  # ivopts would turn the few shared strides of a tile's rows into a pointer each
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_property(SOURCE ${cpu_folder}/gemm_avx2.cpp ${cpu_folder}/integer_avx2.cpp APPEND PROPERTY COMPILE_OPTIONS
               ${gemm_flags} -mavx2 -mfma)
  set(gemm_avx512_flags ${gemm_flags} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma
      -Wno-uninitialized -Wno-maybe-uninitialized)  # GCC 12 warns inside its own intrinsics
  set_property(SOURCE ${cpu_folder}/gemm_avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${gemm_avx512_flags})
  set_property(SOURCE ${cpu_folder}/gemm_avx512_bf16.cpp ${cpu_folder}/gemm_amx.cpp APPEND PROPERTY COMPILE_OPTIONS
               ${gemm_avx512_flags} -mavx512bf16)
  set_property(SOURCE ${cpu_folder}/integer_avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${gemm_avx512_flags}
               -mavx512vnni)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set_property(SOURCE ${cpu_folder}/integer_neon_dot.cpp APPEND PROPERTY COMPILE_OPTIONS ${gemm_flags} -march=armv8.2-a+dotprod)
  set_property(SOURCE ${cpu_folder}/gemm_neon_bf16.cpp APPEND PROPERTY COMPILE_OPTIONS ${gemm_flags} -march=armv8.2-a+dotprod+bf16)
endif()
set_property(SOURCE ${cpu_folder}/gemm_baseline.cpp ${cpu_folder}/integer_baseline.cpp APPEND PROPERTY COMPILE_OPTIONS
             ${gemm_flags})
set_property(SOURCE ${cpu_folder}/integer_gemm.cpp APPEND PROPERTY COMPILE_OPTIONS -O3)
# Functions begin at cache lines, so that the speed of a loop does not depend on what the linker puts before it.
set(tile_flags -O3 -falign-functions=64 -fno-math-errno -fno-trapping-math -Wno-psabi -Wno-uninitialized
    -Wno-maybe-uninitialized)
set(baseline_flags)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(baseline_flags -O1)  # takes 15 seconds less to compile, and a processor with AVX2 does not run these files
endif()
set_property(SOURCE ${cpu_folder}/loop/tile_baseline.cpp APPEND PROPERTY COMPILE_OPTIONS ${tile_flags} ${baseline_flags})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_property(SOURCE ${cpu_folder}/loop/tile_avx2.cpp APPEND PROPERTY COMPILE_OPTIONS ${tile_flags} -mavx2 -mfma -mf16c)
  set_property(SOURCE ${cpu_folder}/loop/tile_avx512.cpp APPEND PROPERTY COMPILE_OPTIONS
               ${tile_flags} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
endif()
set(quant_flags ${sums_in_registers} -O3 -fno-math-errno -Wno-psabi -Wno-uninitialized -Wno-maybe-uninitialized)
set_property(SOURCE ${cpu_folder}/quant/baseline.cpp APPEND PROPERTY COMPILE_OPTIONS ${quant_flags} ${baseline_flags})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(quant_avx2_flags ${quant_flags} -mavx2 -mfma -mf16c)
  if(WEFT_SANITIZE AND NOT WEFT_UNSANITIZED)  # GCC would take an hour; baseline.cpp is the same code, and callers are checked
    list(APPEND quant_avx2_flags -fno-sanitize=all)
  endif()
  set(quant_avx512_flags ${quant_avx2_flags} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512)
  set_property(SOURCE ${cpu_folder}/quant/avx2.cpp APPEND PROPERTY COMPILE_OPTIONS ${quant_avx2_flags})
  set_property(SOURCE ${cpu_folder}/quant/avx2_vnni.cpp APPEND PROPERTY COMPILE_OPTIONS ${quant_avx2_flags} -mavxvnni)
  set_property(SOURCE ${cpu_folder}/quant/avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${quant_avx512_flags})
  set_property(SOURCE ${cpu_folder}/quant/avx512_vnni.cpp ${cpu_folder}/quant/amx.cpp APPEND PROPERTY COMPILE_OPTIONS
               ${quant_avx512_flags} -mavx512vnni)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set_property(SOURCE ${cpu_folder}/quant/neon_dot.cpp APPEND PROPERTY COMPILE_OPTIONS ${quant_flags} -march=armv8.2-a+dotprod)
endif()
