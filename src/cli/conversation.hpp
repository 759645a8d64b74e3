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
  std::size_t forgotten = 0;        // number of messages, from the first, that the model no longer sees

  /// The messages that the model sees.
  std::vector<llm::Message> shown() const;
  /// All messages.
  std::vector<llm::Message> all() const;
  /// Drops the oldest question that the model sees, and everything up to the next one; false if no other question is left.
  bool forget_oldest();
  void clear();
  /// Removes the last question and everything after it, and returns the question.
  std::optional<llm::Message> take_back();
};

/// A JSON list of messages, as the templates of models take it. Images are PNG files in data: URLs, as the API of OpenAI has them.
std::string to_json(const Conversation& conversation);
/// FileError "SOURCE: ..." unless the text is such a list, or an object with one as "messages".
Conversation conversation_from_json(std::string_view text, std::string_view source);

}  // namespace weft::cli
