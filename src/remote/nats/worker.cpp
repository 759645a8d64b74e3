#include "remote/nats/worker.hpp"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "base/text_map.hpp"
#include "catalogue/frame.hpp"
#include "operations/workers.hpp"
#include "remote/nats/discovery.hpp"
#include "remote/nats/objects.hpp"
#include "remote/nats/protocol.hpp"
#include "remote/nats/records.hpp"
#include "serve/service.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;
constexpr std::string_view kQueue = "workers";
constexpr std::size_t kHeadersBytes = 16 << 10;   // of a message, left free beside its body
constexpr std::int64_t kPendingBytes = 64 << 20;  // of messages of one subject that nobody has looked at; more are lost
constexpr std::size_t kMessageBytes = 4 << 10;    // of a message beside its body, at most about
constexpr std::size_t kErrorBytes = 1000;         // of an error's message in a header
constexpr std::size_t kRequestIdBytes = 200;
constexpr auto kRecordPause = 100ms;  // between two looks at the record of a running call

}  // namespace

// A call from its message to its last answer.
struct RemoteCall {
  explicit RemoteCall(NatsMessage message_) : message(std::move(message_)), reply(message.reply()) {}
  NatsMessage message;
  const std::string reply;
  std::string operation, request, session;  // `request`: its id in the exchange
  bool follows = false, streams = false;
  std::uint64_t number = 0, sequence = 0;
  std::string record_key;  // of a mutation with a request id
  CallRecord record;
  bool is_recorded = false;  // it is this call's, and no answer is in it yet

  std::mutex mutex;
  std::condition_variable changed;
  bool granted = false, gone = false;
  std::optional<std::uint64_t> credit;  // unset: any number of answers may be under way
};
using CallRef = std::shared_ptr<RemoteCall>;

struct NatsWorker::State {
  serve::Service service;
  serve::Tokens tokens;
  NatsWorkerOptions options;
  std::string id = NatsConnection::inbox().substr(7);
  std::optional<op::Workers> workers;
  NatsConnection connection{options.nats, "weft worker"};
  NatsObjects objects{connection, options.nats.bucket};
  CallRecords records{connection, options.nats.bucket + "_calls", options.record_time};
  std::string watch = NatsConnection::inbox();  // where the server says that nobody listens

  mutable std::mutex mutex;
  std::condition_variable changed;
  TextMap<CallRef> calls;  // by the inbox of the caller
  std::map<std::uint64_t, CallRef> numbered;
  std::map<std::uint64_t, std::string> sessions;  // with handles
  std::set<std::string> known_sessions;
  std::uint64_t next = 1;
  std::atomic<std::uint64_t> waiting_bytes = 0;  // of calls that no thread has begun
  bool ending = false;
  std::thread beating;
  ServiceStatistics statistics;

  State(const serve::Service& service_, serve::Tokens tokens_, const NatsWorkerOptions& options_)
      : service(service_), tokens(std::move(tokens_)), options(options_) {
    workers.emplace(SessionState::current(), options.threads_max, options.waiting_max);
    const std::string& prefix = options.nats.prefix;
    connection.subscribe(prefix + ".control", "", [this](NatsMessage message) { control(message); });
    connection.subscribe(watch + ".*", "", [this](NatsMessage message) { nobody_listens(message); });
    const auto take_direct = [this](NatsMessage message) {
      const std::size_t skip = options.nats.prefix.size() + 8 + id.size() + 1;  // ".direct." and the worker
      std::string operation(message.subject().substr(std::min(skip, message.subject().size())));
      take(std::move(message), std::move(operation));
    };
    connection.subscribe(fmt::format("{}.direct.{}.>", prefix, id), "", take_direct, kPendingBytes);
    const auto all = service.exchange.registry().list();
    serve_discovery(connection, {options.nats.prefix, id, options.version}, service.exchange.registry(), statistics,
                    [this](std::string_view token) { return identity_of(token) != nullptr; });
    for (const auto& specification : all)
      connection.subscribe(
          fmt::format("{}.call.{}", prefix, specification->id()), std::string(kQueue),
          [this, operation = specification->id()](NatsMessage message) { take(std::move(message), operation); },
          kPendingBytes);
    connection.flush();
    beating = std::thread([this] { beat(); });
  }

