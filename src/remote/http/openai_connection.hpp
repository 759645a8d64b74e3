// A connection to the server of a language model, a speech model and others, in three dialects: the APIs of OpenAI, Anthropic and
// Ollama. They differ in how requests, answers and errors are written; the models and the queue are the same.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.hpp"
#include "remote/http/connection.hpp"
#include "remote/http/openai_server.hpp"
#include "serve/ollama.hpp"
#include "serve/openai.hpp"
#include "serve/openai_encoder.hpp"
#include "serve/openai_responses.hpp"
#include "serve/transcription_desk.hpp"
#include "weft/error.hpp"

namespace weft::remote::openai {

// A model that serves.
struct Serving {
  serve::GenerationQueue queue;
  serve::GrammarCache grammars;
  serve::ResponseStore responses;
  serve::OpenAiModel model;
  Serving(llm::Model loaded, const OpenAiOptions& options);
};

// A voice, whose sentences of different requests take turns.
struct VoiceDesk {
  speech::Voice voice;
  std::string name;
  std::timed_mutex turn = {};
  std::atomic<std::size_t> waiting = 0;
};

struct OpenAiShared : HttpShared {
  OpenAiOptions own;
  std::int64_t created;
  std::mutex mutex;
  std::shared_ptr<Serving> serving;
  std::shared_ptr<serve::TranscriptionDesk> desk;
  std::shared_ptr<VoiceDesk> voice;
  std::shared_ptr<serve::EncoderDesk> encoder, reranker;
  std::stop_source stop;  // of sounds that are being made

  explicit OpenAiShared(const OpenAiOptions& options);
};

class OpenAiConnection : public HttpConnection {
 public:
  OpenAiConnection(OpenAiShared& shared, OpenSocket socket)
      : HttpConnection(shared, std::move(socket)), shared_(shared) {}

 protected:
  void authorise(const Request& head) override;
  Value error_body(int status, const operations::OperationError& error) const override;
  int status_of(const operations::OperationError&) const override { return 400; }
  void add_headers(Response& response) override;
  bool answer(const Request& request) override;

 private:
  enum class Dialect : std::uint8_t { openai, anthropic, ollama };
  /// The dialect of a request, by its path, or by a header of clients of Anthropic.
  static Dialect dialect_of(const Request& head);
  Value error_value(int status, std::string_view message, std::string_view param = {},
                    std::string_view code = {}) const;

  template <class T>
  std::shared_ptr<T> loaded(const std::shared_ptr<T>& model, bool will_come, const char* kind) {
    const std::lock_guard lock(shared_.mutex);
    if (!will_come) throw serve::OpenAiError(404, fmt::format("this server has no {} model", kind), {}, "not_found");
    if (!model) throw serve::OpenAiError(503, "the model is being loaded; ask again soon", {}, "loading");
    return model;
  }
  std::shared_ptr<Serving> serving() { return loaded(shared_.serving, shared_.own.has_model, "language"); }
  /// One whose model has a chat template.
  std::shared_ptr<Serving> chatting();
  std::shared_ptr<serve::TranscriptionDesk> desk() {
    return loaded(shared_.desk, shared_.own.has_transcriber, "speech");
  }
  std::shared_ptr<VoiceDesk> voice() { return loaded(shared_.voice, shared_.own.has_voice, "voice"); }
  std::shared_ptr<serve::EncoderDesk> encoder() {
    return loaded(shared_.encoder, shared_.own.has_encoder, "embedding");
  }
  std::shared_ptr<serve::EncoderDesk> reranker() {
    return loaded(shared_.reranker, shared_.own.has_reranker, "reranking");
  }

  /// The names of all models.
  std::vector<std::string> names();

  bool route(const Request& request);
  static void require(bool is_right, std::string_view path, std::string_view method);
  Value body_of(const Request& request) const {
    return Value::parse(request.body(), "the body", shared_.options.values_max);
  }

  // Of OpenAI.
  bool list_models(std::string_view name);
  bool complete(const Request& request, bool is_chat);
  bool respond(const Request& request);
  bool count_response_tokens(const Request& request);
  bool stored_response(std::string_view id, bool removes);
  bool embed(const Request& request);
  /// Embeds by the text encoder, unless the body names the language model or the server has no encoder. Null: the client has gone.
  Value embedded(const Value& body);
  bool rerank(const Request& request);
  bool transcribe(const Request& request, speech::Task task);
  bool speak(const Request& request);

  // Of Anthropic.
  bool write_message(const Request& request);
  bool count_message(const Request& request);
  bool list_anthropic_models(std::string_view name);

  // Of Ollama.
  bool route_ollama(const Request& request, std::string_view path);
  bool write_ollama(const Request& request, bool is_chat);
  bool embed_ollama(const Request& request, bool is_one);
  std::vector<serve::OllamaModel> ollama_models();

  static std::int64_t now();
  static std::string event_of(const Value& data);
  static std::string named_events(const std::vector<Value>& events);

  /// Passes all events on. False if the client has gone, which cancels the request.
  bool collect(serve::GenerationTicket& ticket, FunctionRef<void(const serve::GenerationEvent&)> take);
  bool begin_stream(std::string_view type = "text/event-stream");
  /// How a stream is written.
  struct Writing {
    std::string_view type = "text/event-stream";
    std::string first = {}, alive = ": still here\n\n";  ///< before all, and in a silent stream
    FunctionRef<std::string(const serve::GenerationEvent&)> take;
    FunctionRef<std::string(const std::string& message, int status)> fail;  ///< the status has left already
    FunctionRef<std::string()> end;
  };
  bool stream(serve::GenerationTicket& ticket, const Writing& writing);

  /// The turn of this request at a model that serves one at a time; without the lock if the client has gone. Errors: QueueError if too
  /// many wait; OpenAiError when the server stops.
  template <class Desk>
  std::unique_lock<std::timed_mutex> turn_at(Desk& desk);

  OpenAiShared& shared_;
  Dialect dialect_ = Dialect::openai;
};

}  // namespace weft::remote::openai
