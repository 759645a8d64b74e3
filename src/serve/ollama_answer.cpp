// Answers of Ollama's API, made of the chunks that a chat would have, and what it tells about models.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <span>
#include <utility>

#include "base/sha256.hpp"
#include "base/utc_time.hpp"
#include "llm/engine.hpp"
#include "serve/fill_in.hpp"
#include "serve/ollama.hpp"
#include "weft/device.hpp"

namespace weft::serve {
namespace {

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

std::string tagged(const std::string& name) { return name.find(':') == std::string::npos ? name + ":latest" : name; }

/// Clients know a model by the digest of its files; this is that of its name.
std::string digest_of(const std::string& name) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(name)));
  return hash.finish();
}

/// The prompt of a short chat; empty if the model's template refuses it.
std::string rendered(const llm::Model& model, const llm::ChatOptions& chat) {
  if (!model.has_template()) return {};
  try {
    return model.render({{"user", "hello"}}, chat);
  } catch (const UsageError&) {
    return {};
  }
}

/// What a model can do, as its chat template shows.
Value::Array capabilities_of(const llm::Model& model) {
  Value::Array list{"completion"};
  if (model.reads_images()) list.emplace_back("vision");
  if (can_fill_in(model)) list.emplace_back("insert");
  constexpr std::string_view kProbe = "weft_probe_tool";
  const std::string tool = fmt::format(
      R"([{{"type": "function", "function": {{"name": "{}", "description": "", "parameters": {{"type": "object", "properties": {{}}}}}}}}])",
      kProbe);
  if (rendered(model, {.tools = tool}).find(kProbe) != std::string::npos) list.emplace_back("tools");
  const std::string thinks = rendered(model, {.variables = R"({"enable_thinking": true})"});
  if (llm::opens_reasoning(thinks) || thinks != rendered(model, {.variables = R"({"enable_thinking": false})"}))
    list.emplace_back("thinking");
  return list;
}

Value details_of(const OllamaModel& model) {
  return Value::object({{"parent_model", ""},
                        {"format", model.format},
                        {"family", model.family},
                        {"families", Value::array({Value(model.family)})},
                        {"parameter_size", ""},
                        {"quantization_level", ""}});
}

}  // namespace

OllamaAnswer::OllamaAnswer(OllamaRequest request, const OpenAiModel& model)
    : completion_(request.completion, model, 0),
      model_(tagged(model.name)),
      is_chat_(request.is_chat),
      has_text_(!request.completion.texts.empty()) {
  if (has_text_) prompt_tokens_ = request.completion.texts[0].prompt.size();
}

// A call is told as a whole, with its arguments as an object. One that was cut off is left out.
void OllamaAnswer::end_call(Part& part) {
  if (!std::exchange(is_in_call_, false)) return;
  Value arguments;
  try {
    arguments = Value::parse(call_arguments_);
  } catch (const Error&) {
    return;
  }
  const std::size_t index = whole_.calls.size() + part.calls.size();
  part.calls.push_back(Value::object(
      {{"function", Value::object({{"index", index}, {"name", call_name_}, {"arguments", std::move(arguments)}})}}));
}

OllamaAnswer::Part OllamaAnswer::read_chunks(const GenerationEvent& event) {
  Part part;
  const auto add = [](std::string& text, const Value* value) {
    if (value && value->is_string()) text += value->string();
  };
  for (const Value& chunk : completion_.take(event)) {
    const Value& choice = chunk["choices"][0];
    if (const Value& found = choice["logprobs"]; found.is_object())
      if (const Value* content = found.find("content"))
        part.probabilities.insert(part.probabilities.end(), content->elements().begin(), content->elements().end());
    add(part.content, choice.find("text"));
    const Value* delta = choice.find("delta");
    if (!delta) continue;
    add(part.content, delta->find("content"));
    add(part.thinking, delta->find("reasoning_content"));
    if (const Value* calls = delta->find("tool_calls"))
      for (const Value& call : calls->elements()) {
        const Value& function = call["function"];
        if (const Value* name = function.find("name")) {
          end_call(part);
          is_in_call_ = true;
          call_name_ = name->string();
          call_arguments_.clear();
        }
        add(call_arguments_, function.find("arguments"));
      }
  }
  if (event.has_ended) end_call(part);
  return part;
}