  ~State() {
    std::vector<CallRef> all;
    {
      const std::lock_guard lock(mutex);
      ending = true;
      for (const auto& [reply, call] : calls) all.push_back(call);
    }
    changed.notify_all();
    for (const CallRef& call : all) leave(*call);
    workers.reset();
    beating.join();
    connection.close();
    for (const std::string& session : known_sessions) service.handles.free_session(session);
  }

  // ---- Calls ------------------------------------------------------------------------------------------------------------------

  // On a thread of the connection.
  void take(NatsMessage message, std::string operation) {
    if (message.reply().empty()) return;  // nobody wants the answer
    const auto call = std::make_shared<RemoteCall>(std::move(message));
    call->operation = std::move(operation);
    call->follows = !call->message.header(wire::kFollow).empty();
    if (const auto credit = wire::number_of(call->message.header(wire::kCredit)); credit && *credit >= 1)
      call->credit = static_cast<std::uint64_t>(*credit);
    const auto specification = service.exchange.registry().find(call->operation);
    call->streams = specification && specification->kind == op::Kind::subscription;
    // Here, so that strangers' messages do not wait among others.
    if (!identity_of(call->message.header(wire::kAuthorization))) return refuse_unknown(*call);
    const std::uint64_t bytes = call->message.data().size() + kMessageBytes;
    if (waiting_bytes.fetch_add(bytes) > options.waiting_bytes_max) {
      waiting_bytes -= bytes;
      return send_error(*call, overloaded());
    }
    {
      const std::lock_guard lock(mutex);
      if (ending) {  // another worker is asked again
        waiting_bytes -= bytes;
        return;
      }
      call->number = next++;
      call->request = fmt::format("nats-{}-{}", id, call->number);
      if (!calls.emplace(call->reply, call).second) {  // the same message twice
        waiting_bytes -= bytes;
        return;
      }
      numbered.emplace(call->number, call);
    }
    const bool waits = workers->run([this, call, bytes] {
      waiting_bytes -= bytes;
      serve(call);
    });
    if (waits) return;
    waiting_bytes -= bytes;
    send_error(*call, overloaded());
    forget(*call);
  }

  static op::OperationError overloaded() {
    return {op::kOverloaded, "too many calls wait for a thread of this worker; call again later"};
  }
  static op::OperationError unauthenticated() {
    return {"UNAUTHENTICATED", "a known token is needed: Authorization: Bearer TOKEN"};
  }

  void refuse_unknown(RemoteCall& call) {
    const auto begun = std::chrono::steady_clock::now();
    try {
      send_error(call, unauthenticated());
    } catch (const Error&) {  // the connection is gone, and so is the caller
    }
    tell(call, "UNAUTHENTICATED", nullptr, begun);
  }

  void forget(const RemoteCall& call) {
    release(call);
    const std::lock_guard lock(mutex);
    numbered.erase(call.number);
  }

  // Its caller may use the inbox for another call, once it has the last answer.
  void release(const RemoteCall& call) {
    const std::lock_guard lock(mutex);
    const auto found = calls.find(call.reply);
    if (found != calls.end() && found->second.get() == &call) calls.erase(found);
  }

  // What an answer has kept is freed here if its caller left meanwhile.
  void free_what_was_kept(const RemoteCall& call) {
    if (call.session.empty()) return;
    const std::lock_guard lock(mutex);
    if (!known_sessions.contains(call.session)) service.handles.free_session(call.session);
  }

