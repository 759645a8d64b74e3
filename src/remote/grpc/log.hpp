// Messages of gRPC.
#pragma once

namespace weft::remote {

/// Sends what gRPC has to say to Weft's log, which is off unless the user turns it on: whoever connects could fill standard error.
void send_grpc_log();

}  // namespace weft::remote
