#include "remote/http/openai_server.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "remote/http/listener.hpp"
#include "remote/http/openai_connection.hpp"

namespace weft::remote {

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
