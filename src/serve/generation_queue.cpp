#include "serve/generation_queue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::serve {

struct GenerationTicket::Request {
  std::vector<GenerationText> texts;
  std::stop_source stop;
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();
  std::size_t begun = 0, running = 0;  // texts; of the queue, under its mutex
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<GenerationEvent> events;
  std::size_t ended = 0;  // texts

  void add(GenerationEvent event) {
    {
      const std::lock_guard lock(mutex);
      if (event.has_ended) ++ended;
      events.push_back(std::move(event));
    }
    changed.notify_all();
  }
};

struct GenerationQueue::Embedding {
  std::vector<std::string> texts;
  std::stop_token stop;
  std::optional<Tensor> rows;
  std::string error;
  bool done = false;
};

namespace {

/// Calls a hook, if there is one. A hook is the user's, and its failure must not end the texts.
template <class Hook, class Fact>
void call_hook(const Hook& hook, const Fact& fact) {
  if (!hook) return;
  try {
    hook(fact);
  } catch (const std::exception&) {
  }
}

}  // namespace

GenerationTicket::~GenerationTicket() {
  if (request_) request_->stop.request_stop();
}

std::optional<GenerationEvent> GenerationTicket::next_until(std::chrono::steady_clock::time_point time,
                                                            bool& is_waiting) {
  std::unique_lock lock(request_->mutex);
  const auto is_over = [&] { return request_->events.empty() && request_->ended == request_->texts.size(); };
  request_->changed.wait_until(lock, time, [&] { return !request_->events.empty() || is_over(); });
  is_waiting = !is_over();
  if (request_->events.empty()) return std::nullopt;
  GenerationEvent event = std::move(request_->events.front());
  request_->events.pop_front();
  return event;
}

GenerationQueue::GenerationQueue(llm::Model model, const QueueOptions& options)
    : model_(std::move(model)), options_(options), worker_([this](const std::stop_token& stop) { work(stop); }) {}

GenerationQueue::~GenerationQueue() {
  close(std::chrono::steady_clock::now());
  worker_.request_stop();
  worker_.join();
}

void GenerationQueue::check_room() {
  if (is_closed_) throw QueueError("the server is stopping", true);
  if (waiting_.size() + embeddings_.size() < options_.waiting_max) return;
  ++counts_.refused;
  throw QueueError(fmt::format("{} requests are waiting already; send it again later", options_.waiting_max), false);
}

GenerationTicket GenerationQueue::submit(std::vector<GenerationText> texts) {
  for (const GenerationText& text : texts) {
    model_.check(text.options);
    if (text.prompt.empty()) throw UsageError("the prompt has no tokens; give some text");
    if (static_cast<Extent>(text.prompt.size()) >= model_.context())
      throw UsageError(fmt::format("the prompt has {} tokens, and the context {} positions; shorten it",
                                   text.prompt.size(), model_.context()));
  }
  auto request = std::make_shared<GenerationTicket::Request>();
  request->texts = std::move(texts);
  for (GenerationText& text : request->texts) text.options.cancel = request->stop.get_token();
  {
    const std::lock_guard lock(mutex_);
    check_room();
    ++counts_.requests;
    waiting_.push_back(request);
  }
  changed_.notify_all();
  return GenerationTicket(std::move(request));
}

std::optional<Tensor> GenerationQueue::embed(std::vector<std::string> texts, const std::stop_token& stop) {
  auto embedding = std::make_shared<Embedding>();
  embedding->texts = std::move(texts);
  embedding->stop = stop;
  std::unique_lock lock(mutex_);
  check_room();
  ++counts_.requests;
  embeddings_.push_back(embedding);
  changed_.notify_all();
  changed_.wait(lock, stop, [&] { return embedding->done; });
  if (!embedding->done) return std::nullopt;
  if (!embedding->error.empty()) throw UsageError(embedding->error);
  return embedding->rows;
}

QueueCounts GenerationQueue::counts() const {
  const std::lock_guard lock(mutex_);
  QueueCounts counts = counts_;
  counts.running = running_.size();
  counts.waiting = waiting_.size() + embeddings_.size();
  return counts;
}

void GenerationQueue::close(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  changed_.wait_until(lock, time, [&] { return is_idle(); });
  for (const auto& request : waiting_) request->stop.request_stop();
  for (const auto& [id, running] : running_) running.request->stop.request_stop();
}

void GenerationQueue::work(const std::stop_token& stop) {
  std::optional<llm::Batch> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !is_idle(); });
      if (is_idle()) return;  // stopped, and everything was cancelled before
    }
    try {
      if (!batch) batch.emplace(model_);
      embed_waiting(*batch);
      admit(*batch);
      for (const llm::Batch::Progress& progress : batch->step()) tell(*batch, progress);
    } catch (const std::exception& error) {  // of the device: all texts under way are lost
      batch.reset();
      fail_all(error.what());
    }
    changed_.notify_all();
  }
}

