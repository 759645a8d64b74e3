// Operations of an HTTP service that an OpenAPI description tells of, or a JSON Schema document.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "remote/http/client.hpp"
#include "serve/caller.hpp"

namespace weft::remote {

struct OpenApiClientOptions {
  std::string place;  ///< the description: a URL, or a file
  /// The URL of the operations of a JSON Schema document, which `place` is then. Empty: `place` is an OpenAPI description.
  std::string service = {};
  std::string space = {};                ///< the namespace of a document's operations that name none
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
