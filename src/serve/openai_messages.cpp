#include "serve/openai_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/quote.hpp"
#include "serve/openai_fields.hpp"

namespace weft::serve {
namespace {

// A string, or a list of parts of text.
std::string content_of(const Value& value, std::string_view place) {
  if (value.is_string()) return value.string();
  if (!value.is_array()) refuse_field(fmt::format("{}.content", place), "is neither a string nor a list of parts");
  std::string text;
  for (const Value& part : value.elements()) {
    const Value* type = part.is_object() ? part.find("type") : nullptr;
    const Value* inner = part.is_object() ? part.find("text") : nullptr;
    if (!type || !type->is_string()) refuse_field(fmt::format("{}.content", place), "has a part without a type");
    if (type->string() != "text" || !inner || !inner->is_string())
      refuse_field(fmt::format("{}.content", place),
                   fmt::format("has a part of type {}; this model reads text", quote(type->string(), 40)));
    text += inner->string();
  }
  return text;
}

// Templates want arguments as an object; the API has them as JSON text.
std::string tool_calls_of(const Value& calls, std::string_view place) {
  const std::string field = fmt::format("{}.tool_calls", place);
  if (!calls.is_array()) refuse_field(field, "is not a list");
  Value::Array list;
  for (const Value& call : calls.elements()) {
    const Value* function = call.is_object() ? call.find("function") : nullptr;
    const Value* name = function && function->is_object() ? function->find("name") : nullptr;
    if (!name || !name->is_string()) refuse_field(field, "has a call without a function's name");
    Value arguments = Value::Object();
    if (const Value* given_arguments = function->find("arguments")) {
      arguments = *given_arguments;
      if (arguments.is_string() && !arguments.string().empty()) try {
          arguments = Value::parse(arguments.string());
        } catch (const Error&) {
          refuse_field(field, "has arguments that are not JSON");
        }
    }
    Value copy =
        Value::object({{"type", "function"}, {"function", Value::object({{"name", *name}, {"arguments", arguments}})}});
    if (const Value* id = call.find("id"); id && id->is_string()) copy.members().set("id", *id);
    list.push_back(std::move(copy));
  }
  return Value(std::move(list)).to_json();
}

}  // namespace

std::vector<llm::Message> read_messages(const Value& body) {
  const Value* list = given(body, "messages");
  if (!list || !list->is_array() || list->elements().empty())
    refuse_field("messages", "is not a list of one message or more");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  std::vector<llm::Message> messages;
  for (std::size_t i = 0; i < list->elements().size(); ++i) {
    const Value& json = (*list)[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!json.is_object()) refuse_field(place, "is not an object with \"role\" and \"content\"");
    const Value* role = given(json, "role");
    if (!role || !role->is_string() ||
        std::find(std::begin(kRoles), std::end(kRoles), role->string()) == std::end(kRoles))
      refuse_field(place + ".role", "is none of system, developer, user, assistant and tool");
    llm::Message message{role->string() == "developer" ? "system" : role->string(), ""};
    const Value *content = given(json, "content"), *calls = given(json, "tool_calls");
    if (content)
      message.content = content_of(*content, place);
    else if (!calls || message.role != "assistant")
      refuse_field(place + ".content", "is missing");
    if (calls) message.tool_calls = tool_calls_of(*calls, place);
    if (const Value* v = given(json, "reasoning_content"))
      message.reasoning = string_in(*v, place + ".reasoning_content");
    if (const Value* v = given(json, "name")) message.name = string_in(*v, place + ".name");
    if (const Value* v = given(json, "tool_call_id")) message.tool_call_id = string_in(*v, place + ".tool_call_id");
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace weft::serve
