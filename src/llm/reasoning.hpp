// Splits streamed replies of reasoning models into the text between <think> and </think> and the answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

/// What ends the reasoning of a reply.
inline constexpr std::string_view kReasoningEnd = "</think>";

class ReasoningSplitter {
 public:
  struct Part {
    std::string text;
    bool reasoning;
    bool operator==(const Part&) const = default;
  };
  /// `inside`: the prompt has opened the reasoning already, as some templates do.
  explicit ReasoningSplitter(bool inside = false) : inside_(inside) {}
  /// The parts that are certain so far. Neighbouring parts are of different kinds; none is empty.
  std::vector<Part> put(std::string_view piece);
  std::vector<Part> finish();

 private:
  void add(std::vector<Part>& parts, std::string_view text);
  std::string held_;
  bool inside_;
};

/// A reply without its reasoning and without white space before the answer: what goes into the next turn.
std::string without_reasoning(std::string_view reply, bool inside = false);

/// Whether a prompt ends inside the reasoning, so that the reply begins there.
bool opens_reasoning(std::string_view prompt);

}  // namespace weft::llm
