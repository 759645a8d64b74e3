#include "remote/http/openai_connection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "serve/anthropic.hpp"

namespace weft::remote::openai {

namespace op = operations;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;     // how often a waiting connection looks for its client
constexpr auto kKeepAlive = 15s;  // between comments of a silent stream
constexpr std::string_view kModels = "/v1/models", kResponses = "/v1/responses", kMessages = "/v1/messages";

// Compares without telling by its time how much is equal.
inline bool is_same_key(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ b[i % std::max<std::size_t>(b.size(), 1)]);
  return differs == 0 && !b.empty();
}

// What follows a path and a slash; empty: nothing, or the path is another one.
inline std::string_view below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && path.size() > folder.size() + 1 && path[folder.size()] == '/'
             ? path.substr(folder.size() + 1)
             : std::string_view();
}

Serving::Serving(llm::Model loaded, const OpenAiOptions& options)
    : queue(std::move(loaded), {.waiting_max = options.waiting_max, .hooks = options.hooks}),
      responses(options.response_folder),
      model{queue.model(), options.model_name, serve::ToolFormat::of(queue.model()), grammars} {
  if (options.http.log)
    for (const std::string& problem : responses.problems()) options.http.log(problem);
}

OpenAiShared::OpenAiShared(const OpenAiOptions& options)
    : HttpShared{options.http},
      own(options),
      created(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                  .count()) {}

// ---- Requests and errors ---------------------------------------------------------------------------------------------

OpenAiConnection::Dialect OpenAiConnection::dialect_of(const Request& head) {
  const std::string_view path = path_of(view(head.target()));
  if (path == "/" || path.starts_with("/api/")) return Dialect::ollama;
  const bool is_shared = path == kModels || path.starts_with("/v1/models/");
  if (path.starts_with(kMessages) || (is_shared && head.count("anthropic-version") > 0)) return Dialect::anthropic;
  return Dialect::openai;
}

void OpenAiConnection::authorise(const Request& head) {
  dialect_ = dialect_of(head);
  const std::string_view path = path_of(view(head.target()));
  // A browser tells which page asks; it must be one of this server's own, or of the allowed site.
  if (const std::string_view origin = view(head[http::field::origin]); !origin.empty()) {
    const std::string_view host = origin.substr(std::min(origin.find("://") + 3, origin.size()));
    const std::string& allowed = shared_.own.allowed_origin;
    if (allowed != "*" && origin != allowed && host != view(head[http::field::host]))
      throw HttpError{403, "origin_not_allowed", "the request comes from a page of another site"};
  }
  if (path == "/health" || head.method() == http::verb::options || shared_.own.api_keys.empty()) return;
  // Clients of Anthropic send their key by a header of its own.
  std::string_view token = bearer_token(head);
  if (token.empty() && head.count("x-api-key") == 1) token = view(head["x-api-key"]);
  bool is_known = false;
  for (const std::string& key : shared_.own.api_keys) is_known = is_same_key(token, key) || is_known;
  if (!is_known)
    throw HttpError{401, "invalid_api_key",
                    dialect_ == Dialect::anthropic ? "a known key is needed: x-api-key: KEY"
                                                   : "a known key is needed: Authorization: Bearer KEY"};
}

Value OpenAiConnection::error_value(int status, std::string_view message, std::string_view param,
                                    std::string_view code) const {
  switch (dialect_) {
    case Dialect::anthropic: return serve::anthropic_error_body(status, message, code);
    case Dialect::ollama: return Value::object({{"error", message}});
    default: return serve::openai_error_body(status, message, param, code);
  }
}

