// The HTTP API of OpenAI: requests as they come, and answers as they go. Without a network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/reasoning.hpp"
#include "serve/generation_queue.hpp"
#include "serve/grammar_cache.hpp"
#include "serve/tool_format.hpp"
#include "weft/value.hpp"

namespace weft::serve {

/// A request that is refused, as the API says it: {"error": {"message", "type", "param", "code"}}.
class OpenAiError : public Error {
 public:
  OpenAiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : Error(message), status(status), param(std::move(param)), code(std::move(code)) {}
  int status;
  std::string param, code;  ///< empty: null
};
/// The body of an error. The type follows from the status.
Value openai_error_body(int status, std::string_view message, std::string_view param = {}, std::string_view code = {});

/// What a server offers beside its model.
struct OpenAiModel {
  const llm::Model& model;
  std::string name;
  ToolFormat tools;
  GrammarCache& grammars;
};

/// A request for texts: of /v1/chat/completions, or of /v1/completions.
struct CompletionRequest {
  bool is_chat = false;
  std::vector<GenerationText> texts;  ///< `choices` of each prompt
  std::size_t choices = 1;            ///< for each prompt
  bool streams = false, includes_usage = false;
  bool wants_probabilities = false;
  std::vector<std::string> tool_names;  ///< that may be called
  bool begins_in_call = false;          ///< the prompt ends with the opening of a call
  bool begins_in_reasoning = false;     ///< the prompt ends inside a reasoning
  bool has_grammar = false;
  std::string echo;  ///< the prompt, which the text begins with
};

/// Reads the body of a request. Fields that are not known are ignored. Errors: OpenAiError with status 400 and the name of the
/// field; 404 for another model.
CompletionRequest read_chat_request(const Value& body, const OpenAiModel& model);
CompletionRequest read_completion_request(const Value& body, const OpenAiModel& model);

struct EmbeddingRequest {
  std::vector<std::string> texts;
  bool as_base64 = false;
  std::size_t dimensions = 0;  ///< the first ones, made length 1 again; 0: all
  std::string prompt;          ///< of a text encoder; empty: its default
  std::size_t tokens = 0;      ///< of all texts
  bool cuts = false;           ///< the ends of texts that are too long are left out; otherwise they are errors
};
EmbeddingRequest read_embedding_request(const Value& body, const OpenAiModel& model);
/// The fields that all models have. `decoded`: the text of a list of tokens.
EmbeddingRequest read_embedding_fields(const Value& body, Extent width,
                                       const std::function<std::string(const Value& tokens)>& decoded);
/// `rows`: f32 [texts, width], on the CPU.
Value embedding_answer(const EmbeddingRequest& request, std::string_view model, const Tensor& rows);

/// Makes the answer to a request from the events of its texts: as one body, or as chunks of a stream.
class CompletionAnswer {
 public:
  CompletionAnswer(CompletionRequest request, const OpenAiModel& model, std::int64_t created);

  /// The chunks that follow from an event; of a stream only.
  std::vector<Value> take(const GenerationEvent& event);
  /// The last chunk of a stream, with the usage; nothing unless it was asked for.
  std::optional<Value> usage_chunk() const;
  /// The whole answer, once all texts have ended.
  Value body() const;

 private:
  struct Choice {
    std::string content, reasoning, raw;
    std::vector<ToolCall> calls;
    Value::Array probabilities;
    std::size_t tokens = 0;
    std::string finish;
    bool has_role = false;
    std::optional<ToolCallReader> reader;
    std::optional<llm::ReasoningSplitter> splitter;
    bool splits = false;
  };
  Value chunk(std::size_t index, Value delta, Value finish, Value probabilities) const;
  Value head(std::string_view object) const;
  Value usage() const;
  Value probabilities_of(const std::vector<llm::GeneratedToken>& tokens) const;
  Value legacy_probabilities(const Choice& choice) const;
  std::string token_text(std::int32_t id) const;

  CompletionRequest request_;
  OpenAiModel model_;
  std::int64_t created_;
  std::string id_;
  std::vector<Choice> choices_;
  Extent reused_ = 0;
};

/// The entry of a model in a list of models.
Value model_entry(std::string_view name, std::int64_t created);
/// Counts in the text format of Prometheus.
std::string metrics_text(const QueueCounts& counts);

}  // namespace weft::serve
