#include "cli/conversation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.hpp"
#include "cli/output.hpp"
#include "jinja/json.hpp"
#include "serve/image_url.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_at(const OrderedJson& message, const char* key, std::string_view where) {
  const auto found = message.find(key);
  if (found == message.end() || found->is_null()) return {};
  if (!found->is_string()) throw FileError(fmt::format("{}: \"{}\" is not a text", where, key));
  return found->get<std::string>();
}

llm::ContentPart part_from(const OrderedJson& json, std::string_view where) {
  const std::string type = json.is_object() ? text_at(json, "type", where) : "";
  if (type == "text") return text_at(json, "text", where);
  if (type != "image_url" || !json.contains("image_url") || !json["image_url"].is_object())
    throw FileError(fmt::format("{}: \"content\" has a part that is neither a text nor an image_url", where));
  try {
    return serve::image_of_url(text_at(json["image_url"], "url", where));
  } catch (const UsageError& error) {  // of the file's text
    throw FileError(fmt::format("{}: {}", where, error.what()));
  }
}

OrderedJson part_json(const llm::ContentPart& part) {
  if (!part.image.defined()) return {{"type", "text"}, {"text", part.text}};
  return {{"type", "image_url"}, {"image_url", {{"url", serve::url_of_image(part.image)}}}};
}

llm::Message message_from(const OrderedJson& json, std::string_view where) {
  if (!json.is_object())
    throw FileError(fmt::format("{} is not an object such as {{\"role\": \"user\", \"content\": \"Hi\"}}", where));
  llm::Message message{text_at(json, "role", where), ""};
  if (const auto content = json.find("content"); content != json.end() && content->is_array())
    for (const OrderedJson& part : *content) message.parts.push_back(part_from(part, where));
  else
    message.content = text_at(json, "content", where);
  message.reasoning = text_at(json, "reasoning_content", where);
  message.name = text_at(json, "name", where);
  message.tool_call_id = text_at(json, "tool_call_id", where);
  if (const auto calls = json.find("tool_calls"); calls != json.end() && !calls->is_null())
    message.tool_calls = calls->dump();
  if (message.role.empty()) throw FileError(fmt::format("{} has no \"role\"", where));
  return message;
}

}  // namespace

std::vector<llm::Message> Conversation::shown() const {
  std::vector<llm::Message> list;
  if (!system.empty()) list.push_back({"system", system});
  list.insert(list.end(), turns.begin() + static_cast<std::ptrdiff_t>(forgotten), turns.end());
  return list;
}

std::vector<llm::Message> Conversation::all() const {
  std::vector<llm::Message> list;
  if (!system.empty()) list.push_back({"system", system});
  list.insert(list.end(), turns.begin(), turns.end());
  return list;
}

bool Conversation::forget_oldest() {
  const auto begin = turns.begin() + static_cast<std::ptrdiff_t>(forgotten);
  if (begin == turns.end()) return false;
  const auto next = std::find_if(begin + 1, turns.end(), [](const llm::Message& m) { return m.role == "user"; });
  if (next == turns.end()) return false;
  forgotten = static_cast<std::size_t>(next - turns.begin());
  return true;
}

void Conversation::clear() {
  turns.clear();
  forgotten = 0;
}

std::optional<llm::Message> Conversation::take_back() {
  const auto last = std::find_if(turns.rbegin(), turns.rend(), [](const llm::Message& m) { return m.role == "user"; });
  if (last == turns.rend()) return std::nullopt;
  llm::Message question = *last;
  turns.erase(std::prev(last.base()), turns.end());
  forgotten = std::min(forgotten, turns.size());
  return question;
}

std::string to_json(const Conversation& conversation) {
  OrderedJson list = OrderedJson::array();
  for (const llm::Message& m : conversation.all()) {
    OrderedJson& json = list.emplace_back(OrderedJson{{"role", m.role}, {"content", m.content}});
    if (!m.parts.empty()) {
      json["content"] = OrderedJson::array();
      for (const llm::ContentPart& part : m.parts) json["content"].push_back(part_json(part));
    }
    if (!m.reasoning.empty()) json["reasoning_content"] = m.reasoning;
    if (!m.tool_calls.empty()) json["tool_calls"] = OrderedJson::parse(m.tool_calls);
    if (!m.name.empty()) json["name"] = m.name;
    if (!m.tool_call_id.empty()) json["tool_call_id"] = m.tool_call_id;
  }
  return json_text(list, 2) + "\n";
}

Conversation conversation_from_json(std::string_view text, std::string_view source) {
  OrderedJson json = jinja::parse_ordered_json(text, source);
  if (json.is_object() && json.contains("messages")) json = OrderedJson(json["messages"]);
  if (!json.is_array())
    throw FileError(fmt::format("{}: the document is not a list of messages [{{...}}]; /save writes one", source));
  Conversation conversation;
  for (std::size_t i = 0; i < json.size(); ++i) {
    llm::Message message = message_from(json[i], fmt::format("{}: message {}", source, i + 1));
    if (i == 0 && message.role == "system")
      conversation.system = std::move(message.content);
    else
      conversation.turns.push_back(std::move(message));
  }
  return conversation;
}

}  // namespace weft::cli
