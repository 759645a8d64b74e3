# The library as others use it: one archive, weft::weft, made of the objects of all folders, with what
# find_package(weft) and pkg-config need.
include(CMakePackageConfigHelpers)

get_property(folders GLOBAL PROPERTY WEFT_FOLDERS)
list(REMOVE_ITEM folders remote)  # a part of the command (weft_network): programs that use the library need neither NATS nor gRPC
set(objects "")
set(libraries "")
foreach(folder ${folders})
  list(APPEND objects $<TARGET_OBJECTS:weft_${folder}>)
  get_target_property(links weft_${folder} LINK_LIBRARIES)
  list(APPEND libraries ${links})
endforeach()
list(REMOVE_DUPLICATES libraries)
# Folders are inside; the JSON library has headers only and no public header of ours shows it.
list(FILTER libraries EXCLUDE REGEX "^weft_|^nlohmann_json::")

add_library(weft STATIC ${objects})
add_library(weft::weft ALIAS weft)
set_target_properties(weft PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(weft INTERFACE cxx_std_20)
target_link_libraries(weft PRIVATE ${libraries})
target_include_directories(weft INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# What find_package and pkg-config have to ask for, library by library.
set(WEFT_FIND_DEPENDENCIES "")
set(WEFT_PC_REQUIRES "")
set(WEFT_PC_LIBS "")
foreach(library ${libraries})
  if(library STREQUAL "fmt::fmt")
    string(APPEND WEFT_FIND_DEPENDENCIES "find_dependency(fmt)\n")
    string(APPEND WEFT_PC_REQUIRES " fmt")
  elseif(library STREQUAL "Threads::Threads")
    string(APPEND WEFT_FIND_DEPENDENCIES "find_dependency(Threads)\n")
    string(APPEND WEFT_PC_LIBS " -pthread")
  elseif(library STREQUAL "ZLIB::ZLIB")
    string(APPEND WEFT_FIND_DEPENDENCIES "find_dependency(ZLIB)\n")
    string(APPEND WEFT_PC_REQUIRES " zlib")
  elseif(library STREQUAL "simdjson::simdjson")
    string(APPEND WEFT_FIND_DEPENDENCIES "find_dependency(simdjson)\n")
    string(APPEND WEFT_PC_REQUIRES " simdjson")
  elseif(library STREQUAL "pcre2-8" OR library STREQUAL "utf8proc")
    string(APPEND WEFT_PC_REQUIRES " lib${library}")
  elseif(library STREQUAL "${CMAKE_DL_LIBS}")
    string(APPEND WEFT_PC_LIBS " -l${library}")
  else()
    message(FATAL_ERROR "a folder of src/ links ${library}: say in cmake/WeftInstall.cmake how an installed Weft finds it")
  endif()
endforeach()

# Whoever built the command alone, as script/demo does, gets the rest when installing. The library needs a target with a
# name of its own: to Ninja, "weft" is the file of the command.
add_custom_target(weft_library DEPENDS weft)
if(PROJECT_IS_TOP_LEVEL)
  set(install_targets weft_library weft_c)
  if(TARGET weft_command)
    list(APPEND install_targets weft_command)
  endif()
  string(REPLACE ";" " " install_targets "${install_targets}")
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target ${install_targets}
                COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(TARGETS weft weft_c EXPORT weft-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in ${PROJECT_BINARY_DIR}/generated/weft-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/weft-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/weft-config.cmake ${PROJECT_BINARY_DIR}/generated/weft-config-version.cmake
        DESTINATION ${package_folder})
file(RELATIVE_PATH WEFT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/generated/weft.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft_c.pc.in ${PROJECT_BINARY_DIR}/generated/weft_c.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/weft.pc ${PROJECT_BINARY_DIR}/generated/weft_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET weft_command)
  install(TARGETS weft_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS weft_network LIBRARY DESTINATION lib/weft)
endif()
# The fetched WebGPU library goes where an installed command looks for it.
file(GLOB webgpu_library ${PROJECT_SOURCE_DIR}/.cache/webgpu/lib/*)
if(webgpu_library)
  install(FILES ${webgpu_library} DESTINATION lib/weft)
endif()
