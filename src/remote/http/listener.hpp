// Accepts connections, and gives each a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "remote/http/connection.hpp"

namespace weft::remote {

/// Listens at the address of the options until it is destroyed, which ends all connections.
class HttpListener {
 public:
  using MakeConnection = std::function<std::unique_ptr<HttpConnection>(OpenSocket socket)>;

  /// `make` is called on the thread of each connection; `sweep` every half minute or more often. `shared` must outlive the listener.
  /// Errors: UsageError for a host that is not an address; FileError for certificates that cannot be used, and if it cannot
  /// listen there.
  HttpListener(HttpShared& shared, MakeConnection make, std::function<void()> sweep = {});
  ~HttpListener();
  std::uint16_t port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
