// What is known of mutations that have a request id: a key-value bucket of JetStream has a record of each, which the first worker
// creates before it runs the mutation. Nobody else can create it, so the mutation runs at most once.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "remote/nats/connection.hpp"

typedef struct __jsCtx jsCtx;
typedef struct __kvStore kvStore;

namespace weft::remote {

struct CallRecord {
  std::string call;      ///< the id that its worker gave it; no other call has it
  std::string worker;    ///< which runs the call, or has run it
  std::string input;     ///< a hash of the request's body
  std::string event;     ///< of the answer; empty while the call runs
  std::string status;    ///< of an error
  std::string body;      ///< of the answer
  bool has_body = true;  ///< false: the body was too large to be kept
};

/// Thread safety: any thread may call any function.
class CallRecords {
 public:
  /// `bucket`: its name in the server; records end after `age`.
  CallRecords(NatsConnection& connection, std::string bucket, std::chrono::seconds age);
  ~CallRecords();
  CallRecords(const CallRecords&) = delete;
  CallRecords& operator=(const CallRecords&) = delete;

  /// The key of a request: whose, to what, and its id.
  static std::string key_of(std::string_view identity, std::string_view operation, std::string_view request);
  static std::string hash_of(std::string_view bytes);

  /// Creates a record if there is none. Returns null if it was created, and otherwise the record that there is.
  /// Errors: OperationError UNAVAILABLE, as of a server without JetStream; the mutation must not run then.
  std::optional<CallRecord> create(const std::string& key, const CallRecord& record);
  /// Replaces the record of a call that has ended. Errors: OperationError UNAVAILABLE.
  void finish(const std::string& key, const CallRecord& record);
  /// Errors: OperationError UNAVAILABLE.
  std::optional<CallRecord> find(const std::string& key);

 private:
  kvStore* open();
  NatsConnection& connection_;
  const std::string bucket_;
  const std::chrono::seconds age_;
  std::mutex mutex_;
  jsCtx* context_ = nullptr;
  kvStore* store_ = nullptr;
};

}  // namespace weft::remote
