// Answers of the Responses API, made of the chunks that a chat would have.
#include <fmt/format.h>

#include <random>

#include "serve/openai_responses.hpp"

namespace weft::serve {
namespace {

std::string name_with(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}{:08x}", prefix, device(), device(), device(), device());
}

const Value* member_text(const Value& delta, const char* key) {
  const Value* text = delta.find(key);
  return text && text->is_string() && !text->string().empty() ? text : nullptr;
}

}  // namespace

ResponseAnswer::ResponseAnswer(ResponseRequest request, const OpenAiModel& model, std::int64_t created)
    : streams_(request.streams),
      stores_(request.stores),
      settings_(std::move(request.settings)),
      items_(std::move(request.items)),
      completion_(std::move(request.completion), model, created),
      id_(name_with("resp_")),
      model_(model.name),
      created_(created) {}

Value ResponseAnswer::event(std::string_view type, Value::Object members) {
  Value value = Value::object({{"type", type}, {"sequence_number", number_++}});
  for (const auto& [key, each] : members) value.members().set(key, each);
  return value;
}

Value ResponseAnswer::part_value(const Item& item) const {
  if (item.kind == Open::reasoning) return Value::object({{"type", "reasoning_text"}, {"text", item.text}});
  return Value::object(
      {{"type", "output_text"}, {"text", item.text}, {"annotations", Value::Array()}, {"logprobs", Value::Array()}});
}

Value ResponseAnswer::item_value(const Item& item) const {
  const std::string_view status =
      item.is_done ? was_cut_ && &item == &output_.back() ? "incomplete" : "completed" : "in_progress";
  const Value::Array parts = item.is_done ? Value::Array{part_value(item)} : Value::Array();
  switch (item.kind) {
    case Open::reasoning:
      return Value::object({{"id", item.id},
                            {"type", "reasoning"},
                            {"summary", Value::Array()},
                            {"content", parts},
                            {"status", status}});
    case Open::call:
      return Value::object({{"id", item.id},
                            {"type", "function_call"},
                            {"call_id", item.call_id},
                            {"name", item.name},
                            {"arguments", item.text},
                            {"status", status}});
    default:
      return Value::object(
          {{"id", item.id}, {"type", "message"}, {"role", "assistant"}, {"content", parts}, {"status", status}});
  }
}

void ResponseAnswer::open(Open kind, std::vector<Value>& events, const std::string& name, const std::string& call_id) {
  if (kind != Open::call && !output_.empty() && !output_.back().is_done && output_.back().kind == kind) return;
  close(events);
  const char* prefix = kind == Open::reasoning ? "rs_" : kind == Open::call ? "fc_" : "msg_";
  output_.push_back({kind, name_with(prefix), "", name, call_id});
  const std::size_t index = output_.size() - 1;
  events.push_back(
      event("response.output_item.added", {{"output_index", index}, {"item", item_value(output_.back())}}));
  if (kind != Open::call)
    events.push_back(event("response.content_part.added", {{"item_id", output_.back().id},
                                                           {"output_index", index},
                                                           {"content_index", 0},
                                                           {"part", part_value(output_.back())}}));
}

void ResponseAnswer::add_text(std::string_view text, std::vector<Value>& events) {
  if (text.empty()) return;
  Item& item = output_.back();
  item.text += text;
  Value::Object members{{"item_id", item.id}, {"output_index", output_.size() - 1}};
  if (item.kind != Open::call) members.set("content_index", Value(0));
  members.set("delta", Value(text));
  if (item.kind == Open::message) members.set("logprobs", Value(Value::Array()));
  events.push_back(event(item.kind == Open::call        ? "response.function_call_arguments.delta"
                         : item.kind == Open::reasoning ? "response.reasoning_text.delta"
                                                        : "response.output_text.delta",
                         std::move(members)));
}

void ResponseAnswer::close(std::vector<Value>& events) {
  if (output_.empty() || output_.back().is_done) return;
  Item& item = output_.back();
  item.is_done = true;
  const std::size_t index = output_.size() - 1;
  if (item.kind == Open::call) {
    events.push_back(
        event("response.function_call_arguments.done",
              {{"item_id", item.id}, {"output_index", index}, {"name", item.name}, {"arguments", item.text}}));
  } else {
    Value::Object members{{"item_id", item.id}, {"output_index", index}, {"content_index", 0}, {"text", item.text}};
    if (item.kind == Open::message) members.set("logprobs", Value(Value::Array()));
    events.push_back(event(item.kind == Open::reasoning ? "response.reasoning_text.done" : "response.output_text.done",
                           std::move(members)));
    events.push_back(
        event("response.content_part.done",
              {{"item_id", item.id}, {"output_index", index}, {"content_index", 0}, {"part", part_value(item)}}));
  }
  events.push_back(event("response.output_item.done", {{"output_index", index}, {"item", item_value(item)}}));
}

