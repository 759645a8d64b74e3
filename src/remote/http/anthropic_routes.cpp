// The routes of Anthropic's API.
#include "remote/http/openai_connection.hpp"
#include "serve/anthropic.hpp"

namespace weft::remote::openai {

bool OpenAiConnection::write_message(const Request& request) {
  const auto held = chatting();
  serve::MessagesRequest wanted = serve::read_messages_request(body_of(request), held->model);
  serve::GenerationTicket ticket = held->queue.submit(wanted.completion.texts);
  const bool streams = wanted.streams;
  serve::MessagesAnswer answer(std::move(wanted), held->model);
  if (!streams) {
    if (!collect(ticket, [&](const serve::GenerationEvent& event) { answer.take(event); })) return false;
    return send(200, answer.body());
  }
  return stream(ticket, {.first = named_events(answer.begin()),
                         .alive = named_events({Value::object({{"type", "ping"}})}),
                         .take = [&](const serve::GenerationEvent& event) { return named_events(answer.take(event)); },
                         .fail = [&](const std::string& message,
                                     int status) { return named_events({error_value(status, message)}); },
                         .end = [] { return std::string(); }});
}

bool OpenAiConnection::count_message(const Request& request) {
  const auto held = chatting();
  return send(200, Value::object({{"input_tokens", serve::count_message_tokens(body_of(request), held->model)}}));
}

bool OpenAiConnection::list_anthropic_models(std::string_view name) {
  Value::Array entries;
  for (const std::string& each : names()) {
    entries.push_back(serve::anthropic_model_entry(each, shared_.created));
    if (each == name) return send(200, entries.back());
  }
  if (!name.empty()) throw serve::OpenAiError(404, "the model does not exist here", "model", "model_not_found");
  const Value first = entries.front()["id"], last = entries.back()["id"];
  return send(
      200, Value::object({{"data", std::move(entries)}, {"has_more", false}, {"first_id", first}, {"last_id", last}}));
}

}  // namespace weft::remote::openai
