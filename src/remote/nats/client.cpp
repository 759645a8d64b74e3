#include "remote/nats/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "base/quote.hpp"
#include "base/text_map.hpp"
#include "catalogue/frame.hpp"
#include "remote/nats/objects.hpp"
#include "remote/nats/protocol.hpp"
#include "serve/service.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kAgain = 25ms;  // before a call that found no worker is sent again
constexpr std::size_t kRequestHeadersBytes = 16 << 10;

std::uint64_t whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? number : UINT64_MAX;
}

}  // namespace

// Messages of a call that were not looked at yet.
struct Arrivals {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<int, NatsMessage>> messages;  // with the attempt that they belong to
};

struct NatsClient::State {
  NatsClientOptions options;
  op::Handles handles;  // none: answers have their tensors' bytes
  std::mutex mutex;
  TextMap<std::shared_ptr<Arrivals>> calls;  // by their part of the inbox
  std::uint64_t next = 1;
  const std::string root = NatsConnection::inbox();
  NatsConnection connection;
  NatsObjects objects;

  explicit State(const NatsClientOptions& options_)
      : options(options_), connection(options.nats, "weft client"), objects(connection, options.nats.bucket) {
    connection.subscribe(root + ".>", "", [this](NatsMessage message) { arrive(std::move(message)); });
    connection.flush();
  }
  ~State() { connection.close(); }

  // ROOT.CALL.ATTEMPT
  void arrive(NatsMessage message) {
    std::string_view rest = message.subject();
    if (rest.size() <= root.size() + 1) return;
    rest.remove_prefix(root.size() + 1);
    const auto dot = rest.find('.');
    if (dot == std::string_view::npos) return;
    std::shared_ptr<Arrivals> arrivals;
    {
      const std::lock_guard lock(mutex);
      const auto found = calls.find(rest.substr(0, dot));
      if (found == calls.end()) return;
      arrivals = found->second;
    }
    const auto attempt = static_cast<int>(std::min<std::uint64_t>(whole_number(rest.substr(dot + 1)), INT32_MAX));
    {
      const std::lock_guard lock(arrivals->mutex);
      arrivals->messages.emplace_back(attempt, std::move(message));
    }
    arrivals->changed.notify_all();
  }

  std::pair<std::string, std::shared_ptr<Arrivals>> open() {
    auto arrivals = std::make_shared<Arrivals>();
    const std::lock_guard lock(mutex);
    std::string name = std::to_string(next++);
    calls.emplace(name, arrivals);
    return {std::move(name), std::move(arrivals)};
  }
  void close(const std::string& name) {
    const std::lock_guard lock(mutex);
    calls.erase(name);
  }
  std::string bearer() const { return options.token.empty() ? "" : "Bearer " + options.token; }
};

namespace {

// One call, on the thread that waits for it.
template <class State>
class NatsCall {
 public:
  NatsCall(State& client, std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
           const std::function<bool(op::Envelope)>& take)
      : client_(client), id_(id), options_(options), take_(take), began_(Steady::now()) {
    const op::Frame frame(input, op::WireTensors::data, client.handles, "");
    body_ = frame.has_tensors() ? frame.to_string() : frame.json();
    if (body_.size() + kRequestHeadersBytes > client.connection.payload_max()) {
      object_ = client.objects.put(body_);
      body_.clear();
    }
    std::tie(name_, arrivals_) = client.open();
  }
  ~NatsCall() {
    client_.close(name_);
    try {
      for (int attempt = 1; attempt <= attempt_; ++attempt)
        if (!done_ || attempt != chosen_) control(attempt, "abort", {});
    } catch (const Error&) {  // the worker notices that nobody listens
    }
    if (!object_.empty()) client_.objects.remove(object_);
  }
  NatsCall(const NatsCall&) = delete;
  NatsCall& operator=(const NatsCall&) = delete;

  void run() {
    const std::stop_callback on_stop(options_.stop, [this] {
      { const std::lock_guard lock(arrivals_->mutex); }
      arrivals_->changed.notify_all();
    });
    send();
    while (!done_) {
      std::unique_lock lock(arrivals_->mutex);
      auto until = resend_at_.value_or(heard_ + client_.options.silence);
      if (options_.deadline)
        until = std::min(
            until, Steady::now() + std::chrono::duration_cast<Steady::duration>(*options_.deadline - op::Clock::now()));
      arrivals_->changed.wait_until(lock, until,
                                    [&] { return !arrivals_->messages.empty() || options_.stop.stop_requested(); });
      if (options_.stop.stop_requested())
        throw op::OperationError(op::kAborted, fmt::format("{}: it was aborted", id_));
      if (!arrivals_->messages.empty()) {
        auto [attempt, message] = std::move(arrivals_->messages.front());
        arrivals_->messages.pop_front();
        lock.unlock();
        look_at(attempt, message);
        continue;
      }
      lock.unlock();
      if (options_.deadline && op::Clock::now() >= *options_.deadline)
        throw op::OperationError(op::kTimeout, fmt::format("{}: the deadline has passed", id_));
      if (resend_at_ && Steady::now() >= *resend_at_) {
        resend_at_.reset();
        send();
      } else if (!resend_at_ && Steady::now() >= heard_ + client_.options.silence) {
        lost();
      }
    }
  }

