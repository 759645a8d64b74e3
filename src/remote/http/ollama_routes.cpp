// The routes of Ollama's API.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "remote/http/openai_connection.hpp"

namespace weft::remote::openai {
namespace {

constexpr std::string_view kLines = "application/x-ndjson";

std::string line_of(const Value& value) { return value.to_json() + "\n"; }

}  // namespace

std::vector<serve::OllamaModel> OpenAiConnection::ollama_models() {
  std::vector<serve::OllamaModel> list;
  if (shared_.own.has_model) list.push_back(serve::ollama_model(serving()->model));
  if (shared_.own.has_encoder) list.push_back(serve::ollama_model(*encoder()));
  return list;
}

bool OpenAiConnection::route_ollama(const Request& request, std::string_view path) {
  const bool gets = request.method() == http::verb::get, posts = request.method() == http::verb::post;
  if (path == "/") {
    // Clients look here for a server. An answer to HEAD has no body.
    require(gets || request.method() == http::verb::head, path, "GET and HEAD");
    return send(200, "text/plain", gets ? "Weft is running" : "");
  }
  if (path == "/api/version") {
    require(gets, path, "GET");
    return send(200, Value::object({{"version", shared_.own.http.version}}));
  }
  const bool lists_running = path == "/api/ps";
  if (lists_running || path == "/api/tags") {
    require(gets, path, "GET");
    Value::Array entries;
    for (const serve::OllamaModel& each : ollama_models())
      entries.push_back(lists_running ? serve::ollama_running(each, shared_.created)
                                      : serve::ollama_tag(each, shared_.created));
    return send(200, Value::object({{"models", std::move(entries)}}));
  }
  const bool is_chat = path == "/api/chat";
  if (is_chat || path == "/api/generate") {
    require(posts, path, "POST");
    return write_ollama(request, is_chat);
  }
  const bool is_one = path == "/api/embeddings";
  if (is_one || path == "/api/embed") {
    require(posts, path, "POST");
    return embed_ollama(request, is_one);
  }
  if (path == "/api/show" || path == "/api/pull") {
    require(posts, path, "POST");
    const Value body = serve::with_known_name(body_of(request), names());
    const std::string& name = body["model"].string();
    for (const serve::OllamaModel& each : ollama_models())
      if (each.name == name) {
        if (path == "/api/show") return send(200, serve::ollama_show(each, shared_.created));
        return send(200, kLines, line_of(Value::object({{"status", "success"}})));  // it is here already
      }
    throw serve::OpenAiError(404, fmt::format("the model {} does not exist here; GET /api/tags lists those that do, "
                                              "and a server gets its models when it starts",
                                              quote(name, 60)));
  }
  throw serve::OpenAiError(404, fmt::format("{} is not a path of this server", path));
}

bool OpenAiConnection::write_ollama(const Request& request, bool is_chat) {
  const auto held = is_chat ? chatting() : serving();
  const Value body = serve::with_known_name(body_of(request), names());
  serve::OllamaRequest wanted =
      is_chat ? serve::read_ollama_chat(body, held->model) : serve::read_ollama_generate(body, held->model);
  const std::vector<serve::GenerationText> texts = wanted.completion.texts;
  const bool streams = wanted.streams;
  serve::OllamaAnswer answer(std::move(wanted), held->model);
  if (texts.empty()) return send(200, streams ? kLines : "application/json", line_of(answer.body()));
  serve::GenerationTicket ticket = held->queue.submit(texts);
  if (!streams) {
    if (!collect(ticket, [&](const serve::GenerationEvent& event) { answer.take(event); })) return false;
    return send(200, answer.body());
  }
  return stream(ticket,
                {.type = kLines,
                 .alive = {},  // a line is an answer
                 .take =
                     [&](const serve::GenerationEvent& event) {
                       std::string text;
                       for (const Value& each : answer.take(event)) text += line_of(each);
                       return text;
                     },
                 .fail = [&](const std::string& message, int status) { return line_of(error_value(status, message)); },
                 .end = [] { return std::string(); }});
}

bool OpenAiConnection::embed_ollama(const Request& request, bool is_one) {
  const auto begun = std::chrono::steady_clock::now();
  Value body = serve::with_known_name(body_of(request), names());
  // The older path takes one text as "prompt".
  if (is_one)
    if (const Value* prompt = body.find("prompt")) {
      const Value text = *prompt;
      body.members().set("input", text);
    }
  body.members().set("encoding_format", "float");
  if (const Value* cuts = body.find("truncate"); !cuts || cuts->is_null()) body.members().set("truncate", true);
  const Value answer = embedded(body);
  if (answer.is_null()) return false;
  if (is_one) return send(200, Value::object({{"embedding", answer["data"][0]["embedding"]}}));
  return send(200, serve::ollama_embeddings(
                       answer, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count()));
}

}  // namespace weft::remote::openai
