#include "serve/openai_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "serve/openai_fields.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kDocumentsMax = 2048;

void check_name(const Value& body, const EncoderDesk& desk) {
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  if (const Value* name = given(body, "model"); name && string_in(*name, "model") != desk.name)
    throw OpenAiError(404,
                      fmt::format("the model {} does not exist here; GET /v1/models lists {}",
                                  quote(name->string(), 60), quote(desk.name)),
                      "model", "model_not_found");
}

std::size_t tokens_of(const encoder::Model& model, const std::vector<std::string>& texts) {
  std::size_t tokens = 0;
  for (const std::string& text : texts) tokens += model.encode(text).size();
  return tokens;
}

}  // namespace

EmbeddingRequest read_embedding_request(const Value& body, const EncoderDesk& desk) {
  check_name(body, desk);
  EmbeddingRequest request = read_embedding_fields(body, desk.model.width(), [](const Value&) -> std::string {
    refuse_field("input", "is tokens; this model takes texts");
  });
  if (const Value* prompt = given(body, "prompt_name")) {
    request.prompt = string_in(*prompt, "prompt_name");
    if (!desk.model.prompts().contains(request.prompt))
      refuse_field("prompt_name", "is not one of the model's prompts");
  }
  for (const std::string& text : request.texts) {
    const std::size_t own = desk.model.encode(text).size();
    request.tokens += request.cuts ? std::min(own, static_cast<std::size_t>(desk.model.length())) : own;
  }
  return request;
}

Tensor embedded(const EmbeddingRequest& request, const encoder::Model& model) {
  encoder::EmbedOptions how;
  if (!request.prompt.empty()) how.prompt = request.prompt;
  if (request.cuts) how.too_long = encoder::TooLong::cut;
  return model.embed(request.texts, how);
}

RerankRequest read_rerank_request(const Value& body, const EncoderDesk& desk) {
  check_name(body, desk);
  RerankRequest request;
  const Value *query = given(body, "query"), *documents = given(body, "documents");
  if (!query) refuse_field("query", "is missing");
  request.query = string_in(*query, "query");
  if (!documents || !documents->is_array() || documents->elements().empty() ||
      documents->elements().size() > kDocumentsMax)
    refuse_field("documents", fmt::format("is not a list of 1 to {} documents", kDocumentsMax));
  for (const Value& each : documents->elements()) {
    const Value* text = each.is_object() ? each.find("text") : &each;
    if (!text) refuse_field("documents", "has an object without \"text\"");
    request.documents.push_back(string_in(*text, "documents"));
  }
  request.count = static_cast<std::size_t>(integer_in(body, "top_n", 1, static_cast<std::int64_t>(kDocumentsMax), 0));
  request.returns_documents = flag(body, "return_documents", false);
  return request;
}

Value rerank_answer(const RerankRequest& request, const EncoderDesk& desk, const std::vector<encoder::Ranked>& order) {
  Value::Array results;
  for (const encoder::Ranked& each : order) {
    Value::Object result{{"index", each.index}, {"relevance_score", each.probability}};
    if (request.returns_documents) result.set("document", Value::object({{"text", request.documents[each.index]}}));
    results.push_back(Value(std::move(result)));
  }
  const std::size_t tokens =
      tokens_of(desk.model, request.documents) + request.documents.size() * tokens_of(desk.model, {request.query});
  return Value::object({{"object", "list"},
                        {"model", desk.name},
                        {"results", std::move(results)},
                        {"usage", Value::object({{"prompt_tokens", tokens}, {"total_tokens", tokens}})}});
}

}  // namespace weft::serve
