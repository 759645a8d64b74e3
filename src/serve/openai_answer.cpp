// Answers of OpenAI's API.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

#include "base/utf8.hpp"
#include "catalogue/wire.hpp"
#include "serve/openai.hpp"

namespace weft::serve {
namespace {

std::string new_name(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

std::string_view finish_name(llm::Finish finish) { return finish == llm::Finish::length ? "length" : "stop"; }

// Bytes of a token as text; what is not UTF-8 is replaced.
std::string repaired(const std::string& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = utf8_sequence_length(std::string_view(bytes).substr(i));
    text += length ? bytes.substr(i, length) : "\xEF\xBF\xBD";
    i += std::max<std::size_t>(length, 1);
  }
  return text;
}

Value bytes_of(const std::string& text) {
  Value::Array bytes;
  for (const char c : text) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return bytes;
}

// JSON lacks -inf.
double finite(float log_probability) { return std::max(static_cast<double>(log_probability), -9999.0); }

Value calls_value(const std::vector<ToolCall>& calls, std::size_t first_index, bool with_index) {
  Value::Array list;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Value call = Value::Object();
    if (with_index) call.members().set("index", Value(first_index + i));
    call.members().set("id", Value(new_name("call_")));
    call.members().set("type", "function");
    call.members().set("function", Value::object({{"name", calls[i].name}, {"arguments", calls[i].arguments}}));
    list.push_back(std::move(call));
  }
  return list;
}

}  // namespace

Value openai_error_body(int status, std::string_view message, std::string_view param, std::string_view code) {
  const auto type_of_status = [&]() -> std::string_view {
    switch (status) {
      case 401: return "authentication_error";
      case 403: return "permission_error";
      case 404: return "not_found_error";
      case 429: return "rate_limit_error";
      case 503: return "unavailable_error";
      default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
  };
  const auto or_null = [](std::string_view text) { return text.empty() ? Value() : Value(text); };
  return Value::object(
      {{"error",
        Value::object(
            {{"message", message}, {"type", type_of_status()}, {"param", or_null(param)}, {"code", or_null(code)}})}});
}

CompletionAnswer::CompletionAnswer(CompletionRequest request, const OpenAiModel& model, std::int64_t created)
    : request_(std::move(request)),
      model_(model),
      created_(created),
      id_(new_name(request_.is_chat ? "chatcmpl-" : "cmpl-")),
      choices_(request_.texts.size()) {
  for (Choice& choice : choices_) {
    if (!request_.tool_names.empty())
      choice.reader.emplace(model.tools, request_.tool_names, request_.begins_in_call, request_.streams);
    // In a text with a grammar from its beginning, <think> is a part of it.
    choice.splits = request_.is_chat && (request_.begins_in_reasoning || !request_.has_grammar);
    if (choice.splits) choice.splitter.emplace(request_.begins_in_reasoning);
  }
}

std::string CompletionAnswer::token_text(std::int32_t id) const { return model_.model.token_bytes(id); }

Value CompletionAnswer::probabilities_of(const std::vector<llm::GeneratedToken>& tokens) const {
  Value::Array list;
  const auto entry = [&](std::int32_t id, float log_probability) {
    const std::string bytes = token_text(id);
    return Value::object(
        {{"token", repaired(bytes)}, {"logprob", finite(log_probability)}, {"bytes", bytes_of(bytes)}});
  };
  for (const llm::GeneratedToken& token : tokens) {
    Value value = entry(token.id, token.log_probability);
    Value::Array top;
    for (const llm::TokenProbability& other : token.top) top.push_back(entry(other.id, other.log_probability));
    value.members().set("top_logprobs", Value(std::move(top)));
    list.push_back(std::move(value));
  }
  return list;
}

// The form of /v1/completions: parallel lists.
Value CompletionAnswer::legacy_probabilities(const Choice& choice) const {
  Value::Array tokens, values, tops, offsets;
  std::size_t offset = request_.echo.size();
  for (const Value& each : choice.probabilities) {
    tokens.push_back(each["token"]);
    values.push_back(each["logprob"]);
    Value top = Value::Object();
    for (const Value& other : each["top_logprobs"].elements())
      top.members().set(other["token"].string(), other["logprob"]);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += each["token"].string().size();
  }
  return Value::object(
      {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}});
}

Value CompletionAnswer::head(std::string_view object) const {
  return Value::object({{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name}});
}

Value CompletionAnswer::chunk(std::size_t index, Value delta, Value finish, Value probabilities) const {
  Value value = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  Value choice = Value::object({{"index", index}});
  if (request_.is_chat)
    choice.members().set("delta", std::move(delta));
  else
    choice.members().set("text", std::move(delta));
  choice.members().set("logprobs", std::move(probabilities));
  choice.members().set("finish_reason", std::move(finish));
  value.members().set("choices", Value::array({std::move(choice)}));
  if (request_.includes_usage) value.members().set("usage", Value());
  return value;
}

