// Operations as tools of the Model Context Protocol, over lines of JSON-RPC.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serve/service.hpp"

namespace weft::serve {

struct McpOptions {
  operations::Identity identity;  ///< whose rights the client has
  std::string version = "0";
  std::size_t line_bytes_max = std::size_t{64} << 20;
  std::size_t calls_max = 32;        ///< at once
  std::size_t answers_max = 10'000;  ///< of a subscription; then it is ended
  std::size_t page = 100;            ///< tools in one list
};

/// Serves one client until `read_line` gives nothing: the client has gone. Its calls are aborted then, and what it held is freed.
/// `write_line` takes a line without its end, from any thread, one at a time; false: the client has gone.
///
/// Tools are the external operations, by their ids. A tool gives its data as structured content, and as text; a subscription
/// gives all answers in a list, and reports each as progress where the client asks for that.
void serve_mcp(const Service& service, const McpOptions& options,
               const std::function<std::optional<std::string>()>& read_line,
               const std::function<bool(std::string_view)>& write_line);

}  // namespace weft::serve
