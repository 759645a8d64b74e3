// Requests of Ollama's API: messages, prompts and options, as chats and texts to continue.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/ollama.hpp"
#include "serve/openai_fields.hpp"
#include "serve/translated_chat.hpp"

namespace weft::serve {
namespace {

constexpr std::string_view kLatest = ":latest";
constexpr Extent kPenaltyWindowMax = 256;

/// The settings of `options`, in the form of chats; numbers that are not given are those of Ollama.
void set_options(const Value& body, TranslatedChat& chat, const OpenAiModel& model) {
  Value::Object& own = chat.body.members();
  const Value* given_options = given(body, "options");
  if (given_options && !given_options->is_object()) refuse_field("options", "is not an object");
  const Value options = given_options ? *given_options : Value(Value::Object());
  const auto take = [&](const char* key, const char* ours, Value otherwise) {
    const Value* value = given(options, key);
    own.set(ours, value ? *value : std::move(otherwise));
  };
  take("temperature", "temperature", 0.8);
  take("top_k", "top_k", 40);
  take("top_p", "top_p", 0.9);
  take("min_p", "min_p", 0.0);
  take("repeat_penalty", "repetition_penalty", 1.1);
  take("frequency_penalty", "frequency_penalty", 0.0);
  take("presence_penalty", "presence_penalty", 0.0);
  const std::int64_t most = integer_in(options, "num_predict", -2, INT32_MAX, -1);
  own.set("max_completion_tokens", Value(most > 0 ? most : model.model.context()));
  // A seed below 0 is none.
  if (const Value* seed = given(options, "seed"); seed && !(seed->is_number() && seed->number() < 0))
    own.set("seed", *seed);
  if (const Value* stop = given(options, "stop")) {
    if (!stop->is_string() && !stop->is_array()) refuse_field("stop", "is neither a string nor a list of strings");
    if (stop->is_string())
      chat.stop.push_back(stop->string());
    else
      for (const Value& each : stop->elements()) chat.stop.push_back(string_in(each, "stop"));
  }
}

void set_format(const Value& body, Value::Object& chat) {
  const Value* format = given(body, "format");
  if (!format || (format->is_string() && format->string().empty())) return;
  if (format->is_object())
    chat.set("response_format",
             Value::object(
                 {{"type", "json_schema"}, {"json_schema", Value::object({{"name", "answer"}, {"schema", *format}})}}));
  else if (format->is_string() && format->string() == "json")
    chat.set("response_format", Value::object({{"type", "json_object"}}));
  else
    refuse_field("format", "is neither \"json\" nor a schema");
}

void set_thinking(const Value& body, Value::Object& chat) {
  const Value* think = given(body, "think");
  if (!think) return;
  if (think->is_string())
    chat.set("reasoning_effort", *think);
  else
    chat.set("chat_template_kwargs", Value::object({{"enable_thinking", flag(body, "think", false)}}));
}

void set_probabilities(const Value& body, Value::Object& chat) {
  for (const char* key : {"logprobs", "top_logprobs"})
    if (const Value* value = given(body, key)) chat.set(key, *value);
}

/// A text, or parts with images before the text.
Value content_of(const Value& text, const Value* images, const std::string& place) {
  if (!images || (images->is_array() && images->elements().empty())) return text;
  if (!images->is_array()) refuse_field(place, "is not a list");
  Value::Array parts;
  for (const Value& each : images->elements()) parts.push_back(image_part("image/png", string_in(each, place)));
  parts.push_back(Value::object({{"type", "text"}, {"text", text}}));
  return parts;
}

Value message_of(const Value& message, const std::string& place) {
  if (!message.is_object()) refuse_field(place, "is not an object");
  Value made = Value::object({{"role", required_string(message, "role", place)}});
  const Value* text = given(message, "content");
  const Value content = text ? Value(string_in(*text, place + ".content")) : Value("");
  made.members().set("content", content_of(content, given(message, "images"), place + ".images"));
  for (const auto& [key, ours] : {std::pair("thinking", "reasoning_content"), std::pair("tool_name", "name"),
                                  std::pair("tool_call_id", "tool_call_id")})
    if (const Value* value = given(message, key)) made.members().set(ours, *value);
  if (const Value* calls = given(message, "tool_calls"); calls && !(calls->is_array() && calls->elements().empty()))
    made.members().set("tool_calls", *calls);
  return made;
}

/// Settings that the form of chats lacks.
void finish_options(const Value& body, CompletionRequest& request) {
  const Value* options = given(body, "options");
  const Value none = Value::Object();
  const Value& own = options ? *options : none;
  const std::int64_t last = integer_in(own, "repeat_last_n", -1, INT32_MAX, 64);
  for (GenerationText& text : request.texts) {
    llm::Sampling& s = text.options.sampling;
    s.penalty_window = last < 0 ? kPenaltyWindowMax : std::min<Extent>(last, kPenaltyWindowMax);
    if (s.penalty_window == 0) {
      s.penalty_window = 1;
      s.repetition_penalty = 1;
      s.frequency_penalty = s.presence_penalty = 0;
    }
    s.typical = number_in(own, "typical_p", 0.01, 1, 1);
  }
}

}  // namespace

Value with_known_name(Value body, const std::vector<std::string>& names) {
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  // Older clients of /api/show and /api/pull say "name".
  const char* key = given(body, "model") ? "model" : "name";
  std::string name = required_string(body, key, "");
  if (name.ends_with(kLatest) && std::find(names.begin(), names.end(), name) == names.end())
    name.resize(name.size() - kLatest.size());
  body.members().set("model", Value(name));
  return body;
}

OllamaRequest read_ollama_chat(const Value& body, const OpenAiModel& model) {
  OllamaRequest request{.is_chat = true, .streams = flag(body, "stream", true)};
  const Value* messages = given(body, "messages");
  if (messages && !messages->is_array()) refuse_field("messages", "is not a list");
  if (!messages || messages->elements().empty()) {
    if (body["model"].string() != model.name) read_completion_request(body, model);  // which refuses the name
    return request;
  }
  TranslatedChat chat;
  Value::Object& own = chat.body.members();
  own.set("model", body["model"]);
  Value::Array list;
  for (std::size_t i = 0; i < messages->elements().size(); ++i)
    list.push_back(message_of((*messages)[i], fmt::format("messages[{}]", i)));
  // A last message of the assistant is the beginning of the answer.
  if (const Value& last = list.back(); list.size() > 1 && last["role"].string() == "assistant" &&
                                       !last.find("tool_calls") && last["content"].is_string()) {
    chat.beginning = last["content"].string();
    list.pop_back();
  }
  own.set("messages", Value(std::move(list)));
  if (const Value* tools = given(body, "tools"); tools && !(tools->is_array() && tools->elements().empty()))
    own.set("tools", *tools);
  set_options(body, chat, model);
  set_format(body, own);
  set_thinking(body, own);
  set_probabilities(body, own);
  request.completion = read_translated_chat(std::move(chat), model);
  finish_options(body, request.completion);
  return request;
}

OllamaRequest read_ollama_generate(const Value& body, const OpenAiModel& model) {
  OllamaRequest request{.streams = flag(body, "stream", true)};
  const Value* prompt = given(body, "prompt");
  const std::string text = prompt ? string_in(*prompt, "prompt") : "";
  const Value* suffix = given(body, "suffix");
  const bool fills_in = suffix && !string_in(*suffix, "suffix").empty();
  if (const Value* own = given(body, "template"); own && !string_in(*own, "template").empty())
    refuse_field("template", "is not supported; give the whole prompt with \"raw\": true");
  TranslatedChat chat;
  Value::Object& own = chat.body.members();
  own.set("model", body["model"]);
  set_options(body, chat, model);
  set_format(body, own);
  const bool is_raw = flag(body, "raw", false) || fills_in || !model.model.has_template();
  if (text.empty() && !fills_in) {
    if (body["model"].string() != model.name) read_completion_request(body, model);  // which refuses the name
    return request;
  }
  if (is_raw) {
    if (flag(body, "logprobs", false)) refuse_field("logprobs", "is given for a raw prompt; use /v1/completions");
    own.set("prompt", Value(text));
    if (fills_in) own.set("suffix", *suffix);
    own.set("stream", true);
    request.completion = read_completion_request(chat.body, model);
    for (GenerationText& each : request.completion.texts) each.options.stop = chat.stop;
  } else {
    Value::Array list;
    if (const Value* system = given(body, "system"))
      if (std::string words = string_in(*system, "system"); !words.empty())
        list.push_back(Value::object({{"role", "system"}, {"content", std::move(words)}}));
    list.push_back(
        Value::object({{"role", "user"}, {"content", content_of(Value(text), given(body, "images"), "images")}}));
    own.set("messages", Value(std::move(list)));
    set_thinking(body, own);
    set_probabilities(body, own);
    request.completion = read_translated_chat(std::move(chat), model);
  }
  finish_options(body, request.completion);
  return request;
}

}  // namespace weft::serve