std::vector<Value> ResponseAnswer::begin() {
  return {event("response.created", {{"response", body()}}), event("response.in_progress", {{"response", body()}})};
}

std::vector<Value> ResponseAnswer::take(const GenerationEvent& generated) {
  std::vector<Value> events;
  bool has_reasoning = false, has_answer = false;
  for (const Value& chunk : completion_.take(generated)) {
    const Value& choice = chunk["choices"][0];
    const Value& delta = choice["delta"];
    if (const Value* text = member_text(delta, "reasoning_content")) {
      has_reasoning = true;
      open(Open::reasoning, events);
      add_text(text->string(), events);
    }
    if (const Value* text = member_text(delta, "content")) {
      has_answer = true;
      open(Open::message, events);
      add_text(text->string(), events);
    }
    if (const Value* calls = delta.find("tool_calls"))
      for (const Value& call : calls->elements()) {
        const Value& function = call["function"];
        if (const Value* name = function.find("name")) open(Open::call, events, name->string(), call["id"].string());
        add_text(function["arguments"].string(), events);
      }
  }
  if (has_reasoning && !has_answer) reasoning_tokens_ += generated.tokens.size();
  if (!generated.has_ended) return events;
  was_cut_ = generated.finish == llm::Finish::length;
  if (output_.empty()) open(Open::message, events);  // an empty text is a message too
  close(events);
  status_ = was_cut_ ? "incomplete" : "completed";
  usage_ = completion_.body()["usage"];
  events.push_back(event(was_cut_ ? "response.incomplete" : "response.completed", {{"response", body()}}));
  return events;
}

Value ResponseAnswer::failure(std::string_view message) {
  status_ = "failed";
  error_ = message;
  return event("response.failed", {{"response", body()}});
}

Value ResponseAnswer::body() const {
  Value::Array output;
  for (const Item& item : output_) output.push_back(item_value(item));
  Value value = Value::object({{"id", id_}, {"object", "response"}, {"created_at", created_}, {"status", status_}});
  const auto set = [&](const char* key, Value member) { value.members().set(key, std::move(member)); };
  set("error", error_.empty() ? Value() : Value::object({{"code", "server_error"}, {"message", error_}}));
  set("incomplete_details", was_cut_ ? Value::object({{"reason", "max_output_tokens"}}) : Value());
  set("model", Value(model_));
  set("output", Value(std::move(output)));
  for (const auto& [key, member] : settings_.members()) set(key.c_str(), member);
  if (usage_.is_null()) {
    set("usage", {});
    return value;
  }
  set("usage", Value::object({{"input_tokens", usage_["prompt_tokens"]},
                              {"input_tokens_details",
                               Value::object({{"cached_tokens", usage_["prompt_tokens_details"]["cached_tokens"]}})},
                              {"output_tokens", usage_["completion_tokens"]},
                              {"output_tokens_details", Value::object({{"reasoning_tokens", reasoning_tokens_}})},
                              {"total_tokens", usage_["total_tokens"]}}));
  return value;
}

Value input_items(const StoredResponse& stored) {
  // The items end with those of the response itself.
  const std::size_t count = stored.items.size() - stored.response["output"].elements().size();
  Value::Array list;
  for (std::size_t i = 0; i < count; ++i) {
    Value item = stored.items[i];
    Value::Object& members = item.members();
    if (!item.find("id")) members.set("id", Value(fmt::format("item_{}", i)));
    if (!item.find("type")) members.set("type", Value("message"));
    if (const Value* content = item.find("content"); content && content->is_string())
      members.set("content", Value::array({Value::object({{"type", "input_text"}, {"text", *content}})}));
    list.push_back(std::move(item));
  }
  const auto id_of = [&](bool last) { return list.empty() ? Value() : (last ? list.back() : list.front())["id"]; };
  const Value first = id_of(false), last = id_of(true);
  return Value::object(
      {{"object", "list"}, {"data", std::move(list)}, {"first_id", first}, {"last_id", last}, {"has_more", false}});
}

std::optional<StoredResponse> ResponseAnswer::to_store() const {
  if (!stores_) return std::nullopt;
  StoredResponse stored{body(), items_};
  for (const Item& item : output_) stored.items.push_back(item_value(item));
  return stored;
}

}  // namespace weft::serve
