#include "serve/translated_chat.hpp"

#include <fmt/format.h>

#include <utility>

#include "serve/openai_fields.hpp"

namespace weft::serve {

CompletionRequest read_translated_chat(TranslatedChat chat, const OpenAiModel& model) {
  chat.body.members().set("stream", true);
  CompletionRequest request = read_chat_request(chat.body, model);
  std::erase(chat.stop, "");
  for (GenerationText& text : request.texts) text.options.stop = chat.stop;
  if (chat.beginning.empty()) return request;
  constexpr std::string_view kField = "messages";
  if (request.begins_in_call)
    refuse_field(kField, "end with a message of the assistant, and the answer must be a call of a tool");
  if (request.begins_in_reasoning)
    refuse_field(kField, "end with a message of the assistant, and the model begins with its reasoning; turn that off");
  for (GenerationText& text : request.texts) text.prompt.append(model.model.encode(chat.beginning, false));
  return request;
}

std::string required_string(const Value& object, std::string_view key, std::string_view place) {
  const std::string field = place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
  const Value* value = given(object, key);
  if (!value) refuse_field(field, "is missing");
  return string_in(*value, field);
}

Value image_part(std::string_view media_type, std::string_view base64) {
  return Value::object({{"type", "image_url"},
                        {"image_url", Value::object({{"url", fmt::format("data:{};base64,{}", media_type, base64)}})}});
}

}  // namespace weft::serve
