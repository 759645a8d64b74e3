#include "remote/grpc/log.hpp"

#include <grpc/support/log.h>

#include "base/log.hpp"

namespace weft::remote {

void send_grpc_log() {
  gpr_set_log_function([](gpr_log_func_args* message) {
    log(message->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::error : LogLevel::info, "grpc", message->message);
  });
}

}  // namespace weft::remote