Value OllamaAnswer::line(const Part& part, bool is_done) const {
  Value value = Value::object({{"model", model_}, {"created_at", utc_text(std::time(nullptr))}});
  if (is_chat_) {
    Value message = Value::object({{"role", "assistant"}, {"content", part.content}});
    if (!part.thinking.empty()) message.members().set("thinking", Value(part.thinking));
    if (!part.calls.empty()) message.members().set("tool_calls", Value(part.calls));
    value.members().set("message", std::move(message));
  } else {
    value.members().set("response", Value(part.content));
    if (!part.thinking.empty()) value.members().set("thinking", Value(part.thinking));
  }
  if (!part.probabilities.empty()) value.members().set("logprobs", Value(part.probabilities));
  value.members().set("done", Value(is_done));
  if (!is_done) return value;
  value.members().set("done_reason", Value(reason_));
  if (!has_text_) return value;
  for (const auto& [key, number] :
       {std::pair("total_duration", nanoseconds(total_seconds_)), std::pair("load_duration", std::int64_t{0}),
        std::pair("prompt_eval_count", static_cast<std::int64_t>(prompt_tokens_)),
        std::pair("prompt_eval_duration", nanoseconds(prompt_seconds_)),
        std::pair("eval_count", static_cast<std::int64_t>(tokens_)), std::pair("eval_duration", nanoseconds(seconds_))})
    value.members().set(key, Value(number));
  return value;
}

std::vector<Value> OllamaAnswer::take(const GenerationEvent& event) {
  tokens_ += event.tokens.size();
  Part part = read_chunks(event);
  std::vector<Value> lines;
  if (!part.is_empty()) lines.push_back(line(part, false));
  whole_.content += part.content;
  whole_.thinking += part.thinking;
  std::move(part.calls.begin(), part.calls.end(), std::back_inserter(whole_.calls));
  std::move(part.probabilities.begin(), part.probabilities.end(), std::back_inserter(whole_.probabilities));
  if (!event.has_ended) return lines;
  reason_ = event.finish == llm::Finish::length ? "length" : "stop";
  prompt_seconds_ = event.prompt_seconds;
  seconds_ = event.seconds;
  total_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  lines.push_back(line({}, true));
  return lines;
}

Value OllamaAnswer::body() const { return line(whole_, true); }

OllamaModel ollama_model(const OpenAiModel& model) {
  const auto engine = llm::detail::engine_of(model.model);
  const llm::ModelConfig& config = engine->config();
  OllamaModel made{.name = model.name,
                   .format = config.from_gguf ? "gguf" : "safetensors",
                   .family = config.architecture,
                   .bytes = engine->weight_bytes(),
                   .capabilities = capabilities_of(model.model),
                   .context = model.model.context(),
                   .is_on_cpu = model.model.device() == kCpu};
  Value::Object& facts = made.facts.members();
  const auto add = [&](const char* key, Extent number) {
    facts.set(fmt::format("{}.{}", config.architecture, key), Value(number));
  };
  facts.set("general.architecture", Value(config.architecture));
  if (!config.name.empty()) facts.set("general.basename", Value(config.name));
  add("context_length", config.context);
  add("embedding_length", config.hidden);
  add("block_count", config.layers);
  add("attention.head_count", config.heads);
  add("attention.head_count_kv", config.kv_heads);
  add("vocab_size", config.vocabulary);
  return made;
}

OllamaModel ollama_model(const EncoderDesk& desk) {
  OllamaModel made{.name = desk.name, .format = "safetensors", .family = "encoder", .capabilities = {"embedding"}};
  made.facts = Value::object({{"general.architecture", "encoder"},
                              {"encoder.context_length", desk.model.length()},
                              {"encoder.embedding_length", desk.model.width()}});
  return made;
}

Value ollama_tag(const OllamaModel& model, std::int64_t created) {
  return Value::object({{"name", tagged(model.name)},
                        {"model", tagged(model.name)},
                        {"modified_at", utc_text(created)},
                        {"size", model.bytes},
                        {"digest", digest_of(model.name)},
                        {"details", details_of(model)}});
}

Value ollama_running(const OllamaModel& model, std::int64_t created) {
  Value entry = ollama_tag(model, created);
  entry.members().set("expires_at", "9999-12-31T23:59:59Z");  // with the server
  entry.members().set("size_vram", Value(model.is_on_cpu ? std::uint64_t{0} : model.bytes));
  if (model.context > 0) entry.members().set("context_length", Value(model.context));
  return entry;
}

Value ollama_show(const OllamaModel& model, std::int64_t created) {
  return Value::object({{"modelfile", ""},
                        {"parameters", ""},
                        {"template", ""},
                        {"details", details_of(model)},
                        {"model_info", model.facts},
                        {"capabilities", model.capabilities},
                        {"modified_at", utc_text(created)}});
}

Value ollama_embeddings(const Value& answer, double seconds) {
  Value::Array rows;
  for (const Value& each : answer["data"].elements()) rows.push_back(each["embedding"]);
  return Value::object({{"model", answer["model"]},
                        {"embeddings", std::move(rows)},
                        {"total_duration", nanoseconds(seconds)},
                        {"load_duration", 0},
                        {"prompt_eval_count", answer["usage"]["prompt_tokens"]}});
}

}  // namespace weft::serve