std::vector<Value> CompletionAnswer::take(const GenerationEvent& event) {
  Choice& choice = choices_[event.text];
  std::vector<Value> chunks;
  choice.tokens += event.tokens.size();
  reused_ += event.reused_tokens;
  // What is new of the content, of the reasoning, and of calls.
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  std::vector<ToolCallReader::Piece> pieces;
  const auto add_content = [&](std::string_view text, bool is_last) {
    if (!choice.reader) {
      content += text;
      return;
    }
    const auto add = [&](const ToolCallReader::Part& part) {
      content += part.content;
      calls.insert(calls.end(), part.calls.begin(), part.calls.end());
      pieces.insert(pieces.end(), part.pieces.begin(), part.pieces.end());
    };
    add(choice.reader->put(text));
    if (is_last) add(choice.reader->finish());
  };
  const auto add_parts = [&](const std::vector<llm::ReasoningSplitter::Part>& parts) {
    for (const auto& part : parts) {
      if (part.reasoning) {
        reasoning += part.text;
        continue;
      }
      std::string_view text = part.text;
      // White space between the reasoning and the answer belongs to neither.
      if (!choice.reasoning.empty() || !reasoning.empty())
        if (choice.content.empty() && content.empty())
          text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
      add_content(text, false);
    }
  };
  if (choice.splits) {
    add_parts(choice.splitter->put(event.piece));
    if (event.has_ended) add_parts(choice.splitter->finish());
    if (event.has_ended) add_content("", true);
  } else {
    add_content(event.piece, event.has_ended);
  }
  if (request_.streams && !request_.is_chat && !choice.has_role) content = request_.echo + content;
  Value probabilities;
  if (request_.wants_probabilities && !event.tokens.empty()) {
    const Value list = probabilities_of(event.tokens);
    if (request_.is_chat) {
      probabilities = Value::object({{"content", list}, {"refusal", Value()}});
    } else {
      Choice own;
      own.probabilities = list.elements();
      probabilities = legacy_probabilities(own);
    }
    choice.probabilities.insert(choice.probabilities.end(), list.elements().begin(), list.elements().end());
  }
  Value::Array call_pieces;
  for (const ToolCallReader::Piece& piece : pieces) {
    if (!piece.name.empty()) {
      call_pieces.push_back(calls_value({{piece.name, ""}}, choice.calls.size(), true)[0]);
      choice.calls.push_back({piece.name, ""});
      continue;
    }
    choice.calls.back().arguments += piece.arguments;
    call_pieces.push_back(Value::object(
        {{"index", choice.calls.size() - 1}, {"function", Value::object({{"arguments", piece.arguments}})}}));
  }
  const std::size_t first_call = choice.calls.size();
  choice.content += content;
  choice.reasoning += reasoning;
  choice.calls.insert(choice.calls.end(), calls.begin(), calls.end());
  if (event.has_ended)
    choice.finish =
        !choice.calls.empty() && event.finish != llm::Finish::length ? "tool_calls" : finish_name(event.finish);
  if (!request_.streams) return chunks;

  if (request_.is_chat && !choice.has_role)
    chunks.push_back(chunk(event.text, Value::object({{"role", "assistant"}, {"content", ""}}), {}, {}));
  choice.has_role = true;
  if (!request_.is_chat) {
    if (!content.empty() || event.has_ended)
      chunks.push_back(
          chunk(event.text, Value(content), event.has_ended ? Value(choice.finish) : Value(), probabilities));
    return chunks;
  }
  if (!reasoning.empty())
    chunks.push_back(chunk(event.text, Value::object({{"reasoning_content", reasoning}}), {}, {}));
  if (!content.empty() || !probabilities.is_null())
    chunks.push_back(chunk(event.text, Value::object({{"content", content}}), {}, probabilities));
  for (Value& piece : call_pieces)
    chunks.push_back(chunk(event.text, Value::object({{"tool_calls", Value::array({std::move(piece)})}}), {}, {}));
  if (!calls.empty())
    chunks.push_back(chunk(event.text, Value::object({{"tool_calls", calls_value(calls, first_call, true)}}), {}, {}));
  if (event.has_ended) chunks.push_back(chunk(event.text, Value::Object(), Value(choice.finish), {}));
  return chunks;
}

Value CompletionAnswer::usage() const {
  std::size_t prompts = 0, tokens = 0;
  // The choices of a prompt have read it once, as the API counts.
  for (std::size_t i = 0; i < request_.texts.size(); i += request_.choices) prompts += request_.texts[i].prompt.size();
  for (const Choice& choice : choices_) tokens += choice.tokens;
  const auto cached = std::min(static_cast<std::size_t>(reused_), prompts);
  return Value::object({{"prompt_tokens", prompts},
                        {"completion_tokens", tokens},
                        {"total_tokens", prompts + tokens},
                        {"prompt_tokens_details", Value::object({{"cached_tokens", cached}})}});
}

