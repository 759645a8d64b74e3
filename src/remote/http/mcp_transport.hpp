// A server of MCP behind a URL ("streamable HTTP").
#pragma once

#include <memory>
#include <string>

#include "remote/http/client.hpp"
#include "serve/mcp_client.hpp"

namespace weft::remote {

struct McpHttpOptions {
  std::string url;
  std::string token;  ///< may be empty
  HttpTls tls;
};

/// Each message is a request of its own; its answers come as JSON or as server-sent events. A stream that breaks is resumed if its events
/// have ids. The session ends with the transport.
/// Errors: UsageError for a URL that is not one.
std::unique_ptr<serve::McpTransport> mcp_over_http(const McpHttpOptions& options);

}  // namespace weft::remote