  const op::Identity* identity_of(std::string_view header) const {
    constexpr std::string_view kBearer = "Bearer ";
    return header.starts_with(kBearer) ? tokens.find(header.substr(kBearer.size())) : nullptr;
  }

  // On a thread of the worker.
  void serve(const CallRef& call) {
    std::string outcome = "ok";
    const op::Identity* identity = identity_of(call->message.header(wire::kAuthorization));
    const auto begun = std::chrono::steady_clock::now();
    try {
      if (!identity) throw unauthenticated();
      run(call, *identity);
    } catch (const op::OperationError& error) {
      outcome = error.code();
      try {
        send_error(*call, error);
      } catch (const Error&) {  // the connection is gone, and so is the caller
      }
    } catch (const std::exception&) {
      outcome = op::kExecutionError;
      try {
        send_error(*call, op::OperationError(op::kExecutionError, "the worker failed"));
      } catch (const Error&) {
      }
    }
    forget(*call);
    free_what_was_kept(*call);
    tell(*call, outcome, identity, begun);
  }

  // Counts a call, and writes its line.
  void tell(const RemoteCall& call, const std::string& outcome, const op::Identity* identity,
            std::chrono::steady_clock::time_point begun) {
    // Anybody may send to a subject of this worker, so a name that is no operation is neither counted nor written as it is.
    const bool is_known = service.exchange.registry().find(call.operation, true) != nullptr;
    if (is_known) statistics.add(call.operation, outcome != "ok", std::chrono::steady_clock::now() - begun, outcome);
    if (options.log)
      options.log(fmt::format("{} {} {}", is_known ? call.operation : quote(call.operation, 80), outcome,
                              identity ? identity->id : "-"));
  }

  void run(const CallRef& call, const op::Identity& identity) {
    const NatsMessage& message = call->message;
    const auto specification = service.exchange.registry().find(call->operation);
    const std::string_view session = message.header(wire::kSession);
    if (!session.empty() && !wire::is_session(session, options.nats.prefix))
      throw op::OperationError(
          op::kValidationError,
          fmt::format("Weft-Session is not a subject of the caller's own, such as an inbox: {}", quote(session, 80)));
    call->session = session;
    op::CallOptions call_options{.identity = identity, .request_id = call->request, .session = call->session};
    call_options.client_request_id = message.header(wire::kRequestId);
    call_options.via = serve::read_via(message.header(wire::kVia));
    if (const std::string_view text = message.header(wire::kTimeout); !text.empty()) {
      const auto seconds = wire::number_of(text);
      if (!seconds || !(*seconds > 0) || *seconds > 1e6)
        throw op::OperationError(op::kValidationError, "Weft-Timeout is not a number of seconds");
      call_options.deadline = op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
    }
    const std::string_view form_text = message.header(wire::kTensors);
    if (!form_text.empty() && form_text != "data" && form_text != "handles")
      throw op::OperationError(op::kValidationError, "Weft-Tensors is data or handles");
    const auto form = form_text == "handles" ? op::WireTensors::handles : op::WireTensors::data;
    std::string stored;
    std::string_view bytes = message.data();
    if (const std::string_view object = message.header(wire::kObject); !object.empty()) {
      stored = objects.get(std::string(object), options.message_bytes_max);
      bytes = stored;
    }
    Value input = bytes.empty() ? Value(Value::Object())
                                : op::from_frame(bytes, service.handles, identity.id, options.values_max);
    const bool framed = op::is_frame(bytes) || call->follows;
    const bool mutates = specification && specification->kind == op::Kind::mutation;
    if (const std::string_view name = message.header(wire::kRequestId); mutates && !name.empty()) {
      if (name.size() > kRequestIdBytes)
        throw op::OperationError(op::kValidationError,
                                 fmt::format("Weft-Request-Id has more than {} bytes", kRequestIdBytes));
      call->record_key = CallRecords::key_of(identity.id, options.nats.prefix + " " + call->operation, name);
      call->record = {.call = call->request, .worker = id, .input = CallRecords::hash_of(bytes)};
    }
    stored = {};
    if (call->follows && mutates) wait_for_grant(*call);
    if (!call->session.empty()) {
      const std::lock_guard lock(mutex);
      if (known_sessions.insert(call->session).second) sessions.emplace(next++, call->session);
    }
    {
      const std::lock_guard lock(call->mutex);
      if (call->gone) throw op::OperationError(op::kAborted, fmt::format("{}: its caller has left", call->operation));
    }
    std::optional<CallRecord> earlier;
    try {
      service.exchange.run(
          call->operation, std::move(input), call_options,
          [&](op::Envelope envelope) {
            if (!wait_for_credit(*call, call_options.deadline)) return false;
            send_answer(*call, envelope, form, framed, identity.id);
            return true;
          },
          [&] {
            if (call->record_key.empty()) return;
            earlier = records.create(call->record_key, call->record);
            if (earlier) throw op::OperationError(op::kAborted, "this request has been answered");
            call->is_recorded = true;
          });
    } catch (const op::OperationError&) {
      if (!earlier) throw;
      return repeat(*call, std::move(*earlier), call_options.deadline);
    }
    if (call->streams) send(*call, "call.completed", {}, {});
  }