std::optional<Value> CompletionAnswer::usage_chunk() const {
  if (!request_.includes_usage) return std::nullopt;
  Value value = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  value.members().set("choices", Value(Value::Array()));
  value.members().set("usage", usage());
  return value;
}

Value CompletionAnswer::body() const {
  Value value = head(request_.is_chat ? "chat.completion" : "text_completion");
  Value::Array list;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Value entry = Value::object({{"index", i}});
    if (request_.is_chat) {
      Value message = Value::object({{"role", "assistant"}});
      const bool only_calls = choice.content.empty() && !choice.calls.empty();
      message.members().set("content", only_calls ? Value() : Value(choice.content));
      message.members().set("refusal", Value());
      if (!choice.reasoning.empty()) message.members().set("reasoning_content", Value(choice.reasoning));
      if (!choice.calls.empty()) message.members().set("tool_calls", calls_value(choice.calls, 0, false));
      entry.members().set("message", std::move(message));
    } else {
      entry.members().set("text", Value(request_.echo + choice.content));
    }
    Value probabilities;
    if (request_.wants_probabilities && request_.is_chat)
      probabilities = Value::object({{"content", choice.probabilities}, {"refusal", Value()}});
    else if (request_.wants_probabilities)
      probabilities = legacy_probabilities(choice);
    entry.members().set("logprobs", std::move(probabilities));
    entry.members().set("finish_reason", Value(choice.finish));
    list.push_back(std::move(entry));
  }
  value.members().set("choices", Value(std::move(list)));
  value.members().set("usage", usage());
  return value;
}

Value embedding_answer(const EmbeddingRequest& request, std::string_view model, const Tensor& rows) {
  const std::vector<float> values = rows.to_vector<float>();
  const auto width = static_cast<std::size_t>(rows.dim(1));
  const std::size_t kept = request.dimensions == 0 ? width : request.dimensions;
  Value::Array data;
  for (std::size_t i = 0; i < request.texts.size(); ++i) {
    std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(i * width),
                           values.begin() + static_cast<std::ptrdiff_t>(i * width + kept));
    double squares = 0;
    for (const float v : row) squares += static_cast<double>(v) * v;
    const double length = std::sqrt(squares);
    if (kept < width && length > 0)
      for (float& v : row) v = static_cast<float>(v / length);
    Value embedding;
    if (request.as_base64) {
      embedding =
          Value(operations::encode_base64({reinterpret_cast<const char*>(row.data()), row.size() * sizeof row[0]}));
    } else {
      Value::Array numbers(row.begin(), row.end());
      embedding = Value(std::move(numbers));
    }
    data.push_back(Value::object({{"object", "embedding"}, {"index", i}, {"embedding", std::move(embedding)}}));
  }
  return Value::object(
      {{"object", "list"},
       {"data", std::move(data)},
       {"model", model},
       {"usage", Value::object({{"prompt_tokens", request.tokens}, {"total_tokens", request.tokens}})}});
}

Value model_entry(std::string_view name, std::int64_t created) {
  return Value::object({{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "weft"}});
}

std::string metrics_text(const QueueCounts& counts) {
  struct Row {
    std::string_view name, kind, help;
    std::uint64_t value;
  };
  const Row rows[] = {
      {"weft_requests_total", "counter", "Requests that were taken.", counts.requests},
      {"weft_requests_refused_total", "counter", "Requests that found the queue full.", counts.refused},
      {"weft_texts_failed_total", "counter", "Texts that ended with an error.", counts.failed},
      {"weft_texts_cancelled_total", "counter", "Texts whose client left.", counts.cancelled},
      {"weft_prompt_tokens_total", "counter", "Tokens of prompts.", counts.prompt_tokens},
      {"weft_prompt_tokens_reused_total", "counter", "Tokens of prompts that were in the cache.", counts.reused_tokens},
      {"weft_generated_tokens_total", "counter", "Tokens that were written.", counts.generated_tokens},
      {"weft_embedded_texts_total", "counter", "Texts that became embeddings.", counts.embedded_texts},
      {"weft_texts_running", "gauge", "Texts that are being written.", counts.running},
      {"weft_requests_waiting", "gauge", "Requests that wait for a sequence.", counts.waiting},
  };
  std::string text;
  const std::tuple<std::string_view, std::string_view, double> times[] = {
      {"weft_queue_wait_seconds_total", "Seconds that texts waited for a sequence.", counts.waiting_seconds},
      {"weft_prompt_seconds_total", "Seconds of passes over prompts.", counts.prompt_seconds},
      {"weft_generation_seconds_total", "Seconds of passes that wrote texts, once for each text.",
       counts.writing_seconds}};
  for (const auto& [name, help, value] : times)
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} counter\n{0} {2:.6f}\n", name, help, value);
  for (const Row& row : rows)
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", row.name, row.help, row.kind, row.value);
  return text;
}

}  // namespace weft::serve
