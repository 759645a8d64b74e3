// Requests of the Messages API: blocks and settings, as a chat.
#include <fmt/format.h>

#include <utility>

#include "base/quote.hpp"
#include "serve/anthropic.hpp"
#include "serve/openai_fields.hpp"
#include "serve/translated_chat.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kMessagesMax = 100'000;

/// The type of a block, which is an object.
std::string block_type(const Value& block, const std::string& place) {
  if (!block.is_object()) refuse_field(place, "is not an object");
  return required_string(block, "type", place);
}

/// A block of text, an image or a document as a part of a chat's message.
Value part_of(const Value& block, const std::string& type, const std::string& place) {
  const auto text_part = [](std::string text) { return Value::object({{"type", "text"}, {"text", std::move(text)}}); };
  if (type == "text") return text_part(required_string(block, "text", place));
  const bool is_document = type == "document";
  if (!is_document && type != "image")
    refuse_field(
        place + ".type",
        fmt::format("is {}; known are text, image, document, tool_use, tool_result and thinking", quote(type, 40)));
  const Value* source = given(block, "source");
  const std::string inner = place + ".source";
  if (!source || !source->is_object()) refuse_field(inner, "is missing");
  const std::string kind = required_string(*source, "type", inner);
  if (is_document) {
    if (kind != "text") refuse_field(inner + ".type", "is not \"text\"; this server reads documents of plain text");
    return text_part(required_string(*source, "data", inner));
  }
  if (kind != "base64")
    refuse_field(inner + ".type", "is not \"base64\"; this server fetches nothing, so send the image itself");
  return image_part(required_string(*source, "media_type", inner), required_string(*source, "data", inner));
}

/// The messages of a chat. Turns of one role that follow each other are one message.
class Turns {
 public:
  void add(const Value& message, const std::string& place) {
    if (!message.is_object()) refuse_field(place, "is not an object");
    const std::string role = required_string(message, "role", place);
    if (role != "user" && role != "assistant") refuse_field(place + ".role", "is neither user nor assistant");
    if (role != role_) flush();
    role_ = role;
    const Value* content = given(message, "content");
    if (!content) refuse_field(place + ".content", "is missing");
    if (content->is_string()) {
      add_text(*content);
      return;
    }
    if (!content->is_array()) refuse_field(place + ".content", "is neither a string nor a list of blocks");
    for (std::size_t i = 0; i < content->elements().size(); ++i)
      add_block((*content)[i], fmt::format("{}.content[{}]", place, i));
  }

  /// The messages. A last one of the assistant, which is text, goes to `beginning`.
  Value::Array take(std::string& beginning) {
    if (role_ == "assistant" && calls_.empty())
      for (const Value& part : std::exchange(parts_, {})) beginning += part["text"].string();
    else
      flush();
    return std::move(list_);
  }

 private:
  void add_text(const Value& text) { parts_.push_back(Value::object({{"type", "text"}, {"text", text}})); }

  void add_block(const Value& block, const std::string& place) {
    const std::string type = block_type(block, place);
    const bool is_assistant = role_ == "assistant";
    if (type == "thinking" && is_assistant) {
      reasoning_ += required_string(block, "thinking", place);
    } else if (type == "redacted_thinking" && is_assistant) {
      // Of another server: this one cannot read it.
    } else if (type == "tool_use" && is_assistant) {
      const Value* input = given(block, "input");
      calls_.push_back(
          Value::object({{"id", required_string(block, "id", place)},
                         {"type", "function"},
                         {"function", Value::object({{"name", required_string(block, "name", place)},
                                                     {"arguments", input ? input->to_json() : std::string("{}")}})}}));
    } else if (type == "tool_result" && !is_assistant) {
      add_result(block, place);
    } else if (is_assistant && type != "text") {
      refuse_field(place + ".type", fmt::format("is {}, which is no block of the assistant", quote(type, 40)));
    } else {
      parts_.push_back(part_of(block, type, place));
    }
  }

  /// Results come before the other blocks of their message, as templates want them behind the calls.
  void add_result(const Value& block, const std::string& place) {
    const Value* content = given(block, "content");
    Value own = Value("");
    if (content && content->is_string()) {
      own = *content;
    } else if (content) {
      if (!content->is_array()) refuse_field(place + ".content", "is neither a string nor a list of blocks");
      Value::Array parts;
      for (std::size_t i = 0; i < content->elements().size(); ++i) {
        const std::string inner = fmt::format("{}.content[{}]", place, i);
        parts.push_back(part_of((*content)[i], block_type((*content)[i], inner), inner));
      }
      own = Value(std::move(parts));
    }
    list_.push_back(Value::object({{"role", "tool"},
                                   {"tool_call_id", required_string(block, "tool_use_id", place)},
                                   {"content", std::move(own)}}));
  }

  void flush() {
    if (!parts_.empty() || !calls_.empty() || !reasoning_.empty()) {
      Value message = Value::object({{"role", role_}, {"content", std::exchange(parts_, {})}});
      if (!calls_.empty()) message.members().set("tool_calls", Value(std::exchange(calls_, {})));
      if (!reasoning_.empty()) message.members().set("reasoning_content", Value(std::exchange(reasoning_, {})));
      list_.push_back(std::move(message));
    }
  }

  std::string role_, reasoning_;
  Value::Array list_, parts_, calls_;
};