Value OpenAiConnection::error_body(int status, const op::OperationError& error) const {
  // Codes of the connection itself are in capitals; the API has lower case.
  std::string code = error.code();
  std::transform(code.begin(), code.end(), code.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return error_value(status, error.what(), {}, code);
}

void OpenAiConnection::add_headers(Response& response) {
  if (shared_.own.allowed_origin.empty()) return;
  response.set(http::field::access_control_allow_origin, shared_.own.allowed_origin);
  response.set(http::field::access_control_allow_headers,
               "Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta, "
               "Anthropic-Dangerous-Direct-Browser-Access");
  response.set(http::field::access_control_allow_methods, "GET, POST, DELETE, OPTIONS");
}

bool OpenAiConnection::answer(const Request& request) {
  try {
    return route(request);
  } catch (const serve::OpenAiError& error) {
    return send(error.status, error_value(error.status, error.what(), error.param, error.code));
  } catch (const serve::QueueError& error) {
    const int status = error.is_closed ? 503 : 429;
    return send(status, error_value(status, error.what(), {}, error.is_closed ? "stopping" : "queue_full"));
  } catch (const FileError& error) {  // the body is not JSON
    return send(400, error_value(400, error.what()));
  } catch (const UsageError& error) {
    return send(400, error_value(400, error.what()));
  }
}

std::shared_ptr<Serving> OpenAiConnection::chatting() {
  auto held = serving();
  if (!held->model.model.has_template())
    throw serve::OpenAiError(400, "the model has no chat template; use /v1/completions");
  return held;
}

std::vector<std::string> OpenAiConnection::names() {
  std::vector<std::string> list;
  if (shared_.own.has_model) list.push_back(serving()->model.name);
  if (shared_.own.has_voice) list.push_back(voice()->name);
  if (shared_.own.has_transcriber) list.push_back(desk()->name());
  if (shared_.own.has_encoder) list.push_back(encoder()->name);
  if (shared_.own.has_reranker) list.push_back(reranker()->name);
  return list;
}

void OpenAiConnection::require(bool is_right, std::string_view path, std::string_view method) {
  if (!is_right) throw serve::OpenAiError(405, fmt::format("{} takes {}", path, method), {}, "method_not_allowed");
}

bool OpenAiConnection::route(const Request& request) {
  const std::string_view path = path_of(view(request.target()));
  const bool gets = request.method() == http::verb::get, posts = request.method() == http::verb::post;
  if (request.method() == http::verb::options && !shared_.own.allowed_origin.empty())
    return send(204, "text/plain", "");
  if (dialect_ == Dialect::ollama) return route_ollama(request, path);
  if (path == "/health") {
    require(gets, path, "GET");
    names();  // which says if one is missing
    return send(200, Value::object({{"status", "ok"}}));
  }
  if (path == "/metrics") {
    require(gets, path, "GET");
    return send(200, "text/plain; version=0.0.4", serve::metrics_text(serving()->queue.counts()));
  }
  const std::string_view model = below(path, kModels), response = below(path, kResponses);
  if (path == kModels || !model.empty()) {
    require(gets, path, "GET");
    return dialect_ == Dialect::anthropic ? list_anthropic_models(model) : list_models(model);
  }
  if (response == "input_tokens") {
    require(posts, path, "POST");
    return count_response_tokens(request);
  }
  if (!response.empty()) {
    const bool removes = request.method() == http::verb::delete_;
    require(gets || removes, path, "GET and DELETE");
    return stored_response(response, removes);
  }
  const auto post = [&](bool (OpenAiConnection::*method)(const Request&)) {
    require(posts, path, "POST");
    return (this->*method)(request);
  };
  if (path == kMessages) return post(&OpenAiConnection::write_message);
  if (path == "/v1/messages/count_tokens") return post(&OpenAiConnection::count_message);
  if (path == kResponses) return post(&OpenAiConnection::respond);
  if (path == "/v1/embeddings") return post(&OpenAiConnection::embed);
  if (path == "/v1/rerank") return post(&OpenAiConnection::rerank);
  if (path == "/v1/audio/speech") return post(&OpenAiConnection::speak);
  const bool is_chat = path == "/v1/chat/completions";
  if (is_chat || path == "/v1/completions") {
    require(posts, path, "POST");
    return complete(request, is_chat);
  }
  const bool translates = path == "/v1/audio/translations";
  if (translates || path == "/v1/audio/transcriptions") {
    require(posts, path, "POST");
    return transcribe(request, translates ? speech::Task::translate : speech::Task::transcribe);
  }
  throw serve::OpenAiError(404, "there is nothing at this path", {}, "not_found");
}

std::int64_t OpenAiConnection::now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// ---- Texts while they are written --------------------------------------------------------------------------------------

std::string OpenAiConnection::event_of(const Value& data) { return fmt::format("data: {}\n\n", data.to_json()); }

std::string OpenAiConnection::named_events(const std::vector<Value>& events) {
  std::string text;
  for (const Value& event : events) text += fmt::format("event: {}\n{}", event["type"].string(), event_of(event));
  return text;
}

bool OpenAiConnection::collect(serve::GenerationTicket& ticket, FunctionRef<void(const serve::GenerationEvent&)> take) {
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

bool OpenAiConnection::begin_stream(std::string_view type) {
  std::string headers;
  if (!shared_.own.allowed_origin.empty())
    headers = fmt::format("Access-Control-Allow-Origin: {}\r\n", shared_.own.allowed_origin);
  return begin_events(headers, type);
}

bool OpenAiConnection::stream(serve::GenerationTicket& ticket, const Writing& writing) {
  if (!begin_stream(writing.type)) return false;
  if (!writing.first.empty() && !write(writing.first)) return false;
  auto spoken = std::chrono::steady_clock::now();
  for (bool is_waiting = true; is_waiting;) {
    const auto event = ticket.next_until(std::chrono::steady_clock::now() + kLook, is_waiting);
    std::string text;
    if (event && !event->error.empty()) {
      write(writing.fail(event->error, event->is_ours ? 500 : 400));
      return false;
    }
    if (event)
      text = writing.take(*event);
    else if (is_waiting && client_has_gone())
      return false;
    else if (std::chrono::steady_clock::now() - spoken > kKeepAlive)
      text = writing.alive;
    if (text.empty()) continue;
    spoken = std::chrono::steady_clock::now();
    if (!write(text)) return false;
  }
  if (const std::string last = writing.end(); !last.empty()) write(last);
  return false;
}

// ---- OpenAI ------------------------------------------------------------------------------------------------------------

bool OpenAiConnection::list_models(std::string_view name) {
  Value::Array entries;
  for (const std::string& each : names()) {
    entries.push_back(serve::model_entry(each, shared_.created));
    if (each == name) return send(200, entries.back());
  }
  if (!name.empty()) throw serve::OpenAiError(404, "the model does not exist here", "model", "model_not_found");
  return send(200, Value::object({{"object", "list"}, {"data", std::move(entries)}}));
}

bool OpenAiConnection::complete(const Request& request, bool is_chat) {
  const auto held = is_chat ? chatting() : serving();
  const Value body = body_of(request);
  serve::CompletionRequest wanted =
      is_chat ? serve::read_chat_request(body, held->model) : serve::read_completion_request(body, held->model);
  serve::GenerationTicket ticket = held->queue.submit(wanted.texts);
  const bool streams = wanted.streams;
  serve::CompletionAnswer answer(std::move(wanted), held->model, now());
  if (!streams) {
    if (!collect(ticket, [&](const serve::GenerationEvent& event) { answer.take(event); })) return false;
    return send(200, answer.body());
  }
  return stream(ticket,
                {.take =
                     [&](const serve::GenerationEvent& event) {
                       std::string text;
                       for (const Value& chunk : answer.take(event)) text += event_of(chunk);
                       return text;
                     },
                 .fail = [&](const std::string& message, int status) { return event_of(error_value(status, message)); },
                 .end =
                     [&] {
                       const auto usage = answer.usage_chunk();
                       return (usage ? event_of(*usage) : "") + "data: [DONE]\n\n";
                     }});
}

bool OpenAiConnection::respond(const Request& request) {
  const auto held = chatting();
  const Value body = body_of(request);
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
  return stream(ticket,
                {.first = named_events(answer.begin()),
                 .take =
                     [&](const serve::GenerationEvent& event) {
                       const std::string text = named_events(answer.take(event));
                       if (event.has_ended) keep();  // before the client can ask for it
                       return text;
                     },
                 .fail = [&](const std::string& message, int) { return named_events({answer.failure(message)}); },
                 .end = [] { return std::string(); }});
}

bool OpenAiConnection::count_response_tokens(const Request& request) {
  const auto held = chatting();
  const serve::ResponseRequest wanted = serve::read_response_request(body_of(request), held->model, held->responses);
  return send(200, Value::object({{"object", "response.input_tokens"},
                                  {"input_tokens", wanted.completion.texts[0].prompt.size()}}));
}

bool OpenAiConnection::stored_response(std::string_view path, bool removes) {
  const auto held = serving();
  constexpr std::string_view kItems = "/input_items";
  const bool lists = path.ends_with(kItems);
  const std::string_view id = lists ? path.substr(0, path.size() - kItems.size()) : path;
  const auto found = held->responses.find(id);
  if (lists) require(!removes, "the list of a response's items", "GET");
  if (!found || (removes && !held->responses.remove(id)))
    throw serve::OpenAiError(404, fmt::format("the response {} is not stored here", quote(id, 80)), {},
                             "response_not_found");
  if (lists) return send(200, serve::input_items(*found));
  if (!removes) return send(200, found->response);
  return send(200, Value::object({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

Value OpenAiConnection::embedded(const Value& body) {
  const Value* name = body.is_object() ? body.find("model") : nullptr;
  const bool asks_language_model =
      shared_.own.has_model && name && name->is_string() && name->string() == shared_.own.model_name;
  if (shared_.own.has_encoder && !asks_language_model) {
    const auto held = encoder();
    const serve::EmbeddingRequest wanted = serve::read_embedding_request(body, *held);
    const auto turn = turn_at(*held);
    return turn.owns_lock() ? serve::embedding_answer(wanted, held->name, serve::embedded(wanted, held->model))
                            : Value();
  }
  const auto held = serving();
  const serve::EmbeddingRequest wanted = serve::read_embedding_request(body, held->model);
  const std::optional<Tensor> rows = held->queue.embed(wanted.texts, {});
  if (!rows) throw serve::OpenAiError(503, "the server is stopping", {}, "stopping");
  return serve::embedding_answer(wanted, held->model.name, *rows);
}

bool OpenAiConnection::embed(const Request& request) {
  const Value answer = embedded(body_of(request));
  return !answer.is_null() && send(200, answer);
}

bool OpenAiConnection::rerank(const Request& request) {
  const auto held = reranker();
  const serve::RerankRequest wanted = serve::read_rerank_request(body_of(request), *held);
  const auto turn = turn_at(*held);
  if (!turn.owns_lock()) return false;
  return send(200,
              serve::rerank_answer(wanted, *held, held->model.rerank(wanted.query, wanted.documents, wanted.count)));
}

template <class Desk>
std::unique_lock<std::timed_mutex> OpenAiConnection::turn_at(Desk& desk) {
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

// ---- Sounds ------------------------------------------------------------------------------------------------------------

bool OpenAiConnection::transcribe(const Request& request, speech::Task task) {
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

bool OpenAiConnection::speak(const Request& request) {
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

}  // namespace weft::remote::openai
