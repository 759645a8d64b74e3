// Operations of an HTTP service that its OpenAPI description tells of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "remote/http/client.hpp"
#include "serve/caller.hpp"

namespace weft::remote {

struct OpenApiClientOptions {
  std::string place;                     ///< the description: a URL, or a file
  std::string token;                     ///< sent as "Authorization: Bearer TOKEN"; may be empty
  std::vector<std::string> allow_hosts;  ///< HOST:PORT that may be called beside the host of the description
  HttpTls tls;
};

/// A caller of the service. An answer of success gives its JSON as data, or a text if it is none. Any other answer is the error
/// HTTP_ERROR with {"status", "body"} as details. The token is sent to the hosts of the operations only.
/// Errors: UsageError for a description that is not one (serve/openapi_import.hpp), or that names a host which is not allowed;
/// OperationError UNAVAILABLE.
std::shared_ptr<serve::Caller> call_openapi(const OpenApiClientOptions& options);

}  // namespace weft::remote