std::string system_text(const Value& system) {
  if (system.is_string()) return system.string();
  if (!system.is_array()) refuse_field("system", "is neither a string nor a list of blocks of text");
  std::string text;
  for (std::size_t i = 0; i < system.elements().size(); ++i) {
    const std::string place = fmt::format("system[{}]", i);
    if (block_type(system[i], place) != "text") refuse_field(place + ".type", "is not \"text\"");
    if (!text.empty()) text += "\n\n";
    text += required_string(system[i], "text", place);
  }
  return text;
}

Value::Array tools_of_messages(const Value& tools) {
  if (!tools.is_array()) refuse_field("tools", "is not a list");
  Value::Array list;
  for (std::size_t i = 0; i < tools.elements().size(); ++i) {
    const Value& tool = tools[i];
    const std::string place = fmt::format("tools[{}]", i);
    if (!tool.is_object()) refuse_field(place, "is not an object");
    if (const Value* type = given(tool, "type"); type && string_in(*type, place + ".type") != "custom")
      refuse_field(place + ".type", "is not \"custom\"; this server has no tools of its own");
    Value function = Value::object({{"name", required_string(tool, "name", place)}});
    if (const Value* v = given(tool, "description")) function.members().set("description", *v);
    const Value* schema = given(tool, "input_schema");
    if (!schema || !schema->is_object()) refuse_field(place + ".input_schema", "is not a schema");
    function.members().set("parameters", *schema);
    list.push_back(Value::object({{"type", "function"}, {"function", std::move(function)}}));
  }
  return list;
}

void set_tool_choice(const Value& choice, Value::Object& chat) {
  if (!choice.is_object()) refuse_field("tool_choice", "is not an object");
  const std::string type = required_string(choice, "type", "tool_choice");
  if (type == "tool")
    chat.set("tool_choice",
             Value::object({{"type", "function"},
                            {"function", Value::object({{"name", required_string(choice, "name", "tool_choice")}})}}));
  else if (type == "any" || type == "auto" || type == "none")
    chat.set("tool_choice", Value(type == "any" ? "required" : type));
  else
    refuse_field("tool_choice.type", "is none of auto, any, tool and none");
  chat.set("parallel_tool_calls", Value(!flag(choice, "disable_parallel_tool_use", false)));
}

TranslatedChat chat_of(const Value& body, const OpenAiModel& model) {
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  if (given(body, "thread"))
    throw OpenAiError(400, "thread is not supported: send the whole conversation as \"messages\"", "thread",
                      std::string(kNoThreads));
  TranslatedChat chat;
  Value::Object& own = chat.body.members();
  own.set("model", Value(required_string(body, "model", "")));
  const Value* messages = given(body, "messages");
  if (!messages || !messages->is_array() || messages->elements().empty() || messages->elements().size() > kMessagesMax)
    refuse_field("messages", fmt::format("is not a list of 1 to {} messages", kMessagesMax));
  Turns turns;
  for (std::size_t i = 0; i < messages->elements().size(); ++i)
    turns.add((*messages)[i], fmt::format("messages[{}]", i));
  Value::Array list = turns.take(chat.beginning);
  if (const Value* system = given(body, "system"))
    if (std::string text = system_text(*system); !text.empty())
      list.insert(list.begin(), Value::object({{"role", "system"}, {"content", std::move(text)}}));
  if (list.empty()) refuse_field("messages", "have no message of the user");
  own.set("messages", Value(std::move(list)));
  own.set("max_completion_tokens", Value(integer_in(body, "max_tokens", 1, INT32_MAX, model.model.context())));
  for (const char* key : {"temperature", "top_p", "top_k", "seed"})
    if (const Value* value = given(body, key)) own.set(key, *value);
  if (const Value* stops = given(body, "stop_sequences")) {
    if (!stops->is_array()) refuse_field("stop_sequences", "is not a list");
    for (const Value& each : stops->elements()) chat.stop.push_back(string_in(each, "stop_sequences"));
  }
  if (const Value* tools = given(body, "tools"); tools && !(tools->is_array() && tools->elements().empty()))
    own.set("tools", Value(tools_of_messages(*tools)));
  if (const Value* choice = given(body, "tool_choice")) set_tool_choice(*choice, own);
  if (const Value* thinking = given(body, "thinking")) {
    if (!thinking->is_object()) refuse_field("thinking", "is not an object");
    const std::string type = required_string(*thinking, "type", "thinking");
    own.set("chat_template_kwargs", Value::object({{"enable_thinking", type != "disabled"}}));
  }
  if (const Value* output = given(body, "output_config")) {
    if (!output->is_object()) refuse_field("output_config", "is not an object");
    if (const Value* effort = given(*output, "effort")) own.set("reasoning_effort", *effort);
    if (const Value* format = given(*output, "format")) {
      if (!format->is_object() || required_string(*format, "type", "output_config.format") != "json_schema")
        refuse_field("output_config.format.type", "is not \"json_schema\"");
      const Value* schema = given(*format, "schema");
      if (!schema) refuse_field("output_config.format.schema", "is missing");
      own.set("response_format",
              Value::object({{"type", "json_schema"},
                             {"json_schema", Value::object({{"name", "answer"}, {"schema", *schema}})}}));
    }
  }
  return chat;
}

}  // namespace

MessagesRequest read_messages_request(const Value& body, const OpenAiModel& model) {
  TranslatedChat chat = chat_of(body, model);
  if (!given(body, "max_tokens")) refuse_field("max_tokens", "is missing");
  return {read_translated_chat(std::move(chat), model), flag(body, "stream", false)};
}

std::size_t count_message_tokens(const Value& body, const OpenAiModel& model) {
  return read_translated_chat(chat_of(body, model), model).texts[0].prompt.size();
}

}  // namespace weft::serve
