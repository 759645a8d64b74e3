// Requests over HTTP and HTTPS, one at a time, without redirects: who asks decides what may follow where.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace weft::hub {

/// Headers by their names in lower case; of several with one name, the last.
using Headers = std::map<std::string, std::string, std::less<>>;

struct HttpRequest {
  std::string address;
  std::vector<std::string> headers = {};  // "Name: value"
  bool only_headers = false;
  std::uint64_t body_max = std::uint64_t{32} << 20;  // of a body that is kept
  std::chrono::seconds timeout{30};                  // without a byte
  std::stop_token stop = {};
  /// Called before the body, and without one once; false: the body is not wanted.
  std::function<bool(int status, const Headers& headers)> on_head = {};
  /// Takes the body of a 2xx answer in place of the reply; false: the rest is not wanted. Exceptions come out of `send`.
  std::function<bool(std::span<const std::byte> bytes)> on_body = {};
};

struct HttpReply {
  enum class Ending : std::uint8_t {
    whole,
    unwanted,
    stopped,
    no_host,
    no_connection,
    no_trust,
    timed_out,
    cut,
    failed
  };
  Ending ending = Ending::whole;
  std::string fault;  // in words, unless it is whole, unwanted or stopped
  int status = 0;     // 0 if no headers came
  Headers headers;
  std::string body;

  /// "" for a header that is missing.
  std::string header(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

/// Keeps connections for further requests. One thread at a time.
class HttpClient {
 public:
  /// Errors: FileError without libcurl.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  /// Throws only what `on_head` and `on_body` throw, and what an interrupt check throws.
  HttpReply send(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The address that a redirect from `address` leads to; empty if it is not http(s).
std::string redirected(const std::string& address, const std::string& location);

}  // namespace weft::hub
