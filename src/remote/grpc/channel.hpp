// Options that the server and the client of gRPC share.
#pragma once

#include <grpc/grpc.h>

namespace weft::remote {

/// Calls `set(name, value)` for each. Large frames and windows, and reads of 4 MB: a message of 64 MB is a thousand frames otherwise.
template <class Set>
void set_transport_options(const Set& set) {
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (1 << 24) - 1);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20);
  for (const char* name : {"grpc.experimental.tcp_read_chunk_size", "grpc.experimental.tcp_min_read_chunk_size",
                           "grpc.experimental.tcp_max_read_chunk_size"})
    set(name, 4 << 20);
}

}  // namespace weft::remote
