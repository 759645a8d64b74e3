// Answers of the Messages API, made of the chunks that a chat would have.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/utc_time.hpp"
#include "serve/anthropic.hpp"

namespace weft::serve {
namespace {

std::string fresh_name(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

Value typed(std::string_view type, std::initializer_list<ValueObject::Member> members) {
  Value value = Value::object({{"type", type}});
  for (const auto& [key, member] : members) value.members().set(key, member);
  return value;
}

// Arguments that were cut off are no JSON.
Value input_of(const std::string& arguments) {
  try {
    if (Value input = Value::parse(arguments); input.is_object()) return input;
  } catch (const Error&) {
  }
  return Value::Object();
}

}  // namespace

Value anthropic_error_body(int status, std::string_view message, std::string_view code) {
  const auto type_of_status = [&]() -> std::string_view {
    switch (status) {
      case 401: return "authentication_error";
      case 403: return "permission_error";
      case 404: return "not_found_error";
      case 413: return "request_too_large";
      case 429: return "rate_limit_error";
      case 503: return "overloaded_error";
      default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
  };
  Value error = typed(type_of_status(), {{"message", Value(message)}});
  if (code == kNoThreads)
    error.members().set("details", Value::object({{"error_code", code}, {"unsupported", Value::array({"thread"})}}));
  return typed("error", {{"error", std::move(error)}});
}

Value anthropic_model_entry(std::string_view name, std::int64_t created) {
  return typed("model", {{"id", Value(name)}, {"display_name", Value(name)}, {"created_at", Value(utc_text(created))}});
}

MessagesAnswer::MessagesAnswer(MessagesRequest request, const OpenAiModel& model)
    : completion_(request.completion, model, 0),
      id_(fresh_name("msg_")),
      model_(model.name),
      prompt_tokens_(request.completion.texts[0].prompt.size()) {}

Value MessagesAnswer::usage() const {
  // Tokens that were in the cache are counted apart.
  return Value::object({{"input_tokens", prompt_tokens_ - cached_tokens_},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", cached_tokens_},
                        {"output_tokens", tokens_}});
}

Value MessagesAnswer::block_value(const Block& block, bool is_whole) {
  const Value text = is_whole ? block.text : "";
  switch (block.kind) {
    case Kind::thinking: return typed("thinking", {{"thinking", text}, {"signature", Value("")}});
    case Kind::call:
      return typed("tool_use", {{"id", Value(block.id)},
                                {"name", Value(block.name)},
                                {"input", is_whole ? input_of(block.text) : Value(Value::Object())}});
    default: return typed("text", {{"text", text}});
  }
}

Value MessagesAnswer::body() const {
  Value::Array content;
  for (const Block& block : blocks_) content.push_back(block_value(block, true));
  const auto or_null = [](const std::string& text) { return text.empty() ? Value() : Value(text); };
  return typed("message", {{"id", Value(id_)},
                           {"role", Value("assistant")},
                           {"model", Value(model_)},
                           {"content", Value(std::move(content))},
                           {"stop_reason", or_null(stop_reason_)},
                           {"stop_sequence", or_null(stop_text_)},
                           {"usage", usage()}});
}

std::vector<Value> MessagesAnswer::begin() const { return {typed("message_start", {{"message", body()}})}; }

void MessagesAnswer::open(Kind kind, std::vector<Value>& events, const std::string& id, const std::string& name) {
  if (is_open_ && kind != Kind::call && blocks_.back().kind == kind) return;
  close(events);
  blocks_.push_back({kind, "", id, name});
  is_open_ = true;
  events.push_back(typed("content_block_start", {{"index", Value(blocks_.size() - 1)},
                                                 {"content_block", block_value(blocks_.back(), false)}}));
}

void MessagesAnswer::add_text(std::string_view text, std::vector<Value>& events) {
  if (text.empty()) return;
  Block& block = blocks_.back();
  block.text += text;
  const char *type = "text_delta", *key = "text";
  if (block.kind == Kind::thinking) {
    type = "thinking_delta";
    key = "thinking";
  } else if (block.kind == Kind::call) {
    type = "input_json_delta";
    key = "partial_json";
  }
  Value delta = Value::object({{"type", type}, {key, text}});
  events.push_back(typed("content_block_delta", {{"index", Value(blocks_.size() - 1)}, {"delta", std::move(delta)}}));
}

void MessagesAnswer::close(std::vector<Value>& events) {
  if (!is_open_) return;
  is_open_ = false;
  events.push_back(typed("content_block_stop", {{"index", Value(blocks_.size() - 1)}}));
}

std::vector<Value> MessagesAnswer::take(const GenerationEvent& event) {
  std::vector<Value> events;
  tokens_ += event.tokens.size();
  const auto text_in = [](const Value& object, const char* key) -> std::string_view {
    const Value* text = object.find(key);
    return text && text->is_string() ? std::string_view(text->string()) : std::string_view();
  };
  for (const Value& chunk : completion_.take(event)) {
    const Value& delta = chunk["choices"][0]["delta"];
    if (const auto text = text_in(delta, "reasoning_content"); !text.empty()) {
      open(Kind::thinking, events);
      add_text(text, events);
    }
    if (const auto text = text_in(delta, "content"); !text.empty()) {
      open(Kind::text, events);
      add_text(text, events);
    }
    if (const Value* calls = delta.find("tool_calls"))
      for (const Value& call : calls->elements()) {
        if (const Value* name = call["function"].find("name"))
          open(Kind::call, events, "toolu_" + call["id"].string(), name->string());
        add_text(text_in(call["function"], "arguments"), events);
      }
  }
  if (!event.has_ended) return events;
  close(events);
  cached_tokens_ = std::min(static_cast<std::size_t>(event.reused_tokens), prompt_tokens_);
  const bool calls = std::any_of(blocks_.begin(), blocks_.end(), [](const Block& b) { return b.kind == Kind::call; });
  stop_reason_ = event.finish == llm::Finish::length      ? "max_tokens"
                 : event.finish == llm::Finish::stop_text ? "stop_sequence"
                 : calls                                  ? "tool_use"
                                                          : "end_turn";
  stop_text_ = event.stop_text;
  const Value whole = body();
  events.push_back(typed(
      "message_delta",
      {{"delta", Value::object({{"stop_reason", whole["stop_reason"]}, {"stop_sequence", whole["stop_sequence"]}})},
       {"usage", whole["usage"]}}));
  events.push_back(typed("message_stop", {}));
  return events;
}

}  // namespace weft::serve
