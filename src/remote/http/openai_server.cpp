#include "remote/http/openai_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/function_ref.hpp"
#include "base/quote.hpp"
#include "remote/http/listener.hpp"
#include "serve/openai.hpp"
#include "serve/openai_encoder.hpp"
#include "serve/openai_responses.hpp"
#include "serve/transcription_desk.hpp"
#include "weft/error.hpp"

namespace weft::remote {
namespace openai {

namespace op = operations;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;     // how often a waiting connection looks for its client
constexpr auto kKeepAlive = 15s;  // between comments of a silent stream
constexpr std::string_view kModels = "/v1/models", kResponses = "/v1/responses";

// Compares without telling by its time how much is equal.
inline bool is_same_key(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ b[i % std::max<std::size_t>(b.size(), 1)]);
  return differs == 0 && !b.empty();
}

// A model that serves.
struct Serving {
  serve::GenerationQueue queue;
  serve::GrammarCache grammars;
  serve::ResponseStore responses;
  serve::OpenAiModel model;
  Serving(llm::Model loaded, const OpenAiOptions& options)
      : queue(std::move(loaded), {.waiting_max = options.waiting_max, .hooks = options.hooks}),
        responses(options.response_folder),
        model{queue.model(), options.model_name, serve::ToolFormat::of(queue.model()), grammars} {
    if (options.http.log)
      for (const std::string& problem : responses.problems()) options.http.log(problem);
  }
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

  explicit OpenAiShared(const OpenAiOptions& options)
      : HttpShared{options.http},
        own(options),
        created(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                    .count()) {}
};

class OpenAiConnection : public HttpConnection {
 public:
  OpenAiConnection(OpenAiShared& shared, OpenSocket socket)
      : HttpConnection(shared, std::move(socket)), shared_(shared) {}

 protected:
  void authorise(const Request& head) override {
    const std::string_view path = path_of(view(head.target()));
    // A browser tells which page asks; it must be one of this server's own, or of the allowed site.
    if (const std::string_view origin = view(head[http::field::origin]); !origin.empty()) {
      const std::string_view host = origin.substr(std::min(origin.find("://") + 3, origin.size()));
      const std::string& allowed = shared_.own.allowed_origin;
      if (allowed != "*" && origin != allowed && host != view(head[http::field::host]))
        throw HttpError{403, "origin_not_allowed", "the request comes from a page of another site"};
    }
    if (path == "/health" || head.method() == http::verb::options || shared_.own.api_keys.empty()) return;
    const std::string_view token = bearer_token(head);
    bool is_known = false;
    for (const std::string& key : shared_.own.api_keys) is_known = is_same_key(token, key) || is_known;
    if (!is_known) throw HttpError{401, "invalid_api_key", "a known key is needed: Authorization: Bearer KEY"};
  }

