# What CMake knows of the system of the toolchain: static libraries, and modules that end in .wasm.
set(CMAKE_DL_LIBS "")
set(CMAKE_EXECUTABLE_SUFFIX .wasm)
set_property(GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS FALSE)
set(CMAKE_SYSTEM_PREFIX_PATH /)  # below CMAKE_FIND_ROOT_PATH