 private:
  std::string inbox(int attempt) const { return fmt::format("{}.{}.{}", client_.root, name_, attempt); }

  void send() {
    ++attempt_;
    NatsHeaders headers{{wire::kFollow, "1"},
                        {wire::kSession, client_.root + ".session"},
                        {wire::kCredit, std::to_string(client_.options.window)}};
    if (!client_.options.token.empty()) headers.emplace_back(wire::kAuthorization, client_.bearer());
    if (options_.keeps_tensors) headers.emplace_back(wire::kTensors, "handles");
    if (!object_.empty()) headers.emplace_back(wire::kObject, object_);
    if (!options_.via.empty()) headers.emplace_back(wire::kVia, serve::via_text(options_.via));
    if (!options_.request_id.empty()) headers.emplace_back(wire::kRequestId, options_.request_id);
    if (options_.deadline) {
      const double left = std::chrono::duration<double>(*options_.deadline - op::Clock::now()).count();
      headers.emplace_back(wire::kTimeout, fmt::format("{:.3f}", std::max(left, 0.001)));
    }
    heard_ = Steady::now();
    const std::string& prefix = client_.options.nats.prefix;
    client_.connection.publish(options_.worker.empty() ? fmt::format("{}.call.{}", prefix, id_)
                                                       : fmt::format("{}.direct.{}.{}", prefix, options_.worker, id_),
                               inbox(attempt_), headers, body_);
  }

  void control(int attempt, std::string what, NatsHeaders headers) {
    headers.emplace_back(wire::kControl, std::move(what));
    headers.emplace_back(wire::kCall, inbox(attempt));
    client_.connection.publish(client_.options.nats.prefix + ".control", "", headers, {});
  }

  // The worker is silent: it has died, or lost its connection.
  void lost() {
    // Another worker finds the answer, or that the call was never begun, or that nobody knows.
    if (granted_ && answers_ == 0 && !options_.request_id.empty()) granted_ = 0;
    if (granted_ || answers_ > 0)
      throw op::OperationError(
          "WORKER_LOST",
          fmt::format("{}: the worker has died after it began; {}", id_,
                      answers_ > 0 ? "not all answers came" : "it is not known whether the call has had its effect"));
    send();
  }

  // No worker has room, or none is there.
  void send_again_soon(const std::string& reason) {
    if (Steady::now() - began_ > client_.options.find_time)
      throw op::OperationError("UNAVAILABLE", fmt::format("{}: {}", id_, reason));
    resend_at_ = Steady::now() + kAgain;
  }

  void look_at(int attempt, const NatsMessage& message) {
    if (message.is_no_responders()) {
      if (attempt == attempt_ && !granted_) send_again_soon("no worker offers this operation");
      return;
    }
    if (attempt < 1 || attempt > attempt_) return;
    if (attempt == attempt_) heard_ = Steady::now();
    const std::string_view event = message.header(wire::kEvent);
    if (event == "alive") return;
    if (event == "taken") {
      if (granted_) return;  // to an earlier attempt
      granted_ = attempt;
      control(attempt, "grant", {{wire::kWorker, std::string(message.header(wire::kWorker))}});
      return;
    }
    if (granted_ && attempt != granted_) return;
    if (event == "call.responded") return answer(attempt, message);
    if (event == "call.completed") {
      if (chosen_ && attempt != chosen_) return;
      chosen_ = attempt;
      done_ = true;
      return;
    }
    if (chosen_ && attempt != chosen_) return;
    fail(attempt, message);
  }

  std::string body_of(const NatsMessage& message) {
    const std::string object(message.header(wire::kObject));
    if (object.empty()) return std::string(message.data());
    std::string bytes = client_.objects.get(object, client_.options.message_bytes_max);
    client_.objects.remove(object);
    return bytes;
  }

