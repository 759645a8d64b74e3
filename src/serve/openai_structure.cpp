#include "serve/openai_structure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "serve/openai_fields.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kToolsMax = 128;

}  // namespace

std::optional<llm::Grammar> read_response_format(const Value& body, const OpenAiModel& model) {
  const Value* format = given(body, "response_format");
  if (!format) return std::nullopt;
  const Value* type = format->is_object() ? given(*format, "type") : nullptr;
  if (!type || !type->is_string()) refuse_field("response_format", "is not an object with a \"type\"");
  if (type->string() == "text") return std::nullopt;
  if (type->string() == "json_object") {
    const Value* schema = given(*format, "schema");  // of servers of local models
    if (!schema) return model.grammars.of("an object", [] { return llm::Grammar::json_object(); });
  } else if (type->string() != "json_schema") {
    refuse_field("response_format.type", "is none of text, json_object and json_schema");
  }
  const Value* outer = type->string() == "json_schema" ? given(*format, "json_schema") : format;
  if (!outer || !outer->is_object()) refuse_field("response_format.json_schema", "is not an object");
  if (type->string() == "json_schema") {
    const Value* name = given(*outer, "name");
    const auto is_allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (!name || !name->is_string() || name->string().empty() || name->string().size() > 64 ||
        !std::all_of(name->string().begin(), name->string().end(), is_allowed))
      refuse_field("response_format.json_schema.name", "is not a name of up to 64 letters, digits, _ and -");
  }
  const Value* schema = given(*outer, "schema");
  if (!schema || !(schema->is_object() || schema->is_boolean()))
    refuse_field("response_format.json_schema.schema", "is not a schema");
  try {
    return model.grammars.of("schema " + schema->to_json(), [&] { return llm::Grammar::json_schema(*schema); });
  } catch (const Error& error) {
    throw OpenAiError(400, fmt::format("response_format.json_schema.schema cannot be used: {}", error.what()),
                      "response_format.json_schema.schema");
  }
}

Value::Array read_tools(const Value& body, std::vector<std::string>& names) {
  const Value* tools = given(body, "tools");
  if (!tools) return {};
  if (!tools->is_array() || tools->elements().size() > kToolsMax)
    refuse_field("tools", fmt::format("is not a list of up to {} tools", kToolsMax));
  for (std::size_t i = 0; i < tools->elements().size(); ++i) {
    const Value& tool = (*tools)[i];
    const std::string place = fmt::format("tools[{}]", i);
    const Value* type = tool.is_object() ? given(tool, "type") : nullptr;
    if (!type || !type->is_string() || type->string() != "function")
      refuse_field(place, "is not of the type \"function\"");
    const Value* function = given(tool, "function");
    const Value* name = function && function->is_object() ? given(*function, "name") : nullptr;
    if (!name || !name->is_string() || name->string().empty()) refuse_field(place + ".function.name", "is missing");
    if (const Value* parameters = given(*function, "parameters"); parameters && !parameters->is_object())
      refuse_field(place + ".function.parameters", "is not a schema");
    names.push_back(name->string());
  }
  return tools->elements();
}

ToolChoice read_tool_choice(const Value& body, const std::vector<std::string>& names) {
  const Value* choice = given(body, "tool_choice");
  if (!choice) return {names.empty() ? ToolUse::none : ToolUse::may, names};
  const auto use_of = [&](const Value* mode) {
    const std::string_view text = mode && mode->is_string() ? std::string_view(mode->string()) : std::string_view();
    if (text == "none") return ToolUse::none;
    if (text == "auto") return ToolUse::may;
    if (text != "required")
      refuse_field("tool_choice",
                   "is none of none, auto, required, a function, and allowed_tools with one of these modes");
    if (names.empty()) refuse_field("tool_choice", "is \"required\", and there are no tools");
    return ToolUse::must;
  };
  const auto name_in = [&](const Value& tool) {
    // The Responses API has the name without the object around it.
    const Value* function = tool.is_object() ? given(tool, "function") : nullptr;
    const Value& owner = function ? *function : tool;
    const Value* name = owner.is_object() ? given(owner, "name") : nullptr;
    if (!name || !name->is_string()) refuse_field("tool_choice", "names no function");
    if (std::find(names.begin(), names.end(), name->string()) == names.end())
      refuse_field("tool_choice", fmt::format("names {}, which is not one of the tools", quote(name->string(), 80)));
    return name->string();
  };
  const Value* type = choice->is_object() ? given(*choice, "type") : nullptr;
  if (type && type->is_string() && type->string() == "allowed_tools") {
    const Value* inner = given(*choice, "allowed_tools");
    const Value& allowed = inner && inner->is_object() ? *inner : *choice;
    const Value* tools = given(allowed, "tools");
    if (!tools || !tools->is_array() || tools->elements().empty())
      refuse_field("tool_choice", "has no list of allowed tools");
    ToolChoice made{use_of(given(allowed, "mode")), {}};
    for (const Value& tool : tools->elements()) made.allowed.push_back(name_in(tool));
    return made;
  }
  if (choice->is_object() && given(*choice, "function")) return {ToolUse::must, {name_in(*choice)}, true};
  return {use_of(choice), names};
}

}  // namespace weft::serve
