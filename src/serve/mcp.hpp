// Operations as tools of the Model Context Protocol, over lines of JSON-RPC.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/service.hpp"

namespace weft::serve {

/// Members of a call's `_meta`: CallOptions::via as via_text has it, and client_request_id.
inline constexpr std::string_view kViaKey = "weft/via", kRequestIdKey = "weft/requestId";
/// Member of a tool's `_meta`: what MCP has no place for. {"errors": as specifications have them, "output": the schema of an output that is
/// not an object}. `_meta` of a failure has {"error": {"code", "message", "details"}}.
inline constexpr std::string_view kOperationKey = "weft/operation";
/// Member of an answer's `_meta`: true where the structured content is {"data": answer}, because the answer is not an object.
inline constexpr std::string_view kWrappedKey = "weft/wrapped";

struct McpOptions {
  operations::Identity identity;  ///< whose rights the client has
  std::string version = "0";
  std::string session = "mcp";  ///< what the client holds is freed by this name
  std::size_t line_bytes_max = std::size_t{64} << 20;
  std::size_t calls_max = 32;        ///< at once
  std::size_t answers_max = 10'000;  ///< of a subscription; then it is ended
  std::size_t page = 100;            ///< tools in one list
};

/// Takes one line, which is a message without its end, from any thread, one at a time. False: the client has gone.
using McpWrite = std::function<bool(std::string_view)>;

/// A client of the protocol, whatever carries its messages. Destroying it aborts its calls and frees what it held.
/// Thread safety: any thread may call any function.
class McpSession {
 public:
  McpSession(const Service& service, const McpOptions& options);
  ~McpSession();
  /// Takes a message. Its answer, and reports of its progress, go to `write`, perhaps later and from another thread.
  void take(const std::string& message, McpWrite write);
  /// Messages that answer nothing go to `write` from now on: that the list of tools has changed. It is told once until the client lists
  /// the tools again, and to a new `write` again. Empty: to nobody. `write` must not wait, and is not called once another one is set.
  void listen(McpWrite write);
  bool is_busy() const;  ///< calls are under way

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Versions of the protocol that are spoken here.
bool knows_mcp_version(std::string_view version);
std::string_view newest_mcp_version();

/// What a message is: a request has an answer, with the same id.
struct McpMessage {
  bool is_request = false;
  bool is_tool_call = false;
  bool is_initialize = false;
  Value id;
};
/// Errors: none; what is not a message is a request with the id null, which has an error as its answer.
McpMessage look_at_mcp(std::string_view message);

/// Serves one client until `read_line` gives nothing: the client has gone. Its calls are aborted then, and what it held is freed.
/// `write_line` takes a line without its end, from any thread, one at a time; false: the client has gone.
///
/// Tools are the external operations, by their ids. A tool gives its data as structured content, and as text; a subscription
/// gives all answers in a list, and reports each as progress where the client asks for that.
void serve_mcp(const Service& service, const McpOptions& options,
               const std::function<std::optional<std::string>()>& read_line, const McpWrite& write_line);

}  // namespace weft::serve
