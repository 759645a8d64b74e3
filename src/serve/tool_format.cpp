#include "serve/tool_format.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kProbe = "weft_probe";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// The end of the JSON value that begins at `begin` with a bracket; npos if it does not end.
std::size_t end_of_json(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// References of a schema that becomes a part of another one, at this place.
Value moved(const Value& schema, const std::string& place) {
  if (schema.is_array()) {
    Value::Array list;
    for (const Value& each : schema.elements()) list.push_back(moved(each, place));
    return list;
  }
  if (!schema.is_object()) return schema;
  Value::Object members;
  for (const auto& [key, inner] : schema.members()) {
    if (key == "$ref" && inner.is_string() && (inner.string() == "#" || inner.string().starts_with("#/")))
      members.set(key, Value(place + inner.string().substr(1)));
    else if (key != "$schema" && key != "$id")
      members.set(key, moved(inner, place));
  }
  return members;
}

}  // namespace

ToolFormat ToolFormat::of(const llm::Model& model) {
  ToolFormat format;
  if (!model.has_template()) return format;
  const std::string function = fmt::format(
      R"({{"name": "{}", "description": "", "parameters": {{"type": "object", "properties": {{}}}}}})", kProbe);
  const llm::ChatOptions chat{.tools = fmt::format(R"([{{"type": "function", "function": {}}}])", function)};
  const std::vector<llm::Message> asked = {{"user", "?"}};
  std::vector<llm::Message> called = asked;
  called.push_back(
      {.role = "assistant",
       .content = "",
       .tool_calls = fmt::format(
           R"([{{"id": "call00000", "type": "function", "function": {{"name": "{}", "arguments": {{"a": 1}}}}}}])",
           kProbe)});
  std::string text;
  try {
    llm::ChatOptions whole = chat;
    whole.add_generation_prompt = false;
    const std::string before = model.render(asked, chat), after = model.render(called, whole);
    if (!after.starts_with(before)) return format;
    text = after.substr(before.size());
  } catch (const Error&) {  // the template takes no calls
    return format;
  }
  const std::size_t begin = text.find_first_of("{[");
  for (std::size_t at = begin; at != std::string::npos; at = text.find_first_of("{[", at + 1)) {
    const std::size_t end = end_of_json(text, at);
    if (end == std::string::npos) continue;
    try {
      const Value json = Value::parse(std::string_view(text).substr(at, end - at));
      const bool is_list = json.is_array();
      const Value& call = is_list && json.elements().size() == 1 ? json[0] : json;
      if (!call.is_object()) continue;
      const Value* name = call.find("name");
      if (!name || !name->is_string() || name->string() != kProbe) continue;
      ToolFormat found{.opening = text.substr(0, at), .closing = text.substr(end), .is_list = is_list};
      found.arguments_key = call.find("parameters") ? "parameters" : "arguments";
      // The token that ends every message does not belong to the call.
      for (const std::int32_t token : model.end_tokens())
        if (const auto piece = model.tokenizer().piece(token); piece && !piece->empty())
          found.closing = found.closing.substr(0, found.closing.find(*piece));
      while (!found.closing.empty() && kSpace.find(found.closing.back()) != std::string_view::npos)
        found.closing.pop_back();
      return found;
    } catch (const Error&) {  // not JSON
    }
  }
  return format;
}

Value ToolFormat::schema(const Value::Array& tools) const {
  Value::Array calls;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Value& function = tools[i]["function"];
    const std::string at = fmt::format(
        "{}/properties/{}", is_list ? fmt::format("#/items/anyOf/{}", i) : fmt::format("#/anyOf/{}", i), arguments_key);
    const Value* parameters = function.find("parameters");
    calls.push_back(Value::object(
        {{"type", "object"},
         {"properties",
          Value::object({{"name", Value::object({{"const", function["name"]}})},
                         {arguments_key, parameters && !parameters->is_null() ? moved(*parameters, at)
                                                                              : Value::object({{"type", "object"}})}})},
         {"required", Value::array({"name", Value(arguments_key)})},
         {"additionalProperties", false}}));
  }
  Value one = Value::object({{"anyOf", std::move(calls)}});
  if (!is_list) return one;
  return Value::object({{"type", "array"}, {"items", std::move(one)}, {"minItems", 1}});
}

