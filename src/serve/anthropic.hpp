// The Messages API of Anthropic: conversations of blocks, which become chats, and the events of their answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai.hpp"

namespace weft::serve {

/// {"type": "error", "error": {"type", "message"}}. The type follows from the status. Of the codes, clients know kNoThreads.
Value anthropic_error_body(int status, std::string_view message, std::string_view code = {});
/// Of a request for a conversation that the server holds. Clients then send the whole conversation with each request.
inline constexpr std::string_view kNoThreads = "thread_unsupported_request";

struct MessagesRequest {
  CompletionRequest completion;  ///< one text, in chunks
  bool streams = false;
};

/// Reads the body of POST /v1/messages. Fields that are not known are ignored. Errors: OpenAiError with status 400 and the name of the
/// field; 404 for another model.
MessagesRequest read_messages_request(const Value& body, const OpenAiModel& model);
/// The body of POST /v1/messages/count_tokens, which has no max_tokens: the tokens of its prompt.
std::size_t count_message_tokens(const Value& body, const OpenAiModel& model);

/// Makes the answer from the events of its text.
class MessagesAnswer {
 public:
  MessagesAnswer(MessagesRequest request, const OpenAiModel& model);

  /// The first event of a stream, and those that follow from an event of the text; the last of them ends the message.
  std::vector<Value> begin() const;
  std::vector<Value> take(const GenerationEvent& event);
  /// The whole message, once the text has ended.
  Value body() const;

 private:
  enum class Kind : std::uint8_t { text, thinking, call };
  struct Block {
    Kind kind;
    std::string text;        // of a call: its arguments
    std::string id, name{};  // of a call
  };
  static Value block_value(const Block& block, bool is_whole);
  void open(Kind kind, std::vector<Value>& events, const std::string& id = {}, const std::string& name = {});
  void add_text(std::string_view text, std::vector<Value>& events);
  void close(std::vector<Value>& events);
  Value usage() const;

  CompletionAnswer completion_;
  std::string id_, model_, stop_reason_, stop_text_;
  std::vector<Block> blocks_;
  bool is_open_ = false;
  std::size_t prompt_tokens_, cached_tokens_ = 0, tokens_ = 0;
};

/// A model in the lists that clients of this API read.
Value anthropic_model_entry(std::string_view name, std::int64_t created);

}  // namespace weft::serve