  Value error_body(int status, const op::OperationError& error) const override {
    // Codes of the connection itself are in capitals; the API has lower case.
    std::string code = error.code();
    std::transform(code.begin(), code.end(), code.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return serve::openai_error_body(status, error.what(), {}, code);
  }
  int status_of(const op::OperationError&) const override { return 400; }

  void add_headers(Response& response) override {
    if (shared_.own.allowed_origin.empty()) return;
    response.set(http::field::access_control_allow_origin, shared_.own.allowed_origin);
    response.set(http::field::access_control_allow_headers, "Authorization, Content-Type");
    response.set(http::field::access_control_allow_methods, "GET, POST, DELETE, OPTIONS");
  }

  bool answer(const Request& request) override {
    try {
      return route(request);
    } catch (const serve::OpenAiError& error) {
      return send(error.status, serve::openai_error_body(error.status, error.what(), error.param, error.code));
    } catch (const serve::QueueError& error) {
      const int status = error.is_closed ? 503 : 429;
      return send(status,
                  serve::openai_error_body(status, error.what(), {}, error.is_closed ? "stopping" : "queue_full"));
    } catch (const FileError& error) {  // the body is not JSON
      return send(400, serve::openai_error_body(400, error.what()));
    } catch (const UsageError& error) {
      return send(400, serve::openai_error_body(400, error.what()));
    }
  }

 private:
  template <class T>
  std::shared_ptr<T> loaded(const std::shared_ptr<T>& model, bool will_come, const char* kind) {
    const std::lock_guard lock(shared_.mutex);
    if (!will_come) throw serve::OpenAiError(404, fmt::format("this server has no {} model", kind), {}, "not_found");
    if (!model) throw serve::OpenAiError(503, "the model is being loaded; ask again soon", {}, "loading");
    return model;
  }
  std::shared_ptr<Serving> serving() { return loaded(shared_.serving, shared_.own.has_model, "language"); }
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

  /// An entry for each model.
  Value::Array models() {
    Value::Array entries;
    if (shared_.own.has_model) entries.push_back(serve::model_entry(serving()->model.name, shared_.created));
    if (shared_.own.has_voice) entries.push_back(serve::model_entry(voice()->name, shared_.created));
    if (shared_.own.has_transcriber) entries.push_back(serve::model_entry(desk()->name(), shared_.created));
    if (shared_.own.has_encoder) entries.push_back(serve::model_entry(encoder()->name, shared_.created));
    if (shared_.own.has_reranker) entries.push_back(serve::model_entry(reranker()->name, shared_.created));
    return entries;
  }

  bool route(const Request& request) {
    const std::string_view path = path_of(view(request.target()));
    const bool gets = request.method() == http::verb::get, posts = request.method() == http::verb::post;
    if (request.method() == http::verb::options && !shared_.own.allowed_origin.empty())
      return send(204, "text/plain", "");
    const auto require = [&](bool is_right, std::string_view method) {
      if (!is_right) throw serve::OpenAiError(405, fmt::format("{} takes {}", path, method), {}, "method_not_allowed");
    };
    if (path == "/health") {
      require(gets, "GET");
      models();
      return send(200, Value::object({{"status", "ok"}}));
    }
    if (path == "/metrics") {
      require(gets, "GET");
      return send(200, "text/plain; version=0.0.4", serve::metrics_text(serving()->queue.counts()));
    }
    if (path == kModels) {
      require(gets, "GET");
      return send(200, Value::object({{"object", "list"}, {"data", models()}}));
    }
    if (path.starts_with(kModels) && path.size() > kModels.size() + 1 && path[kModels.size()] == '/') {
      require(gets, "GET");
      for (const Value& entry : models())
        if (path.substr(kModels.size() + 1) == entry["id"].string()) return send(200, entry);
      throw serve::OpenAiError(404, "the model does not exist here", "model", "model_not_found");
    }
    const bool is_chat = path == "/v1/chat/completions";
    if (is_chat || path == "/v1/completions") {
      require(posts, "POST");
      return complete(request, is_chat);
    }
    if (path == kResponses) {
      require(posts, "POST");
      return respond(request);
    }
    if (path.starts_with(kResponses) && path.size() > kResponses.size() + 1 && path[kResponses.size()] == '/') {
      const bool removes = request.method() == http::verb::delete_;
      require(gets || removes, "GET and DELETE");
      return stored_response(path.substr(kResponses.size() + 1), removes);
    }
    if (path == "/v1/embeddings") {
      require(posts, "POST");
      return embed(request);
    }
    if (path == "/v1/rerank") {
      require(posts, "POST");
      return rerank(request);
    }
    const bool translates = path == "/v1/audio/translations";
    if (translates || path == "/v1/audio/transcriptions") {
      require(posts, "POST");
      return transcribe(request, translates ? speech::Task::translate : speech::Task::transcribe);
    }
    if (path == "/v1/audio/speech") {
      require(posts, "POST");
      return speak(request);
    }
    throw serve::OpenAiError(404, "there is nothing at this path", {}, "not_found");
  }

  Value body_of(const Request& request) const {
    return Value::parse(request.body(), "the body", shared_.options.values_max);
  }

  bool complete(const Request& request, bool is_chat) {
    const auto held = serving();
    const Value body = body_of(request);
    if (is_chat && !held->model.model.has_template())
      throw serve::OpenAiError(400, "the model has no chat template; use /v1/completions");
    serve::CompletionRequest wanted =
        is_chat ? serve::read_chat_request(body, held->model) : serve::read_completion_request(body, held->model);
    serve::GenerationTicket ticket = held->queue.submit(wanted.texts);
    const bool streams = wanted.streams;
    serve::CompletionAnswer answer(std::move(wanted), held->model, now());
    if (!streams) {
      if (!collect(ticket, [&](const serve::GenerationEvent& event) { answer.take(event); })) return false;
      return send(200, answer.body());
    }
    return stream(
        ticket, "",
        [&](const serve::GenerationEvent& event) {
          std::string text;
          for (const Value& chunk : answer.take(event)) text += event_of(chunk);
          return text;
        },
        [](const std::string& message, int status) { return event_of(serve::openai_error_body(status, message)); },
        [&] {
          const auto usage = answer.usage_chunk();
          return (usage ? event_of(*usage) : "") + "data: [DONE]\n\n";
        });
  }

  bool respond(const Request& request) {
    const auto held = serving();
    const Value body = body_of(request);
    if (!held->model.model.has_template())
      throw serve::OpenAiError(400, "the model has no chat template; use /v1/completions");
    serve::ResponseRequest wanted = serve::read_response_request(body, held->model, held->responses);
    serve::GenerationTicket ticket = held->queue.submit(wanted.completion.texts);
    serve::ResponseAnswer answer(std::move(wanted), held->model, now());
    const auto keep = [&] {
      auto stored = answer.to_store();
      if (!stored) return;
      const std::string problem = held->responses.put(answer.id(), std::move(*stored));
      if (!problem.empty() && shared_.own.http.log) shared_.own.http.log(problem);
    };
    if (!answer.streams()) {
      if (!collect(ticket, [&](const serve::GenerationEvent& event) { answer.take(event); })) return false;
      keep();
      return send(200, answer.body());
    }
    const auto texts_of = [](const std::vector<Value>& events) {
      std::string text;
      for (const Value& event : events) text += fmt::format("event: {}\n{}", event["type"].string(), event_of(event));
      return text;
    };
    return stream(
        ticket, texts_of(answer.begin()),
        [&](const serve::GenerationEvent& event) {
          const std::string text = texts_of(answer.take(event));
          if (event.has_ended) keep();  // before the client can ask for it
          return text;
        },
        [&](const std::string& message, int) { return texts_of({answer.failure(message)}); },
        [] { return std::string(); });
  }

  /// Stored responses by their ids.
  bool stored_response(std::string_view id, bool removes) {
    const auto held = serving();
    const auto found = held->responses.find(id);
    if (!found || (removes && !held->responses.remove(id)))
      throw serve::OpenAiError(404, fmt::format("the response {} is not stored here", quote(id, 80)), {},
                               "response_not_found");
    if (!removes) return send(200, found->response);
    return send(200, Value::object({{"id", id}, {"object", "response"}, {"deleted", true}}));
  }

  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  /// Passes all events on. False if the client has gone, which cancels the request.
  bool collect(serve::GenerationTicket& ticket, FunctionRef<void(const serve::GenerationEvent&)> take) {
    for (bool is_waiting = true; is_waiting;) {
      const auto event = ticket.next_until(std::chrono::steady_clock::now() + kLook, is_waiting);
      if (!event) {
        if (is_waiting && client_has_gone()) return false;
        continue;
      }
      if (!event->error.empty()) throw serve::OpenAiError(event->is_ours ? 500 : 400, event->error);
      if (event->has_ended && event->finish == llm::Finish::cancelled)
        throw serve::OpenAiError(503, "the server is stopping", {}, "stopping");
      take(*event);
    }
    return true;
  }

  static std::string event_of(const Value& data) { return fmt::format("data: {}\n\n", data.to_json()); }

  bool begin_stream() {
    std::string headers;
    if (!shared_.own.allowed_origin.empty())
      headers = fmt::format("Access-Control-Allow-Origin: {}\r\n", shared_.own.allowed_origin);
    return begin_events(headers);
  }

  /// Writes what `take` makes of each event, and `end`; or, because the status has left already, the error as an event.
  bool stream(serve::GenerationTicket& ticket, const std::string& first,
              FunctionRef<std::string(const serve::GenerationEvent&)> take,
              FunctionRef<std::string(const std::string& message, int status)> fail, FunctionRef<std::string()> end) {
    if (!begin_stream()) return false;
    if (!first.empty() && !write(first)) return false;
    auto spoken = std::chrono::steady_clock::now();
    for (bool is_waiting = true; is_waiting;) {
      const auto event = ticket.next_until(std::chrono::steady_clock::now() + kLook, is_waiting);
      std::string text;
      if (event && !event->error.empty()) {
        write(fail(event->error, event->is_ours ? 500 : 400));
        return false;
      }
      if (event)
        text = take(*event);
      else if (is_waiting && client_has_gone())
        return false;
      else if (std::chrono::steady_clock::now() - spoken > kKeepAlive)
        text = ": still here\n\n";
      if (text.empty()) continue;
      spoken = std::chrono::steady_clock::now();
      if (!write(text)) return false;
    }
    write(end());
    return false;
  }

  /// Embeds by the text encoder, unless the request names the language model or the server has no encoder.
  bool embed(const Request& request) {
    const Value body = body_of(request);
    const Value* name = body.is_object() ? body.find("model") : nullptr;
    const bool asks_language_model =
        shared_.own.has_model && name && name->is_string() && name->string() == shared_.own.model_name;
    if (shared_.own.has_encoder && !asks_language_model) {
      const auto held = encoder();
      const serve::EmbeddingRequest wanted = serve::read_embedding_request(body, *held);
      const auto turn = turn_at(*held);
      return turn.owns_lock() &&
             send(200, serve::embedding_answer(wanted, held->name, serve::embedded(wanted, held->model)));
    }
    const auto held = serving();
    const serve::EmbeddingRequest wanted = serve::read_embedding_request(body, held->model);
    const std::optional<Tensor> rows = held->queue.embed(wanted.texts, {});
    if (!rows) throw serve::OpenAiError(503, "the server is stopping", {}, "stopping");
    return send(200, serve::embedding_answer(wanted, held->model.name, *rows));
  }

  bool rerank(const Request& request) {
    const auto held = reranker();
    const serve::RerankRequest wanted = serve::read_rerank_request(body_of(request), *held);
    const auto turn = turn_at(*held);
    if (!turn.owns_lock()) return false;
    return send(200,
                serve::rerank_answer(wanted, *held, held->model.rerank(wanted.query, wanted.documents, wanted.count)));
  }

  /// The turn of this request at a model that serves one at a time; without the lock if the client has gone. Errors: QueueError if too
  /// many wait; OpenAiError when the server stops.
  template <class Desk>
  std::unique_lock<std::timed_mutex> turn_at(Desk& desk) {
    if (desk.waiting >= shared_.own.waiting_max)
      throw serve::QueueError(
          fmt::format("{} requests are waiting already; send it again later", shared_.own.waiting_max), false);
    ++desk.waiting;
    std::unique_lock turn(desk.turn, std::defer_lock);
    bool has_gone = false;
    while (!has_gone && !shared_.stop.stop_requested() && !turn.try_lock_for(kLook)) has_gone = client_has_gone();
    --desk.waiting;
    if (!has_gone && shared_.stop.stop_requested())
      throw serve::OpenAiError(503, "the server is stopping", {}, "stopping");
    return turn;
  }

  bool transcribe(const Request& request, speech::Task task) {
    const auto held = desk();
    const serve::TranscriptionRequest wanted = serve::read_transcription_request(
        view(request[http::field::content_type]), request.body(), held->name(), held->transcriber(), task);
    const auto ticket = held->submit(wanted);
    if (wanted.streams && !begin_stream()) return false;
    const auto refuse = [&](int status, const std::string& message, const std::string& code) {
      if (!wanted.streams) throw serve::OpenAiError(status, message, {}, code);
      write(event_of(serve::openai_error_body(status, message, {}, code)));
      return false;
    };
    while (true) {
      const auto event = ticket->next_until(std::chrono::steady_clock::now() + kLook);
      if (!event) {
        if (client_has_gone()) return false;  // which cancels the request
        continue;
      }
      if (event->was_stopped) return refuse(503, "the server is stopping", "stopping");
      if (!event->error.empty()) return refuse(event->is_ours ? 500 : 400, event->error, {});
      if (event->segment) {
        if (wanted.streams && !write(event_of(serve::transcription_delta(*event->segment)))) return false;
        continue;
      }
      if (wanted.streams) {
        write(event_of(serve::transcription_done(*event->transcript)) + "data: [DONE]\n\n");
        return false;
      }
      serve::AudioAnswer answer = serve::transcription_answer(wanted, *event->transcript);
      return send(200, answer.type, std::move(answer.body));
    }
  }

  bool speak(const Request& request) {
    const auto held = voice();
    serve::SpeechRequest wanted = serve::read_speech_request(body_of(request), held->name, held->voice);
    std::unique_lock<std::timed_mutex> turn = turn_at(*held);
    if (!turn.owns_lock()) return false;
    bool has_gone = false;
    const auto check_stop = [&] {
      if (shared_.stop.stop_requested()) throw serve::OpenAiError(503, "the server is stopping", {}, "stopping");
    };
    // Between sentences, the server looks for its client.
    std::stop_source leave;
    wanted.options.cancel = leave.get_token();
    wanted.options.on_sentence = [&](const audio::Sound&) {
      if (shared_.stop.stop_requested() || (has_gone = client_has_gone())) leave.request_stop();
    };
    audio::Sound sound;
    try {
      sound = held->voice.speak(wanted.text, wanted.options);
    } catch (const FileError& error) {  // of the voice's weights
      throw serve::OpenAiError(500, error.what());
    }
    turn.unlock();
    if (has_gone) return false;
    check_stop();
    serve::AudioAnswer answer = serve::speech_answer(wanted, sound);
    return send(200, answer.type, std::move(answer.body));
  }

  OpenAiShared& shared_;
};

}  // namespace openai

struct OpenAiServer::State {
  openai::OpenAiShared shared;
  std::optional<HttpListener> listener;

