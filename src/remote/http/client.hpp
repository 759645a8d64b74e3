// Requests of HTTP/1.1, with and without TLS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/operations/envelope.hpp"

namespace weft::remote {

struct HttpUrl {
  bool tls = false;
  std::string host, port, target;
  /// "http://HOST[:PORT][/PATH]", or https. Errors: UsageError for anything else, also for names and passwords in it.
  static HttpUrl parse(std::string_view url);
  std::string authority() const;  ///< HOST:PORT
};

struct HttpTls {
  /// PEM file with the certificate authority that the server's certificate must be signed by; empty: those of the system.
  std::filesystem::path authority;
  std::filesystem::path certificate, key;  ///< PEM files by which the client proves who it is; may be empty
};

struct HttpRequest {
  std::string method = "GET";
  HttpUrl url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<operations::Clock::time_point> deadline = {};  ///< unset: 30 s
  std::stop_token stop = {};
  std::uint64_t body_bytes_max = std::uint64_t{256} << 20;
  HttpTls tls = {};
  bool* was_sent = nullptr;  ///< is set to true before the first byte of the request is sent
};

struct HttpReply {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  /// The first header of this name, in any case; "" if there is none.
  std::string_view header(std::string_view name) const;
};

/// Sends a request on a connection of its own. Redirects are not followed. With `take`, the body goes there as it arrives, and not into
/// the reply; false ends the request. Errors: OperationError UNAVAILABLE, TIMEOUT, ABORTED, TOO_LARGE.
HttpReply http_request(const HttpRequest& request,
                       const std::function<bool(const HttpReply& head, std::string_view bytes)>& take = {});

}  // namespace weft::remote
