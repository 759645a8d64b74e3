# HTTP, NATS and gRPC. None is a part of the installed library: the command loads this folder as a library of its own, and tests
# link it.
find_path(WEFT_BEAST_INCLUDE boost/beast.hpp)
if(NOT WEFT_BEAST_INCLUDE)
  message(FATAL_ERROR "Boost.Beast was not found: run script/setup (Debian: libboost1.81-dev)")
endif()
find_path(WEFT_NATS_INCLUDE nats/nats.h)
find_library(WEFT_NATS nats)
find_package(OpenSSL COMPONENTS Crypto SSL)
find_library(WEFT_GRPC grpc++)
find_library(WEFT_GRPC_REFLECTION grpc++_reflection)
find_library(WEFT_GPR gpr)
find_library(WEFT_ABSL_SYNCHRONIZATION absl_synchronization)  # used by inline functions of the headers of gRPC
find_package(Protobuf)
if(NOT WEFT_NATS_INCLUDE OR NOT WEFT_NATS OR NOT OPENSSL_CRYPTO_LIBRARY)
  message(FATAL_ERROR "The client library of NATS, or OpenSSL, was not found: run script/setup (Debian: libnats-dev, libssl-dev)")
endif()
if(NOT WEFT_GRPC OR NOT WEFT_GRPC_REFLECTION OR NOT Protobuf_PROTOC_EXECUTABLE)
  message(FATAL_ERROR "gRPC was not found: run script/setup (Debian: libgrpc++-dev, libprotobuf-dev, protobuf-compiler)")
endif()
set(proto ${PROJECT_SOURCE_DIR}/src/remote/grpc)
set(made ${PROJECT_BINARY_DIR}/generated)
add_custom_command(OUTPUT ${made}/operations.pb.cc ${made}/operations.pb.h DEPENDS ${proto}/operations.proto
                   COMMAND ${Protobuf_PROTOC_EXECUTABLE} --cpp_out=${made} -I${proto} ${proto}/operations.proto)
target_sources(weft_remote PRIVATE ${made}/operations.pb.cc)
set(http ${PROJECT_SOURCE_DIR}/src/remote/http)
set_source_files_properties(${made}/operations.pb.cc ${proto}/server.cpp ${proto}/client.cpp ${http}/server.cpp ${http}/connection.cpp
                            ${http}/client.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_compile_options(weft_remote PRIVATE $<$<CONFIG:Release>:-O1>)  # it waits for others, and its headers are large
target_include_directories(weft_remote SYSTEM PRIVATE ${WEFT_NATS_INCLUDE} ${WEFT_BEAST_INCLUDE})
target_compile_definitions(weft_remote PRIVATE WEFT_VERSION="${PROJECT_VERSION}")
# The reflection of gRPC registers itself, so no symbol of it need be used.
target_link_libraries(weft_remote PRIVATE ${WEFT_NATS} OpenSSL::SSL OpenSSL::Crypto ${WEFT_GRPC_REFLECTION} ${WEFT_GRPC} ${WEFT_GPR} ${WEFT_ABSL_SYNCHRONIZATION} protobuf::libprotobuf)