  void wait_for_grant(RemoteCall& call) {
    send(call, "taken", {}, {});
    std::unique_lock lock(call.mutex);
    call.changed.wait_for(lock, options.grant_time, [&] { return call.granted || call.gone; });
    if (!call.granted)
      throw op::OperationError(op::kAborted,
                               fmt::format("{}: the caller did not grant the call to this worker", call.operation));
  }

  // Answers a request whose mutation another request has begun.
  void repeat(RemoteCall& call, CallRecord earlier, const std::optional<op::Clock::time_point>& deadline) {
    if (earlier.input != call.record.input)
      throw op::OperationError(op::kValidationError,
                               fmt::format("{}: an earlier request has the same Weft-Request-Id and "
                                           "another input; give each mutation an id of its own",
                                           call.operation));
    auto end = op::Clock::now() + options.repeat_time;
    if (deadline) end = std::min(end, *deadline);
    while (earlier.event.empty()) {
      const bool lives = earlier.worker == id || connection.is_somebody_at("$SRV.PING.weft." + earlier.worker, 500ms);
      // Read after the question, because a worker may answer and then end.
      if (auto newer = records.find(call.record_key)) earlier = std::move(*newer);
      if (!earlier.event.empty()) break;
      if (!lives)
        throw op::OperationError(
            "WORKER_LOST", fmt::format("{}: the worker that began the call with this Weft-Request-Id has died; it is "
                                       "not known whether the call has had its effect",
                                       call.operation));
      if (op::Clock::now() >= end)
        throw op::OperationError(
            "STILL_RUNNING",
            fmt::format("{}: a call with this Weft-Request-Id is running; ask again for its answer", call.operation));
      std::unique_lock lock(call.mutex);
      if (call.changed.wait_for(lock, kRecordPause, [&] { return call.gone; }))
        throw op::OperationError(op::kAborted, fmt::format("{}: its caller has left", call.operation));
    }
    if (!earlier.has_body)
      throw op::OperationError(
          "ANSWER_GONE", fmt::format("{}: the call with this Weft-Request-Id has run; its answer has more than the {} "
                                     "bytes that are kept",
                                     call.operation, options.record_bytes_max));
    NatsHeaders headers{{wire::kRepeated, "1"}};
    if (earlier.event == "call.responded") {
      headers.emplace_back(wire::kSequence, "0");
      headers.emplace_back(wire::kLast, "1");
    } else {
      Value body = Value::parse(earlier.body, "the record of an error");
      Value& error = *body.members().find("error");
      if (error["code"] == Value(op::kTimeout) || error["code"] == Value(op::kAborted)) {
        // The id stays used: a second run could repeat what the first one did before it ended.
        error.members().set("message",
                            fmt::format("{}; an earlier request with this Weft-Request-Id ran until then, and may have "
                                        "had its effect. Find out, and give it another id to run it again",
                                        error["message"].string()));
        earlier.body = body.to_json();
      }
      headers.emplace_back(wire::kServiceError, error["message"].string().substr(0, kErrorBytes));
      headers.emplace_back(wire::kServiceErrorCode, earlier.status);
    }
    send(call, earlier.event, std::move(headers), earlier.body, earlier.worker);
  }