  explicit State(const OpenAiOptions& options) : shared(options) {
    listener.emplace(shared, [this](OpenSocket socket) {
      return std::make_unique<openai::OpenAiConnection>(shared, std::move(socket));
    });
  }
};

OpenAiServer::OpenAiServer(const OpenAiOptions& options) : state_(std::make_unique<State>(options)) {}
OpenAiServer::~OpenAiServer() {
  drain(std::chrono::milliseconds(0));
  state_->listener.reset();
}
std::uint16_t OpenAiServer::port() const { return state_->listener->port(); }

void OpenAiServer::set_model(llm::Model model) {
  auto serving = std::make_shared<openai::Serving>(std::move(model), state_->shared.own);
  const std::lock_guard lock(state_->shared.mutex);
  state_->shared.serving = std::move(serving);
}

void OpenAiServer::set_transcriber(speech::Transcriber transcriber, std::optional<speech::Detector> detector,
                                   const std::string& name) {
  auto desk = std::make_shared<serve::TranscriptionDesk>(std::move(transcriber), std::move(detector), name,
                                                         state_->shared.own.waiting_max);
  const std::lock_guard lock(state_->shared.mutex);
  state_->shared.desk = std::move(desk);
}

void OpenAiServer::set_voice(speech::Voice voice, const std::string& name) {
  auto desk = std::make_shared<openai::VoiceDesk>(std::move(voice), name);
  const std::lock_guard lock(state_->shared.mutex);
  state_->shared.voice = std::move(desk);
}

void OpenAiServer::set_encoder(encoder::Model model, const std::string& name) {
  auto desk = std::make_shared<serve::EncoderDesk>(std::move(model), name);
  const std::lock_guard lock(state_->shared.mutex);
  state_->shared.encoder = std::move(desk);
}

void OpenAiServer::set_reranker(encoder::Model model, const std::string& name) {
  auto desk = std::make_shared<serve::EncoderDesk>(std::move(model), name);
  const std::lock_guard lock(state_->shared.mutex);
  state_->shared.reranker = std::move(desk);
}

void OpenAiServer::drain(std::chrono::milliseconds time) {
  std::shared_ptr<openai::Serving> serving;
  std::shared_ptr<serve::TranscriptionDesk> desk;
  std::shared_ptr<openai::VoiceDesk> voice;
  std::shared_ptr<serve::EncoderDesk> encoder, reranker;
  {
    const std::lock_guard lock(state_->shared.mutex);
    serving = state_->shared.serving;
    desk = state_->shared.desk;
    voice = state_->shared.voice;
    encoder = state_->shared.encoder;
    reranker = state_->shared.reranker;
  }
  const auto until = std::chrono::steady_clock::now() + time;
  if (desk) desk->close(until);
  if (serving) serving->queue.close(until);
  // The work that is being done may end; requests that wait for their turn may not begin.
  std::unique_lock<std::timed_mutex> turn, embedding, ordering;
  if (voice) turn = std::unique_lock(voice->turn, until);
  if (encoder) embedding = std::unique_lock(encoder->turn, until);
  if (reranker) ordering = std::unique_lock(reranker->turn, until);
  state_->shared.stop.request_stop();
}

}  // namespace weft::remote
