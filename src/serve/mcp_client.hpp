// The tools of another program's MCP server, as operations.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/caller.hpp"

namespace weft::serve {

/// Why a request has no answer.
struct McpFailure {
  enum class Kind : std::uint8_t {
    not_run,  ///< the server was not reached, or has no room now; the request may be sent again
    unknown,  ///< the connection ended after the request was sent; the server may have run it
    expired,  ///< the server no longer knows the session, and has not run the request
    refused,  ///< the server does not take the request
  };
  Kind kind = Kind::unknown;
  std::string reason;
  std::optional<std::chrono::milliseconds> wait = {};  ///< not_run: the server asks for this time
};

/// What a transport reports, from any thread.
struct McpReports {
  /// A message came. Returns the id of the request that it answers, or 0.
  std::function<std::int64_t(std::string_view message)> take;
  std::function<void(std::int64_t request, McpFailure failure)> failed;  ///< one request has no answer
  std::function<void(std::string reason)> gone;                          ///< no further messages will come
};

/// What carries messages of JSON-RPC to a server and back.
class McpTransport {
 public:
  virtual ~McpTransport() = default;
  /// Called once, before all else.
  virtual void start(McpReports reports) = 0;
  /// `request`: the id of a request, which has an answer; 0 for other messages. Errors: OperationError UNAVAILABLE.
  virtual void send(const std::string& message, std::int64_t request) = 0;
  /// Nobody waits for the answer of a request any more.
  virtual void drop(std::int64_t /*request*/) {}
  /// The version of the protocol on which both sides agreed.
  virtual void agreed(const std::string& /*version*/) {}
  /// Forgets session and version; the next message begins a new session.
  virtual void forget_session() {}
  /// From now on the server may send messages that answer nothing, where that needs a connection of its own.
  virtual void listen() {}
};

/// A server that is a program of this machine: messages are lines of its standard input and output. `command` is run by the shell. The
/// program ends with the transport. Errors: OperationError UNAVAILABLE.
std::unique_ptr<McpTransport> mcp_program(const std::string& command,
                                          std::size_t message_bytes_max = std::size_t{64} << 20);

struct McpClientOptions {
  std::string version = "0";
  std::chrono::milliseconds patience = std::chrono::seconds(30);  ///< for answers that are not those of tools
  std::size_t tools_max = 10'000;
  std::uint64_t values_max = 1'000'000;                              ///< keys and values of a message
  int attempts_max = 5;                                              ///< to send a request that the server has not run
  std::chrono::milliseconds pause = std::chrono::milliseconds(100);  ///< before the second attempt; it doubles
};

/// A tool NAME is the operation NAME if that is an id, as in "tensor.add", and otherwise SERVER.NAME, with _ for what an id cannot have.
/// Its data are the structured content of a tool that declares an output schema, or else {"content": [...]}. A tool that fails is the
/// error TOOL_ERROR. Callers from outside need the scope "mcp:call".
///
/// A request that the server has certainly not run is sent again, and so is one whose connection broke if the tool only reads or is
/// idempotent by its annotations. A server that has forgotten the session is greeted anew. `on_change` is for servers that say that
/// they tell of changes.
/// Thread safety: any thread may call any function.
class McpClient : public Caller {
 public:
  /// Errors: OperationError UNAVAILABLE if no MCP server answers, or none that speaks a known version.
  McpClient(std::unique_ptr<McpTransport> transport, const McpClientOptions& options = {});
  ~McpClient() override;
  std::vector<operations::Specification> operations() override;
  void run(std::string_view id, const Value& input, const RemoteCallOptions& options,
           const std::function<bool(operations::Envelope)>& take) override;
  std::size_t on_change(std::function<void()> changed) override;
  void forget(std::size_t observer) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::serve
