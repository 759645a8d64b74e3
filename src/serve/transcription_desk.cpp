#include "serve/transcription_desk.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "serve/generation_queue.hpp"
#include "weft/error.hpp"

namespace weft::serve {

std::unique_ptr<TranscriptionTicket> TranscriptionDesk::submit(const TranscriptionRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) throw QueueError("the server is stopping", true);
    if (tickets_.size() > waiting_max_)
      throw QueueError(fmt::format("{} requests are waiting already; send it again later", waiting_max_), false);
  }
  return std::make_unique<TranscriptionTicket>(*this, request);
}

void TranscriptionDesk::close(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  changed_.wait_until(lock, time, [&] { return tickets_.empty(); });
  for (TranscriptionTicket* ticket : tickets_) ticket->stop_.request_stop();
  changed_.notify_all();
}

TranscriptionTicket::TranscriptionTicket(TranscriptionDesk& desk, const TranscriptionRequest& request) : desk_(desk) {
  {
    const std::lock_guard lock(desk.mutex_);
    desk.tickets_.push_back(this);
  }
  worker_ = std::thread([this, &request] { run(request); });
}

TranscriptionTicket::~TranscriptionTicket() {
  stop_.request_stop();
  desk_.changed_.notify_all();
  worker_.join();
}

std::optional<TranscriptionEvent> TranscriptionTicket::next_until(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, time, [&] { return !events_.empty(); })) return std::nullopt;
  TranscriptionEvent event = std::move(events_.front());
  events_.erase(events_.begin());
  return event;
}

void TranscriptionTicket::tell(TranscriptionEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

void TranscriptionTicket::run(const TranscriptionRequest& request) {
  {
    std::unique_lock lock(desk_.mutex_);
    desk_.changed_.wait(lock, stop_.get_token(), [&] { return desk_.tickets_.front() == this; });
  }
  TranscriptionEvent end;
  if (!stop_.stop_requested()) {
    try {
      speech::TranscribeOptions options = request.options;
      options.cancel = stop_.get_token();
      options.on_segment = [this](const speech::Segment& segment) { tell({.segment = segment}); };
      if (desk_.detector_) options.speech = desk_.detector_->spans(request.sound);
      end.transcript = desk_.transcriber().transcribe(request.sound, options);
    } catch (const UsageError& error) {
      end.error = error.what();
    } catch (const std::exception& error) {  // of the device
      end.error = error.what();
      end.is_ours = true;
    }
  }
  if (stop_.stop_requested()) end = {.was_stopped = true};
  {
    const std::lock_guard lock(desk_.mutex_);
    std::erase(desk_.tickets_, this);
  }
  desk_.changed_.notify_all();
  tell(std::move(end));
}

}  // namespace weft::serve