  void answer(int attempt, const NatsMessage& message) {
    if (chosen_ && attempt != chosen_) return;
    chosen_ = attempt;
    if (whole_number(message.header(wire::kSequence)) != answers_)
      throw op::OperationError("WORKER_LOST", fmt::format("{}: an answer was lost", id_));
    ++answers_;
    if (options_.by) *options_.by = message.header(wire::kWorker);
    op::Envelope envelope;
    try {
      const std::string body = body_of(message);
      envelope = op::envelope_from(options_.keeps_tensors ? Value::parse(body, "the answer")
                                                          : op::from_frame(body, client_.handles, "", UINT64_MAX));
    } catch (const op::OperationError&) {
      throw;
    } catch (const Error& error) {
      throw op::OperationError(op::kExecutionError,
                               fmt::format("{}: the worker's answer cannot be read: {}", id_, error.what()));
    }
    const bool is_last = !message.header(wire::kLast).empty();
    const bool goes_on = take_(std::move(envelope));
    if (is_last || !goes_on) {
      done_ = true;
      if (!is_last) chosen_ = 0;  // so that it is aborted
      return;
    }
    if (++used_ >= client_.options.window / 2)
      control(attempt, "credit", {{wire::kCredit, std::to_string(std::exchange(used_, 0))}});
  }

  void fail(int attempt, const NatsMessage& message) {
    std::string code(op::kUnknownError), text = "the worker's error cannot be read";
    Value details;
    try {
      const Value body = Value::parse(message.data(), "the error", 100'000);
      code = body["error"]["code"].string();
      text = body["error"]["message"].string();
      if (const Value* given = body["error"].find("details")) details = *given;
    } catch (const Error&) {
    }
    // A worker that is full or ends; another may have room.
    const bool elsewhere = code == op::kOverloaded || code == op::kAborted;
    if (elsewhere && !granted_ && answers_ == 0) {
      if (attempt == attempt_) send_again_soon(text);
      return;
    }
    chosen_ = attempt;
    done_ = true;
    throw op::OperationError(code, text, std::move(details));
  }

  State& client_;
  const std::string id_;
  const serve::RemoteCallOptions& options_;
  const std::function<bool(op::Envelope)>& take_;
  const Steady::time_point began_;
  std::string body_, object_, name_;
  std::shared_ptr<Arrivals> arrivals_;
  int attempt_ = 0, granted_ = 0, chosen_ = 0, used_ = 0;
  std::uint64_t answers_ = 0;
  bool done_ = false;
  Steady::time_point heard_;
  std::optional<Steady::time_point> resend_at_;
};

}  // namespace

NatsClient::NatsClient(const NatsClientOptions& options) : state_(std::make_unique<State>(options)) {}
NatsClient::~NatsClient() = default;

void NatsClient::run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
                     const std::function<bool(op::Envelope)>& take) {
  for (const char c : id)
    if (static_cast<unsigned char>(c) <= ' ' || c == '*' || c == '>')
      throw op::OperationError(op::kNotFound, fmt::format("there is no operation {}", quote(id, 80)));
  NatsCall<State>(*state_, id, input, options, take).run();
}

std::vector<op::Specification> NatsClient::operations() {
  const auto [name, arrivals] = state_->open();
  NatsHeaders headers;
  if (!state_->options.token.empty()) headers.emplace_back(wire::kAuthorization, state_->bearer());
  std::map<std::string, op::Specification> found;
  std::map<std::string, bool> ended;  // workers, and whether they said everything
  const std::string& prefix = state_->options.nats.prefix;
  state_->connection.publish(prefix + ".describe", fmt::format("{}.{}.1", state_->root, name), headers, {});
  auto until = Steady::now() + 500ms;
  while (true) {
    std::unique_lock lock(arrivals->mutex);
    if (!arrivals->changed.wait_until(lock, until, [&] { return !arrivals->messages.empty(); })) break;
    const NatsMessage message = std::move(arrivals->messages.front().second);
    arrivals->messages.pop_front();
    lock.unlock();
    if (message.is_no_responders()) break;
    try {
      const Value page = Value::parse(message.data(), "specifications");
      for (const Value& each : page["operations"].elements()) {
        op::Specification specification = op::specification_from(each);
        found.emplace(specification.id(), std::move(specification));
      }
      ended[page["worker"].string()] |= page["last"].boolean();
    } catch (const Error&) {  // a worker of another version, or something else that answers here
    }
    const bool all = std::all_of(ended.begin(), ended.end(), [](const auto& each) { return each.second; });
    until = std::max(until, Steady::now() + (all ? 0ms : 500ms));
  }
  state_->close(name);
  std::vector<op::Specification> list;
  for (auto& [id, specification] : found) list.push_back(std::move(specification));
  return list;
}

}  // namespace weft::remote
