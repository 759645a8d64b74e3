// Chats of other APIs, as requests of OpenAI's API.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/openai.hpp"

namespace weft::serve {

/// A chat in the form of /v1/chat/completions, and what that form cannot say.
struct TranslatedChat {
  Value body = Value::Object();
  std::vector<std::string> stop = {};  ///< any number of texts
  std::string beginning = {};          ///< of the answer, which the model continues
};

/// The request, with one text, whose answer is told in chunks. Errors: OpenAiError as read_chat_request; status 400 for a beginning
/// of an answer that must be a call, and inside a reasoning.
CompletionRequest read_translated_chat(TranslatedChat chat, const OpenAiModel& model);

/// The member, which must be there and be a string. `place` is what an error calls the object; empty: the body.
std::string required_string(const Value& object, std::string_view key, std::string_view place);

/// A part of a message that is an image, from its base64.
Value image_part(std::string_view media_type, std::string_view base64);

}  // namespace weft::serve
