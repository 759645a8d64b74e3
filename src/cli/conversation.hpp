// A conversation as a chat keeps it, and as a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/llm.hpp"

namespace weft::cli {

struct Conversation {
  std::string system;               // what the model is told first; empty: nothing
  std::vector<llm::Message> turns;  // all that was said
  std::size_t forgotten = 0;        // of them, from the first on, that the model is no longer shown

  /// What the model is shown.
  std::vector<llm::Message> shown() const;
  /// The whole.
  std::vector<llm::Message> all() const;
  /// Leaves out the oldest question that the model is shown, with all that followed it; false if it is the last one.
  bool forget_oldest();
  void clear();
  /// Takes back the last question with what followed it, and gives it.
  std::optional<std::string> take_back();
};

/// A JSON list of messages, as the templates of models take it.
std::string to_json(const Conversation& conversation);
/// FileError "SOURCE: ..." unless the text is such a list, or an object with one as "messages".
Conversation conversation_from_json(std::string_view text, std::string_view source);

}  // namespace weft::cli