void ToolCallReader::add_content(Part& part, std::string_view text) {
  if (skips_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  skips_space_ = false;
  has_content_ = true;
  part.content += text;
}

// Takes a whole call from the beginning of the held text. False if it does not begin with one.
bool ToolCallReader::take_call(Part& part, bool at_end) {
  const std::size_t begin = held_.find_first_not_of(kSpace);
  if (begin == std::string::npos || (held_[begin] != '{' && held_[begin] != '[')) return false;
  const std::size_t end = end_of_json(held_, begin);
  if (end == std::string::npos) return false;
  std::vector<ToolCall> calls;
  try {
    const Value json = Value::parse(std::string_view(held_).substr(begin, end - begin));
    const Value::Array one = {json};
    for (const Value& each : json.is_array() ? json.elements() : one) {
      const Value* name = each.is_object() ? each.find("name") : nullptr;
      const Value* arguments = name ? each.find(format_.arguments_key) : nullptr;
      const bool is_known =
          name && name->is_string() && std::find(names_.begin(), names_.end(), name->string()) != names_.end();
      if (!is_known || !arguments) return false;
      calls.push_back({name->string(), arguments->is_string() ? arguments->string() : arguments->to_json()});
    }
  } catch (const Error&) {
    return false;
  }
  if (!end_call(end, at_end)) return false;
  part.calls.insert(part.calls.end(), calls.begin(), calls.end());
  return true;
}

/// Ends the call that reaches up to `end` of the held text, with its closing text. False if that may be on its way.
bool ToolCallReader::end_call(std::size_t end, bool at_end) {
  std::string_view rest = std::string_view(held_).substr(end);
  const std::string_view closing = trimmed(format_.closing);
  const std::string_view next = rest.substr(std::min(rest.find_first_not_of(kSpace), rest.size()));
  if (!closing.empty()) {
    if (next.starts_with(closing))
      rest = next.substr(closing.size());
    else if (!at_end && closing.starts_with(next))
      return false;
  }
  held_ = std::string(rest);
  in_call_ = false;
  stage_ = Stage::none;
  skips_space_ = true;
  return true;
}

/// Reads {"name": NAME, "arguments": from the held text, and tells of the call. False if that is not there yet.
bool ToolCallReader::begin_pieces(Part& part) {
  std::string_view text = held_;
  bool is_short = false;  // the text ends before it could differ
  const auto take = [&](std::string_view wanted) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.starts_with(wanted)) {
      text.remove_prefix(wanted.size());
      return true;
    }
    is_short = wanted.starts_with(text);
    return false;
  };
  const bool begins = take("{") && take("\"name\"") && take(":") && take("\"");
  const std::size_t quote = begins ? text.find('"') : std::string_view::npos;
  if (begins && quote == std::string_view::npos) return false;
  std::string name;
  if (begins) {
    name = std::string(text.substr(0, quote));
    text.remove_prefix(quote + 1);
  }
  const std::string key = fmt::format("\"{}\"", format_.arguments_key);
  const bool is_known = std::find(names_.begin(), names_.end(), name) != names_.end();
  if (begins && is_known && take(",") && take(key) && take(":") && take("{")) {
    stage_ = Stage::arguments;
    depth_ = 0;
    in_string_ = is_escaped_ = false;
    held_ = "{" + std::string(text);
    part.pieces.push_back({.name = name});
    return true;
  }
  if (!is_short) stage_ = Stage::whole;
  return !is_short;
}

/// Tells what is there of a call. True if it has ended, or is not told in pieces.
bool ToolCallReader::take_pieces(Part& part, bool at_end) {
  if (stage_ == Stage::none && !begin_pieces(part)) return false;
  if (stage_ == Stage::whole) return take_call(part, at_end);
  if (stage_ == Stage::arguments) {
    std::size_t end = 0;
    while (end < held_.size() && stage_ == Stage::arguments) {
      const char c = held_[end++];
      if (is_escaped_)
        is_escaped_ = false;
      else if (in_string_)
        is_escaped_ = c == '\\', in_string_ = c != '"';
      else if (c == '"')
        in_string_ = true;
      else if (c == '{' || c == '[')
        ++depth_;
      else if ((c == '}' || c == ']') && --depth_ == 0)
        stage_ = Stage::end;
    }
    if (end > 0) part.pieces.push_back({.arguments = held_.substr(0, end)});
    held_.erase(0, end);
    if (stage_ == Stage::arguments) return false;
  }
  const std::size_t brace = held_.find_first_not_of(kSpace);
  if (brace == std::string::npos && !at_end) return false;
  return end_call(brace != std::string::npos && held_[brace] == '}' ? brace + 1 : 0, at_end);
}

ToolCallReader::Part ToolCallReader::put(std::string_view piece) {
  Part part;
  held_ += piece;
  const std::string_view opening = trimmed(format_.opening);
  while (true) {
    if (in_call_) {
      if (!(in_pieces_ ? take_pieces(part, false) : take_call(part, false))) return part;
      continue;
    }
    if (opening.empty()) {
      // A call has no beginning of its own, so an answer that begins as JSON is held until its end.
      const std::size_t first = held_.find_first_not_of(kSpace);
      if (!has_content_ && (first == std::string::npos || held_[first] == '{' || held_[first] == '[')) return part;
    } else if (const std::size_t at = held_.find(opening); at != std::string::npos) {
      add_content(part, held_.substr(0, at));
      held_.erase(0, at + opening.size());
      in_call_ = true;
      continue;
    }
    std::size_t keep = std::min(held_.size(), opening.empty() ? 0 : opening.size() - 1);
    while (keep > 0 && !opening.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
    add_content(part, held_.substr(0, held_.size() - keep));
    held_.erase(0, held_.size() - keep);
    return part;
  }
}

ToolCallReader::Part ToolCallReader::finish() {
  Part part;
  while (!trimmed(held_).empty()) {
    const std::string_view opening = trimmed(format_.opening);
    if (!in_call_ && !opening.empty() && trimmed(held_).starts_with(opening)) {
      held_ = std::string(trimmed(held_).substr(opening.size()));
      in_call_ = true;
    }
    if (!(in_pieces_ && in_call_ ? take_pieces(part, true) : take_call(part, true))) break;
  }
  if (stage_ == Stage::arguments || stage_ == Stage::end) held_.clear();
  add_content(part, held_);
  held_.clear();
  return part;
}

}  // namespace weft::serve
