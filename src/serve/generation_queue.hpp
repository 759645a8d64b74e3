// Requests to one language model: a thread that runs several of them side by side, and a queue for the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "weft/llm.hpp"

namespace weft::serve {

/// The queue is full, or closed.
class QueueError : public Error {
 public:
  QueueError(const std::string& message, bool is_closed) : Error(message), is_closed(is_closed) {}
  bool is_closed;
};

/// What happened to one text of a request.
struct GenerationEvent {
  std::size_t text = 0;  ///< its index in the request
  std::string piece = {};
  std::vector<llm::GeneratedToken> tokens = {};  ///< since the event before
  bool has_ended = false;
  llm::Finish finish = llm::Finish::length;  ///< once it has ended
  std::string stop_text = {};                ///< the one that ended it
  std::string error = {};                    ///< why it failed; empty: it did not
  bool is_ours = false;                      ///< the failure is not the request's: of the device
  Extent reused_tokens = 0;                  ///< of its prompt, once it has ended
  double prompt_seconds = 0, seconds = 0;    ///< as in GenerationRecord, once it has ended
};

/// A text to write.
struct GenerationText {
  llm::Prompt prompt;
  llm::GenerateOptions options;
};

class GenerationQueue;

/// A request that is under way. Destroying it cancels what has not ended. One thread.
class GenerationTicket {
 public:
  ~GenerationTicket();
  GenerationTicket(GenerationTicket&&) noexcept = default;

  /// The next event; nothing at `time`, or if there will be no more (`is_waiting` is then false).
  std::optional<GenerationEvent> next_until(std::chrono::steady_clock::time_point time, bool& is_waiting);

 private:
  friend class GenerationQueue;
  struct Request;
  explicit GenerationTicket(std::shared_ptr<Request> request) : request_(std::move(request)) {}
  std::shared_ptr<Request> request_;
};

/// A text that has ended, or failed.
struct GenerationRecord {
  std::size_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
  llm::Finish finish = llm::Finish::length;
  std::string error;           ///< empty: it did not fail
  double waiting_seconds = 0;  ///< for a sequence of the cache
  double prompt_seconds = 0;   ///< of passes over its prompt
  double seconds = 0;          ///< of passes that wrote it, which it may have shared with other texts
};
/// A text that has waited for a sequence of the cache.
struct QueueWait {
  double seconds = 0;
  std::size_t waiting = 0;  ///< requests that still wait
};

/// Functions that the queue calls, on its own thread and without its lock. They should be quick: no text goes on meanwhile. What
/// they throw is dropped.
struct QueueHooks {
  std::function<void(const GenerationRecord&)> on_generate = {};
  std::function<void(const QueueWait&)> on_queue_wait = {};
  double wait_least = 0.1;  ///< seconds; `on_queue_wait` is not called for shorter waits
};

struct QueueOptions {
  std::size_t waiting_max = 64;  ///< requests that wait for a free sequence of the cache
  QueueHooks hooks = {};
};

/// Counts since the start, for monitoring.
struct QueueCounts {
  std::uint64_t requests = 0, refused = 0, failed = 0, cancelled = 0;
  std::uint64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0, embedded_texts = 0;
  std::size_t running = 0, waiting = 0;                                 ///< texts now, requests now
  double waiting_seconds = 0, prompt_seconds = 0, writing_seconds = 0;  ///< of all texts together
};

/// Texts of different requests take turns: a sequence that becomes free goes to the request with the fewest texts under way, and
/// among those to the oldest. Thread safety: any thread may call any function.
class GenerationQueue {
 public:
  GenerationQueue(llm::Model model, const QueueOptions& options);
  /// Cancels all requests.
  ~GenerationQueue();

  const llm::Model& model() const { return model_; }
  /// Errors: QueueError; UsageError as Model::check, and for prompts that are empty or do not fit the context.
  GenerationTicket submit(std::vector<GenerationText> texts);
  /// Rows of the texts. Waits for its turn, at most until `stop`; nothing then. Errors: QueueError; UsageError as Model::embed.
  std::optional<Tensor> embed(std::vector<std::string> texts, const std::stop_token& stop);
  QueueCounts counts() const;
  /// Takes no more requests, and waits until those under way have ended, or until `time`.
  void close(std::chrono::steady_clock::time_point time);

 private:
  struct Running {
    std::shared_ptr<GenerationTicket::Request> request;
    std::size_t text;
    double waiting_seconds = 0;
    std::size_t tokens_told = 0;
  };
  struct Embedding;

  void check_room();
  void work(const std::stop_token& stop);
  void admit(llm::Batch& batch);
  void embed_waiting(llm::Batch& batch);
  void tell(llm::Batch& batch, const llm::Batch::Progress& progress);
  void fail_all(const std::string& error);
  bool is_idle() const { return waiting_.empty() && running_.empty() && embeddings_.empty(); }

  llm::Model model_;
  const QueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<std::shared_ptr<GenerationTicket::Request>> waiting_;  // with texts that have not begun, in order
  std::list<std::shared_ptr<Embedding>> embeddings_;
  std::vector<std::pair<llm::Batch::Id, Running>> running_;  // of the working thread, but for its size
  QueueCounts counts_;
  bool is_closed_ = false;
  std::jthread worker_;  // last: it uses the others
};

}  // namespace weft::serve