void GenerationQueue::admit(llm::Batch& batch) {
  while (batch.room() > 0) {
    std::shared_ptr<GenerationTicket::Request> request;
    std::size_t text = 0;
    QueueWait wait;
    {
      const std::lock_guard lock(mutex_);
      const auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                         [](const auto& a, const auto& b) { return a->running < b->running; });
      if (next == waiting_.end()) return;
      request = *next;
      text = request->begun++;
      ++request->running;
      if (request->begun == request->texts.size()) waiting_.erase(next);
      counts_.prompt_tokens += request->texts[text].prompt.size();
      wait = {std::chrono::duration<double>(std::chrono::steady_clock::now() - request->came).count(), waiting_.size()};
      counts_.waiting_seconds += wait.seconds;
    }
    if (wait.seconds >= options_.hooks.wait_least) call_hook(options_.hooks.on_queue_wait, wait);
    try {
      const llm::Batch::Id id = batch.add(request->texts[text].prompt, request->texts[text].options);
      const std::lock_guard lock(mutex_);
      running_.emplace_back(id, Running{request, text, wait.seconds});
    } catch (const UsageError& error) {
      const std::lock_guard lock(mutex_);
      --request->running;
      ++counts_.failed;
      request->add({.text = text, .has_ended = true, .error = error.what()});
    }
  }
}

void GenerationQueue::embed_waiting(llm::Batch& batch) {
  while (batch.room() > 0) {
    std::shared_ptr<Embedding> next;
    {
      const std::lock_guard lock(mutex_);
      if (embeddings_.empty()) return;
      next = embeddings_.front();
    }
    std::optional<Tensor> rows;
    std::string error;
    try {
      if (!next->stop.stop_requested()) rows = batch.embed(next->texts);
    } catch (const std::exception& e) {
      error = e.what();
    }
    const std::lock_guard lock(mutex_);
    next->rows = std::move(rows);
    next->error = std::move(error);
    next->done = true;
    counts_.embedded_texts += next->texts.size();
    embeddings_.pop_front();
    changed_.notify_all();
  }
}

void GenerationQueue::tell(llm::Batch& batch, const llm::Batch::Progress& progress) {
  const auto at = std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r.first == progress.id; });
  Running& running = at->second;
  const llm::Result& result = batch.result(progress.id);
  GenerationEvent event{.text = running.text,
                        .piece = progress.piece,
                        .has_ended = progress.has_ended,
                        .finish = result.finish,
                        .error = progress.error};
  if (progress.has_ended) {
    event.stop_text = result.stop_text;
    event.reused_tokens = result.reused_tokens;
    event.prompt_seconds = result.prompt_seconds;
    event.seconds = result.seconds;
  }
  event.tokens.assign(result.tokens.begin() + static_cast<std::ptrdiff_t>(running.tokens_told), result.tokens.end());
  const std::size_t fresh = event.tokens.size();
  running.tokens_told = result.tokens.size();
  const GenerationRecord record{running.request->texts[running.text].prompt.size(),
                                static_cast<std::size_t>(result.reused_tokens),
                                result.tokens.size(),
                                result.finish,
                                progress.error,
                                running.waiting_seconds,
                                result.prompt_seconds,
                                result.seconds};
  const auto request = running.request;
  {
    const std::lock_guard lock(mutex_);
    counts_.generated_tokens += fresh;
    if (progress.has_ended) {
      --request->running;
      counts_.reused_tokens += static_cast<std::uint64_t>(result.reused_tokens);
      counts_.prompt_seconds += record.prompt_seconds;
      counts_.writing_seconds += record.seconds;
      if (!progress.error.empty()) ++counts_.failed;
      if (result.finish == llm::Finish::cancelled) ++counts_.cancelled;
      running_.erase(at);
    }
  }
  if (progress.has_ended) {
    batch.remove(progress.id);
    call_hook(options_.hooks.on_generate, record);
  }
  request->add(std::move(event));
}

void GenerationQueue::fail_all(const std::string& error) {
  std::vector<std::pair<llm::Batch::Id, Running>> lost;
  {
    const std::lock_guard lock(mutex_);
    lost = std::move(running_);
    running_.clear();
    counts_.failed += lost.size();
    for (auto& [id, running] : lost) --running.request->running;
  }
  for (auto& [id, running] : lost)
    running.request->add({.text = running.text, .has_ended = true, .error = error, .is_ours = true});
}

}  // namespace weft::serve
