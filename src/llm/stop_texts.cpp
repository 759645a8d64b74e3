#include "llm/stop_texts.hpp"

#include <algorithm>

#include "weft/error.hpp"

namespace weft::llm {

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (const std::string& text : texts_)
    if (text.empty()) throw UsageError("llm: a stop text is empty; leave it out");
}

std::string StopTexts::put(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& text : texts_)
    if (const std::size_t at = held_.find(text); at < first) {
      first = at;
      found_ = text;
    }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string certain = held_.substr(0, first);
    held_.clear();
    return certain;
  }
  // The longest end that some stop text starts with.
  std::size_t keep = 0;
  for (const std::string& text : texts_)
    for (std::size_t n = std::min(held_.size(), text.size() - 1); n > keep; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(text).substr(0, n)) keep = n;
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopTexts::finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace weft::llm
