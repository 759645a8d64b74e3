// Finds stop texts across tokens: text that may be the beginning of one is held back until it is clear.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

class StopTexts {
 public:
  /// UsageError for an empty one.
  explicit StopTexts(std::vector<std::string> texts);

  /// The text that is certain after `piece`; if a stop text is complete, what came before the first of them, and
  /// `stopped` from then on.
  std::string put(std::string_view piece);
  /// What was held back, at the end of the text.
  std::string finish();
  bool stopped() const { return stopped_; }
  /// The stop text that was found; empty: none.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_, found_;
  bool stopped_ = false;
};

}  // namespace weft::llm
