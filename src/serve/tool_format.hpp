// How a model writes calls of tools, as its chat template shows.
#pragma once

#include <cstdint>
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
  /// `in_call`: the prompt has written `opening` already. `in_pieces`: calls are told while they are written, where the name comes
  /// before the arguments and the format has no lists.
  ToolCallReader(ToolFormat format, std::vector<std::string> names, bool in_call, bool in_pieces = false)
      : format_(std::move(format)),
        names_(std::move(names)),
        in_call_(in_call),
        in_pieces_(in_pieces && !format_.is_list) {}

  /// A call that begins, or more of the arguments of the last one.
  struct Piece {
    std::string name = {};  ///< empty: more arguments
    std::string arguments = {};
  };
  struct Part {
    std::string content = {};
    std::vector<ToolCall> calls = {};  ///< whole ones
    std::vector<Piece> pieces = {};    ///< of those that are told while they are written
  };
  /// What is certain after a piece of the text.
  Part put(std::string_view piece);
  /// What was held back, at the end of the text. A call that was cut off is content, unless a part of it was told.
  Part finish();

 private:
  bool take_call(Part& part, bool at_end);
  bool take_pieces(Part& part, bool at_end);
  bool begin_pieces(Part& part);
  bool end_call(std::size_t end, bool at_end);
  void add_content(Part& part, std::string_view text);

  ToolFormat format_;
  std::vector<std::string> names_;
  std::string held_;
  bool in_call_, in_pieces_;
  // Of the call that is told in pieces.
  enum class Stage : std::uint8_t {
    none,
    whole,
    arguments,
    end
  } stage_ = Stage::none;  // whole: it is not told in pieces
  int depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
  bool has_content_ = false, skips_space_ = true;  // white space before the first text, and after calls, is not content
};

}  // namespace weft::serve
