// The tools of another program's MCP server, as operations.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/caller.hpp"

namespace weft::serve {

/// What carries messages of JSON-RPC to a server and back.
class McpTransport {
 public:
  virtual ~McpTransport() = default;
  /// Called once, before all else. Messages go to `take`, from any thread; `gone` says why no further ones will come.
  virtual void start(std::function<void(std::string_view)> take, std::function<void(std::string)> gone) = 0;
  /// Errors: OperationError UNAVAILABLE.
  virtual void send(const std::string& message) = 0;
  /// The version of the protocol on which both sides agreed.
  virtual void agreed(const std::string& /*version*/) {}
};

/// A server that is a program of this machine: messages are lines of its standard input and output. `command` is run by the shell. The
/// program ends with the transport. Errors: OperationError UNAVAILABLE.
std::unique_ptr<McpTransport> mcp_program(const std::string& command,
                                          std::size_t message_bytes_max = std::size_t{64} << 20);

struct McpClientOptions {
  std::string version = "0";
  std::chrono::milliseconds patience = std::chrono::seconds(30);  ///< for answers that are not those of tools
  std::size_t tools_max = 10'000;
  std::uint64_t values_max = 1'000'000;  ///< keys and values of a message
};

/// A tool NAME is the operation NAME if that is an id, as in "tensor.add", and otherwise SERVER.NAME, with _ for what an id cannot have.
/// Its data are the structured content of a tool that declares an output schema, or else {"content": [...]}. A tool that fails is the
/// error TOOL_ERROR. Callers from outside need the scope "mcp:call".
/// Thread safety: any thread may call any function.
class McpClient : public Caller {
 public:
  /// Errors: OperationError UNAVAILABLE if no MCP server answers, or none that speaks a known version.
  McpClient(std::unique_ptr<McpTransport> transport, const McpClientOptions& options = {});
  ~McpClient() override;
  std::vector<operations::Specification> operations() override;
  void run(std::string_view id, const Value& input, const RemoteCallOptions& options,
           const std::function<bool(operations::Envelope)>& take) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::serve
