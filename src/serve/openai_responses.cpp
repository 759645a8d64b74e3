// Requests of the Responses API: items and settings, as a chat.
#include "serve/openai_responses.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "serve/openai_fields.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kItemsMax = 4096;

Value object_of(std::initializer_list<ValueObject::Member> members) { return Value::object(members); }

/// The text of a content: a string, or a list of parts of text.
std::string text_of(const Value& content, const std::string& place) {
  if (content.is_string()) return content.string();
  if (!content.is_array()) refuse_field(place, "is neither a string nor a list of parts");
  std::string text;
  for (const Value& part : content.elements()) {
    const Value* type = part.is_object() ? given(part, "type") : nullptr;
    if (!type || !type->is_string()) refuse_field(place, "has a part without a type");
    const std::string& kind = type->string();
    const bool is_refusal = kind == "refusal";
    if (!is_refusal && kind != "input_text" && kind != "output_text" && kind != "text" && kind != "reasoning_text" &&
        kind != "summary_text")
      refuse_field(place, fmt::format("has a part of type {}; this model reads text", quote(kind, 40)));
    const Value* inner = given(part, is_refusal ? "refusal" : "text");
    if (!inner || !inner->is_string()) refuse_field(place, "has a part without a text");
    text += inner->string();
  }
  return text;
}

std::string required_text(const Value& item, const char* key, const std::string& place) {
  const Value* value = given(item, key);
  if (!value) refuse_field(fmt::format("{}.{}", place, key), "is missing");
  return string_in(*value, fmt::format("{}.{}", place, key));
}

/// The messages of a chat from items. Calls that follow each other are of one message, and so is the reasoning before them.
class Messages {
 public:
  void add(const Value& item, const std::string& place) {
    if (!item.is_object()) refuse_field(place, "is not an object");
    const Value* given_type = given(item, "type");
    const std::string type = given_type ? string_in(*given_type, place + ".type") : "message";
    if (type == "message") {
      add_message(item, place);
    } else if (type == "function_call") {
      Value call = object_of({{"id", required_text(item, "call_id", place)},
                              {"type", "function"},
                              {"function", object_of({{"name", required_text(item, "name", place)},
                                                      {"arguments", required_text(item, "arguments", place)}})}});
      calls_.push_back(std::move(call));
    } else if (type == "function_call_output") {
      flush();
      const Value* output = given(item, "output");
      if (!output) refuse_field(place + ".output", "is missing");
      list_.push_back(object_of({{"role", "tool"},
                                 {"tool_call_id", required_text(item, "call_id", place)},
                                 {"content", text_of(*output, place + ".output")}}));
    } else if (type == "reasoning") {
      flush();
      for (const char* key : {"content", "summary"})
        if (const Value* content = given(item, key); content && reasoning_.empty())
          reasoning_ = text_of(*content, fmt::format("{}.{}", place, key));
    } else {
      refuse_field(
          place + ".type",
          fmt::format("is {}; known are message, function_call, function_call_output and reasoning", quote(type, 40)));
    }
  }
  Value::Array take() {
    flush();
    return std::move(list_);
  }

 private:
  void add_message(const Value& item, const std::string& place) {
    const std::string role = required_text(item, "role", place);
    if (role != "assistant") flush();
    const Value* content = given(item, "content");
    if (!content) refuse_field(place + ".content", "is missing");
    if (role == "assistant") {
      if (!content_.empty() || !calls_.empty()) flush();
      content_ = text_of(*content, place + ".content");
      has_content_ = true;
      return;
    }
    if (role != "user" && role != "system" && role != "developer")
      refuse_field(place + ".role", "is none of user, assistant, system and developer");
    list_.push_back(object_of({{"role", role}, {"content", text_of(*content, place + ".content")}}));
  }
  /// Ends the message of the assistant.
  void flush() {
    if (has_content_ || !calls_.empty() || !reasoning_.empty()) {
      Value message = object_of({{"role", "assistant"}, {"content", content_}});
      if (!calls_.empty()) message.members().set("tool_calls", Value(std::exchange(calls_, {})));
      if (!reasoning_.empty()) message.members().set("reasoning_content", Value(reasoning_));
      list_.push_back(std::move(message));
    }
    content_.clear();
    reasoning_.clear();
    has_content_ = false;
  }

  Value::Array list_, calls_;
  std::string content_, reasoning_;
  bool has_content_ = false;
};

/// Functions, in the form of chats.
Value tools_of(const Value& tools) {
  if (!tools.is_array()) refuse_field("tools", "is not a list");
  Value::Array list;
  for (std::size_t i = 0; i < tools.elements().size(); ++i) {
    const Value& tool = tools[i];
    const std::string place = fmt::format("tools[{}]", i);
    const Value* type = tool.is_object() ? given(tool, "type") : nullptr;
    if (!type || !type->is_string() || type->string() != "function")
      refuse_field(place + ".type", "is not \"function\"; this server has no tools of its own");
    Value function = object_of({{"name", required_text(tool, "name", place)}});
    for (const char* key : {"description", "parameters", "strict"})
      if (const Value* value = given(tool, key)) function.members().set(key, *value);
    list.push_back(object_of({{"type", "function"}, {"function", std::move(function)}}));
  }
  return list;
}

