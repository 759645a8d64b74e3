#include "llm/reasoning.hpp"

#include <algorithm>

namespace weft::llm {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = kReasoningEnd;

}  // namespace

void ReasoningSplitter::add(std::vector<Part>& parts, std::string_view text) {
  if (text.empty()) return;
  if (!parts.empty() && parts.back().reasoning == inside_)
    parts.back().text += text;
  else
    parts.push_back({std::string(text), inside_});
}

std::vector<ReasoningSplitter::Part> ReasoningSplitter::put(std::string_view piece) {
  std::vector<Part> parts;
  held_ += piece;
  for (;;) {
    const std::string_view mark = inside_ ? kClose : kOpen;
    const std::size_t at = held_.find(mark);
    if (at == std::string::npos) break;
    add(parts, std::string_view(held_).substr(0, at));
    held_.erase(0, at + mark.size());
    inside_ = !inside_;
  }
  // What may be the start of a mark waits.
  const std::string_view mark = inside_ ? kClose : kOpen;
  std::size_t keep = std::min(held_.size(), mark.size() - 1);
  while (keep > 0 && !mark.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
  add(parts, std::string_view(held_).substr(0, held_.size() - keep));
  held_.erase(0, held_.size() - keep);
  return parts;
}

std::vector<ReasoningSplitter::Part> ReasoningSplitter::finish() {
  std::vector<Part> parts;
  add(parts, held_);
  held_.clear();
  return parts;
}

bool opens_reasoning(std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(kOpen);
}

std::string without_reasoning(std::string_view reply, bool inside) {
  ReasoningSplitter splitter(inside);
  std::string answer;
  for (const auto& parts : {splitter.put(reply), splitter.finish()})
    for (const auto& part : parts)
      if (!part.reasoning) answer += part.text;
  const std::size_t begin = answer.find_first_not_of(" \t\r\n");
  return answer.size() == reply.size() || begin == std::string::npos ? answer : answer.substr(begin);
}

}  // namespace weft::llm
