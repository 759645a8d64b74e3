// The HTTP APIs of OpenAI, Anthropic and Ollama for a language model, a speech model and a voice, or some of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remote/http/server.hpp"
#include "serve/generation_queue.hpp"
#include "weft/encoder.hpp"
#include "weft/llm.hpp"
#include "weft/speech.hpp"

namespace weft::remote {

struct OpenAiOptions {
  HttpOptions http;
  std::string model_name = "model";
  std::vector<std::string> api_keys;  ///< empty: every request is answered
  std::string allowed_origin;         ///< pages of this site may call (CORS), "*": of any; empty: none
  std::size_t waiting_max = 64;  ///< requests that wait for a free sequence, for the speech model, or for the voice
  bool has_model = true;         ///< a language model will come
  bool has_transcriber = false;  ///< a speech model will come
  bool has_voice = false;        ///< a voice will come
  bool has_encoder = false;      ///< a text encoder for embeddings will come
  bool has_reranker = false;     ///< a cross-encoder will come
  std::filesystem::path response_folder = {};  ///< keeps stored responses; empty: they are forgotten at the end
  serve::QueueHooks hooks = {};                ///< called as texts wait and end
};

/// Serves until it is destroyed. Routes:
///
///     GET    /health                    without a key; 503 until all models are there
///     GET    /metrics                   counts in the text format of Prometheus
///     GET    /v1/models                 and /v1/models/NAME
///     POST   /v1/chat/completions       plain, or as server-sent events
///     POST   /v1/responses             plain, or as server-sent events; GET and DELETE /v1/responses/ID
///     POST   /v1/completions
///     POST   /v1/embeddings             by the text encoder, or by the language model
///     POST   /v1/rerank                 documents in the order in which they answer a query
///     POST   /v1/audio/transcriptions   a form with a sound; and /v1/audio/translations
///     POST   /v1/audio/speech           a text; the answer is a sound
///     POST   /v1/messages               the API of Anthropic; and /v1/messages/count_tokens
///     *      /api/...                   the API of Ollama
///
/// A key comes as "Authorization: Bearer KEY", or as "x-api-key: KEY". Errors have the body {"error": {"message", "type", "param",
/// "code"}}, or that of the other APIs. A client that leaves cancels its request. Thread safety: the functions that set models and `drain` are for one thread.
class OpenAiServer {
 public:
  /// Errors: as HttpServer.
  explicit OpenAiServer(const OpenAiOptions& options);
  ~OpenAiServer();
  std::uint16_t port() const;

  /// From here on, requests are answered.
  void set_model(llm::Model model);
  /// With a detector, only what it finds in a sound is heard.
  void set_transcriber(speech::Transcriber transcriber, std::optional<speech::Detector> detector,
                       const std::string& name);
  void set_voice(speech::Voice voice, const std::string& name);
  void set_encoder(encoder::Model model, const std::string& name);
  void set_reranker(encoder::Model model, const std::string& name);
  /// Refuses new requests, and waits until those under way have ended or the time is over.
  void drain(std::chrono::milliseconds time);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::remote
