// Requests to a hub: redirects, the token, attempts after failures, and errors in words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "hub/http.hpp"
#include "hub/settings.hpp"
#include "weft/hub.hpp"

namespace weft::hub {

/// Ends a fetch from inside; `fetch` turns it into its result.
struct Stopped {};

class Client {
 public:
  Client(const Settings& settings, const FetchOptions& options);

  /// One request, which follows up to ten redirects: never from https to http. The token goes to the hub's own origin alone.
  /// `x-linked-...` headers of redirects are kept. Throws Stopped.
  HttpReply get(HttpRequest request);

  /// Repeats `attempt` until it is done, as long as there is hope: after a connection that ended, a timeout, and the statuses 408, 429
  /// and 5xx. Waits longer each time, or as long as the server says; an attempt that got bytes starts the count anew. `attempt`
  /// gives the reply, and sets `got_bytes`. Errors: FileError for a reply that is not 2xx and stays so.
  HttpReply persist(const std::string& what, const std::function<HttpReply(bool& got_bytes)>& attempt);

  /// A body that is kept, from an address of the hub. Errors: as `persist`.
  HttpReply get_text(const std::string& what, const std::string& address, std::uint64_t bytes_max);

  const Settings& settings() const { return settings_; }
  const FetchOptions& options() const { return options_; }
  void check_stop() const {
    if (options_.stop.stop_requested()) throw Stopped();
  }

 private:
  void wait(double seconds) const;

  const Settings& settings_;
  const FetchOptions& options_;
  HttpClient http_;
};

/// What a status that is not 2xx says about a repository of the hub, and what to do. `near` are names like it.
std::string refusal_text(const ModelName& name, const Settings& settings, const HttpReply& reply,
                         const std::vector<std::string>& near);

}  // namespace weft::hub
