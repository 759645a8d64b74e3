// Text encoders in the HTTP APIs that their clients speak: embeddings as OpenAI has them, orders as Jina and Cohere do.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai.hpp"
#include "weft/encoder.hpp"
#include "weft/value.hpp"

namespace weft::serve {

/// A text encoder that requests use in turns.
struct EncoderDesk {
  encoder::Model model;
  std::string name;
  std::timed_mutex turn = {};
  std::atomic<std::size_t> waiting = 0;
};

/// Reads the body of /v1/embeddings for an encoder. `dimensions` cuts rows; `prompt_name` names one of the model's prompts. Errors:
/// OpenAiError as `read_embedding_request`.
EmbeddingRequest read_embedding_request(const Value& body, const EncoderDesk& desk);
/// The rows of a request. UsageError for a text that is too long.
Tensor embedded(const EmbeddingRequest& request, const encoder::Model& model);

/// A request of /v1/rerank: {"query", "documents", "top_n", "return_documents"}.
struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;  ///< texts, also of objects {"text"}
  std::size_t count = 0;               ///< 0: all
  bool returns_documents = false;
};
/// Errors: OpenAiError as above.
RerankRequest read_rerank_request(const Value& body, const EncoderDesk& desk);
/// {"model", "results": [{"index", "relevance_score", "document"}], "usage"}, the best first; scores are probabilities.
Value rerank_answer(const RerankRequest& request, const EncoderDesk& desk, const std::vector<encoder::Ranked>& order);

}  // namespace weft::serve
