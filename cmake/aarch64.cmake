# GCC for aarch64 on another machine, with the libraries that script/setup --cross unpacked. Set as CMAKE_TOOLCHAIN_FILE by
# script/cross. Programs run in an emulator that has every extension the kernels know.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(WEFT_AARCH64_LIBRARIES ${CMAKE_CURRENT_LIST_DIR}/../.cache/aarch64 CACHE PATH "Libraries that script/setup --cross unpacked")
get_filename_component(CMAKE_SYSROOT ${WEFT_AARCH64_LIBRARIES} REALPATH)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-cpu;max;-L;${CMAKE_SYSROOT}" CACHE STRING "What runs programs")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