  // Writes the answer into the record of a mutation with a request id, before it is sent.
  void remember(RemoteCall& call, std::string event, std::string status, std::string_view body) {
    if (!std::exchange(call.is_recorded, false)) return;
    call.record.event = std::move(event);
    call.record.status = std::move(status);
    call.record.has_body = body.size() <= options.record_bytes_max;
    if (call.record.has_body) call.record.body = body;
    try {
      records.finish(call.record_key, call.record);
    } catch (const op::OperationError& error) {  // requests that repeat it are told that it runs
      if (options.log) options.log(fmt::format("{} {}", call.operation, error.what()));
    }
  }

  // False once the caller has left.
  static bool wait_for_credit(RemoteCall& call, const std::optional<op::Clock::time_point>& deadline) {
    std::unique_lock lock(call.mutex);
    const auto ready = [&] { return call.gone || !call.credit || *call.credit > 0; };
    if (!deadline)
      call.changed.wait(lock, ready);
    else if (!call.changed.wait_until(lock, *deadline, ready))
      return true;  // the next answer finds that the deadline has passed
    if (call.credit && *call.credit > 0) --*call.credit;
    return !call.gone;
  }

  // The caller is gone, or wants no more.
  void leave(RemoteCall& call) {
    {
      const std::lock_guard lock(call.mutex);
      call.gone = true;
    }
    call.changed.notify_all();
    service.exchange.abort(call.request);
  }

  // ---- Answers ----------------------------------------------------------------------------------------------------------------

  void send(RemoteCall& call, std::string event, NatsHeaders headers, std::string_view data,
            const std::string& worker = {}) {
    const bool goes_on = event == "taken" || event == "alive" || (call.streams && event == "call.responded");
    if (!goes_on) release(call);
    headers.emplace_back(wire::kEvent, std::move(event));
    headers.emplace_back(wire::kWorker, worker.empty() ? id : worker);
    // The server answers on `watch` if nobody listens any more.
    connection.publish(call.reply, fmt::format("{}.{}", watch, call.number), headers, data);
  }

  void send_answer(RemoteCall& call, const op::Envelope& envelope, op::WireTensors form, bool framed,
                   const std::string& owner) {
    const Value value = op::to_value(envelope);
    NatsHeaders headers{{wire::kSequence, std::to_string(call.sequence++)}};
    if (!call.streams) headers.emplace_back(wire::kLast, "1");
    std::string body;
    if (framed) {
      const op::Frame frame(value, form, service.handles, {owner, call.session});
      if (frame.bytes() > options.message_bytes_max)
        throw op::OperationError("TOO_LARGE", fmt::format("the answer has {} bytes, and a message has at most {}",
                                                          frame.bytes(), options.message_bytes_max));
      body = frame.has_tensors() ? frame.to_string() : frame.json();
    } else {
      body = op::to_wire(value, form, service.handles, {owner, call.session}).to_json();
    }
    remember(call, "call.responded", "", body);
    if (body.size() + kHeadersBytes > connection.payload_max()) {
      headers.emplace_back(wire::kObject, objects.put(body));
      body.clear();
    }
    send(call, "call.responded", std::move(headers), body);
  }

