// Requests to one speech model: they take turns, and each tells of its segments as they come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "serve/openai_audio.hpp"
#include "weft/speech.hpp"

namespace weft::serve {

/// What happened to a request: a segment, or its end.
struct TranscriptionEvent {
  std::optional<speech::Segment> segment = {};
  std::optional<speech::Transcript> transcript = {};  ///< of a request that has ended well
  std::string error = {};                             ///< why it failed
  bool is_ours = false;                               ///< the error is not one of the request
  bool was_stopped = false;                           ///< by the end of the server
};

class TranscriptionDesk;

/// A request under way. Its destruction cancels it.
class TranscriptionTicket {
 public:
  TranscriptionTicket(TranscriptionDesk& desk, const TranscriptionRequest& request);
  ~TranscriptionTicket();
  TranscriptionTicket(const TranscriptionTicket&) = delete;
  TranscriptionTicket& operator=(const TranscriptionTicket&) = delete;

  /// The next event; nothing if there is none until `time`. The last event has no segment.
  std::optional<TranscriptionEvent> next_until(std::chrono::steady_clock::time_point time);

 private:
  friend class TranscriptionDesk;
  void run(const TranscriptionRequest& request);
  void tell(TranscriptionEvent event);

  TranscriptionDesk& desk_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<TranscriptionEvent> events_;  // that nobody has taken
  std::thread worker_;
};

/// Thread safety: all calls may come from any thread. It must outlive its tickets.
class TranscriptionDesk {
 public:
  /// With a detector, only what it finds is heard.
  TranscriptionDesk(speech::Transcriber transcriber, std::optional<speech::Detector> detector, std::string name,
                    std::size_t waiting_max)
      : transcriber_(std::move(transcriber)),
        detector_(std::move(detector)),
        name_(std::move(name)),
        waiting_max_(waiting_max) {}

  const speech::Transcriber& transcriber() const { return transcriber_; }
  const std::string& name() const { return name_; }
  /// The request must outlive the ticket. Errors: QueueError.
  std::unique_ptr<TranscriptionTicket> submit(const TranscriptionRequest& request);
  /// Takes no more requests, and waits until those under way have ended, or until `time`; then they are stopped.
  void close(std::chrono::steady_clock::time_point time);

 private:
  friend class TranscriptionTicket;
  speech::Transcriber transcriber_;
  std::optional<speech::Detector> detector_;
  std::string name_;
  std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<TranscriptionTicket*> tickets_;  // in the order of their turns; the first one runs
  bool is_closed_ = false;
};

}  // namespace weft::serve
