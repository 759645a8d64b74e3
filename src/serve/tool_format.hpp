// How a model writes calls of tools, as its chat template shows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/llm.hpp"
#include "weft/value.hpp"

namespace weft::serve {

/// A call is JSON {"name": ..., "arguments": {...}} between two texts, such as <tool_call> and </tool_call>; or a list of these.
struct ToolFormat {
  std::string opening = "<tool_call>\n", closing = "\n</tool_call>";
  std::string arguments_key = "arguments";
  bool is_list = false;

  /// What the template writes for a message with a call. The default where the template shows none.
  static ToolFormat of(const llm::Model& model);

  /// The schema of a call, without the texts around it, for the tools of a request.
  Value schema(const Value::Array& tools) const;
};

struct ToolCall {
  std::string name, arguments;  ///< arguments as JSON text
};

/// Finds calls in a text while it is written. What is not a call is content.
class ToolCallReader {
 public:
  /// `in_call`: the prompt has written `opening` already.
  ToolCallReader(ToolFormat format, std::vector<std::string> names, bool in_call)
      : format_(std::move(format)), names_(std::move(names)), in_call_(in_call) {}

  struct Part {
    std::string content = {};
    std::vector<ToolCall> calls = {};
  };
  /// What is certain after a piece of the text.
  Part put(std::string_view piece);
  /// What was held back, at the end of the text. A call that was cut off is content.
  Part finish();

 private:
  bool take_call(Part& part, bool at_end);
  void add_content(Part& part, std::string_view text);

  ToolFormat format_;
  std::vector<std::string> names_;
  std::string held_;
  bool in_call_;
  bool has_content_ = false, skips_space_ = true;  // white space before the first text, and after calls, is not content
};

}  // namespace weft::serve