  void send_error(RemoteCall& call, const op::OperationError& error) {
    const auto specification = service.exchange.registry().find(call.operation);
    std::string body = Value::object({{"error", serve::to_value(error)}}).to_json();
    if (body.size() + kHeadersBytes >= connection.payload_max())
      body = Value::object({{"error", Value::object({{"code", error.code()}, {"message", "the message is too long"}})}})
                 .to_json();
    const std::string status =
        std::to_string(error.code() == "UNAUTHENTICATED" ? 401 : serve::http_status(error, specification.get()));
    const std::string event = error.code() == op::kAborted ? "call.aborted" : "call.error";
    remember(call, event, status, body);
    send(call, event,
         {{wire::kServiceError, std::string(std::string_view(error.what()).substr(0, kErrorBytes))},
          {wire::kServiceErrorCode, status}},
         body);
  }

  // ---- The callers --------------------------------------------------------------------------------------------------------------

  void control(const NatsMessage& message) {
    CallRef call;
    {
      const std::lock_guard lock(mutex);
      const auto found = calls.find(message.header(wire::kCall));
      if (found == calls.end()) return;
      call = found->second;
    }
    const std::string_view what = message.header(wire::kControl);
    if (what == "abort") return leave(*call);
    {
      const std::lock_guard lock(call->mutex);
      if (what == "grant" && message.header(wire::kWorker) == id) call->granted = true;
      if (what == "credit" && call->credit)
        if (const auto more = wire::number_of(message.header(wire::kCredit)); more && *more > 0 && *more <= 1e6)
          *call->credit += static_cast<std::uint64_t>(*more);
    }
    call->changed.notify_all();
  }

  // The server's answer to a message that nobody took: of a call, or to a session.
  void nobody_listens(const NatsMessage& message) {
    if (!message.is_no_responders()) return;
    const std::string_view subject = message.subject();
    const auto number = wire::number_of(subject.substr(subject.rfind('.') + 1));
    if (!number) return;
    CallRef call;
    std::string session;
    {
      const std::lock_guard lock(mutex);
      const auto key = static_cast<std::uint64_t>(*number);
      if (const auto found = numbered.find(key); found != numbered.end()) call = found->second;
      if (const auto found = sessions.find(key); found != sessions.end()) {
        session = std::move(found->second);
        known_sessions.erase(session);
        sessions.erase(found);
      }
    }
    if (call) leave(*call);
    if (!session.empty()) service.handles.free_session(session);
  }

  // Tells callers that this worker lives, and notices those who do not.
  void beat() {
    std::unique_lock lock(mutex);
    auto swept = std::chrono::steady_clock::now();
    while (!ending) {
      changed.wait_for(lock, options.heartbeat);
      std::vector<CallRef> all;
      for (const auto& [number, call] : numbered)
        if (call->follows || call->streams) all.push_back(call);
      const auto asked = sessions;
      lock.unlock();
      // Each by itself: a caller whose subject cannot be sent to costs no other its sign of life.
      const auto tell = [](const auto& function) {
        try {
          function();
        } catch (const Error&) {  // also while the connection is being made again
        }
      };
      for (const CallRef& call : all) tell([&] { send(*call, "alive", {}, {}); });
      for (const auto& [number, session] : asked)
        tell([&] {
          connection.publish(session, fmt::format("{}.{}", watch, number),
                             {{wire::kEvent, "alive"}, {wire::kWorker, id}}, {});
        });
      if (std::chrono::steady_clock::now() - swept > 30s) {
        swept = std::chrono::steady_clock::now();
        service.handles.free_unused_for(options.handle_time);
      }
      lock.lock();
    }
  }
};

NatsWorker::NatsWorker(const serve::Service& service, serve::Tokens tokens, const NatsWorkerOptions& options)
    : state_(std::make_unique<State>(service, std::move(tokens), options)) {}

NatsWorker::~NatsWorker() = default;

const std::string& NatsWorker::id() const { return state_->id; }

std::size_t NatsWorker::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls.size();
}

}  // namespace weft::remote
