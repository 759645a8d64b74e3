// What the answer to a request has to look like: its format, and calls of tools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/openai.hpp"

namespace weft::serve {

/// The grammar of the member `response_format`; nothing for plain text. Errors: OpenAiError with status 400, here and below.
std::optional<llm::Grammar> read_response_format(const Value& body, const OpenAiModel& model);

/// The member `tools`; `names` receives those of the functions.
Value::Array read_tools(const Value& body, std::vector<std::string>& names);

/// Whether an answer calls tools: it does not, it may, or it must.
enum class ToolUse : std::uint8_t { none, may, must };
struct ToolChoice {
  ToolUse use = ToolUse::none;
  std::vector<std::string> allowed;  ///< names of the tools that may be called
  bool is_one = false;               ///< a single tool is named, which is called once
};
/// The member `tool_choice`.
ToolChoice read_tool_choice(const Value& body, const std::vector<std::string>& names);

}  // namespace weft::serve
