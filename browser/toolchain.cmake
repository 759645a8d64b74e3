# Clang for WebAssembly. The C library is Debian's wasi-libc; the C++ library is compiled here, because Debian's has no
# exceptions. Set as CMAKE_TOOLCHAIN_FILE by script/wasm.
set(CMAKE_SYSTEM_NAME WASI)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_AR llvm-ar-19)
set(CMAKE_RANLIB llvm-ranlib-19)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_EXECUTABLE_SUFFIX .wasm)

# Packages come from the sources that script/setup fetched (packages/), never from the machine that compiles.
set(CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/packages)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(WEFT_WASM_SOURCES ${CMAKE_CURRENT_LIST_DIR}/../.cache/wasm CACHE PATH "Sources that script/setup --wasm fetched")
get_filename_component(WEFT_WASM_SOURCES ${WEFT_WASM_SOURCES} REALPATH)
set(CMAKE_FIND_ROOT_PATH ${WEFT_WASM_SOURCES}/prefix)

# Conversions of floats that do not fit give the nearest integer, as on other processors, and do not trap.
set(posix "-nostdlibinc -idirafter /usr/include/wasm32-wasi -isystem ${CMAKE_CURRENT_LIST_DIR}/runtime/posix -include ${CMAKE_CURRENT_LIST_DIR}/runtime/posix/posix.h -D_WASI_EMULATED_MMAN")
set(machine "-msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext -mmutable-globals")
set(CMAKE_C_FLAGS_INIT "${machine} ${posix}")
set(CMAKE_CXX_FLAGS_INIT "${machine} -fwasm-exceptions -nostdinc++ -include ${CMAKE_CURRENT_LIST_DIR}/runtime/__config_site -isystem ${CMAKE_CURRENT_LIST_DIR}/runtime -isystem ${WEFT_WASM_SOURCES}/libcxx/include -isystem ${WEFT_WASM_SOURCES}/libcxxabi/include ${posix} -D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS")
set(CMAKE_C_FLAGS_MINSIZEREL_INIT "-Os -DNDEBUG")