Value tool_choice_of(const Value& choice) {
  if (!choice.is_object()) return choice;
  const Value* type = given(choice, "type");
  if (type && type->is_string() && type->string() == "allowed_tools") return choice;
  if (!type || !type->is_string() || type->string() != "function")
    refuse_field("tool_choice", "is none of none, auto, required, a function and allowed_tools");
  return object_of(
      {{"type", "function"}, {"function", object_of({{"name", required_text(choice, "name", "tool_choice")}})}});
}

/// text.format as the response_format of chats.
Value format_of(const Value& text) {
  if (!text.is_object()) refuse_field("text", "is not an object");
  const Value* format = given(text, "format");
  if (!format) return {};
  const Value* type = format->is_object() ? given(*format, "type") : nullptr;
  if (!type || !type->is_string()) refuse_field("text.format", "is not an object with a \"type\"");
  if (type->string() != "json_schema") return *format;
  Value schema = Value::Object();
  for (const char* key : {"name", "schema", "strict", "description"})
    if (const Value* value = given(*format, key)) schema.members().set(key, *value);
  return object_of({{"type", "json_schema"}, {"json_schema", std::move(schema)}});
}

}  // namespace

ResponseRequest read_response_request(const Value& body, const OpenAiModel& model, const ResponseStore& store) {
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  ResponseRequest request;
  request.streams = flag(body, "stream", false);
  request.stores = flag(body, "store", true);
  if (flag(body, "background", false)) refuse_field("background", "is true, which is not supported; use stream");

  if (const Value* previous = given(body, "previous_response_id")) {
    const std::string id = string_in(*previous, "previous_response_id");
    const std::optional<StoredResponse> found = store.find(id);
    if (!found)
      throw OpenAiError(
          404, fmt::format("the response {} is not stored here; give the conversation as \"input\"", quote(id, 80)),
          "previous_response_id", "previous_response_not_found");
    request.items = found->items;
  }
  const Value* input = given(body, "input");
  if (!input) refuse_field("input", "is missing");
  const std::size_t earlier = request.items.size();
  if (input->is_string())
    request.items.push_back(object_of({{"type", "message"}, {"role", "user"}, {"content", *input}}));
  else if (input->is_array() && !input->elements().empty())
    request.items.insert(request.items.end(), input->elements().begin(), input->elements().end());
  else
    refuse_field("input", "is neither a string nor a list of items");
  if (request.items.size() > kItemsMax) refuse_field("input", fmt::format("makes more than {} items", kItemsMax));

  Messages messages;
  for (std::size_t i = 0; i < request.items.size(); ++i)
    messages.add(request.items[i], fmt::format("input[{}]", i < earlier ? 0 : i - earlier));
  Value::Array list = messages.take();
  // Instructions are of this response alone, so they are not kept among its items.
  if (const Value* instructions = given(body, "instructions"))
    list.insert(list.begin(), object_of({{"role", "system"}, {"content", string_in(*instructions, "instructions")}}));

  Value chat = object_of({{"messages", std::move(list)}, {"stream", true}});
  const auto set = [&](const char* key, Value value) { chat.members().set(key, std::move(value)); };
  for (const char* key : {"model", "temperature", "top_p", "parallel_tool_calls", "seed", "stop", "frequency_penalty",
                          "presence_penalty", "top_k", "min_p", "chat_template_kwargs"})
    if (const Value* value = given(body, key)) set(key, *value);
  if (given(body, "max_output_tokens"))
    set("max_completion_tokens", Value(integer_in(body, "max_output_tokens", 1, INT32_MAX, 1)));
  if (const Value* tools = given(body, "tools"); tools && !(tools->is_array() && tools->elements().empty()))
    set("tools", tools_of(*tools));
  if (const Value* choice = given(body, "tool_choice")) set("tool_choice", tool_choice_of(*choice));
  if (const Value* text = given(body, "text"))
    if (Value format = format_of(*text); !format.is_null()) set("response_format", std::move(format));
  if (const Value* reasoning = given(body, "reasoning")) {
    if (!reasoning->is_object()) refuse_field("reasoning", "is not an object");
    if (const Value* effort = given(*reasoning, "effort")) set("reasoning_effort", *effort);
  }
  request.completion = read_chat_request(chat, model);

  request.settings = Value::Object();
  const auto repeat = [&](const char* key, Value otherwise) {
    const Value* value = given(body, key);
    request.settings.members().set(key, value ? *value : std::move(otherwise));
  };
  repeat("instructions", {});
  repeat("max_output_tokens", {});
  repeat("metadata", Value::Object());
  repeat("parallel_tool_calls", true);
  repeat("previous_response_id", {});
  repeat("reasoning", object_of({{"effort", Value()}, {"summary", Value()}}));
  repeat("temperature", 1.0);
  repeat("text", object_of({{"format", object_of({{"type", "text"}})}}));
  repeat("tool_choice", "auto");
  repeat("tools", Value::Array());
  repeat("top_p", 1.0);
  repeat("truncation", "disabled");
  repeat("user", {});
  request.settings.members().set("store", Value(request.stores));
  return request;
}

}  // namespace weft::serve
