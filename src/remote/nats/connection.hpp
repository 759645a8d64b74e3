// A connection to NATS: messages with headers, subscriptions, and errors that name the server without its secrets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

typedef struct __natsConnection natsConnection;
typedef struct __natsMsg natsMsg;
typedef struct __natsSubscription natsSubscription;

namespace weft::remote {

struct NatsOptions {
  std::string url = "nats://127.0.0.1:4222";
  std::string prefix = "weft";        ///< of all subjects
  std::string bucket = "weft";        ///< of the object store, for messages that are too large
  std::filesystem::path credentials;  ///< a .creds file
  std::filesystem::path authority;    ///< certificates that sign the server's; TLS is used if it is set
  std::filesystem::path certificate, key;
};

using NatsHeaders = std::vector<std::pair<std::string_view, std::string>>;

/// A message that came.
class NatsMessage {
 public:
  explicit NatsMessage(natsMsg* message) : message_(message) {}
  ~NatsMessage();
  NatsMessage(NatsMessage&& other) noexcept : message_(std::exchange(other.message_, nullptr)) {}
  NatsMessage(const NatsMessage&) = delete;
  std::string_view subject() const;
  std::string_view reply() const;  ///< empty: nobody waits for an answer
  std::string_view data() const;
  /// Empty if there is no such header. Names are compared as they are written.
  std::string_view header(const char* name) const;
  /// The server says that nobody listens where a message was sent.
  bool is_no_responders() const;

 private:
  natsMsg* message_;
};

/// Thread safety: any thread may call any function. Destroying it waits for functions that are running.
class NatsConnection {
 public:
  /// Errors: OperationError UNAVAILABLE.
  explicit NatsConnection(const NatsOptions& options, const std::string& name);
  ~NatsConnection();
  NatsConnection(const NatsConnection&) = delete;
  NatsConnection& operator=(const NatsConnection&) = delete;

  /// Errors: OperationError UNAVAILABLE if the connection is lost; TOO_LARGE.
  void publish(const std::string& subject, const std::string& reply, const NatsHeaders& headers, std::string_view data);
  /// Calls a function for each message of a subject, one at a time, on a thread of the library; it must not wait for long. With a
  /// queue, each message goes to one subscription of that queue. Messages beyond pending_bytes_max that wait for the function are lost.
  void subscribe(const std::string& subject, const std::string& queue, std::function<void(NatsMessage)> function,
                 std::int64_t pending_bytes_max = std::int64_t{1} << 30);
  /// Takes no new messages, finishes those that came, and closes.
  void close();
  void flush();
  /// Sends an empty request. False if the server says that nobody listens there; true after an answer, or after `wait` without one.
  bool is_somebody_at(const std::string& subject, std::chrono::milliseconds wait);
  /// A subject that nobody else has.
  static std::string inbox();
  std::uint64_t payload_max() const;
  natsConnection* handle() { return connection_; }

 private:
  struct Listener {
    NatsConnection* connection;
    std::function<void(NatsMessage)> function;
    natsSubscription* subscription = nullptr;
    bool done = false;
  };
  std::string server_;
  natsConnection* connection_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Listener> listeners_;
  bool closed_ = false;
};

/// Whether messages of one connection reach subscriptions of another: through one server, a cluster, or servers that are linked.
/// Errors: OperationError UNAVAILABLE.
bool nats_reaches(const NatsOptions& from, const NatsOptions& to);

}  // namespace weft::remote
