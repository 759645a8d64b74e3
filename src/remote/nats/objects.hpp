// The object store of NATS JetStream, in the layout that its official clients read: chunks of an object under one subject, and its
// description under another.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "remote/nats/connection.hpp"

typedef struct __jsCtx jsCtx;

namespace weft::remote {

/// Thread safety: any thread may call any function. Errors of all: OperationError UNAVAILABLE, as of a server without JetStream.
class NatsObjects {
 public:
  NatsObjects(NatsConnection& connection, std::string bucket);
  ~NatsObjects();
  NatsObjects(const NatsObjects&) = delete;
  NatsObjects& operator=(const NatsObjects&) = delete;

  /// Stores bytes under a new name, which it returns. Objects end after ten minutes.
  std::string put(std::string_view bytes);
  /// Errors: OperationError OBJECT_NOT_FOUND; VALIDATION_ERROR for more than `bytes_max`, or bytes that do not have their digest.
  std::string get(const std::string& name, std::uint64_t bytes_max);
  /// Removes an object, if it exists. Reports no errors: objects end by themselves.
  void remove(const std::string& name);

 private:
  void open();
  std::string subject_of(const std::string& name) const;
  NatsConnection& connection_;
  const std::string bucket_, stream_;
  std::mutex mutex_;
  jsCtx* context_ = nullptr;
};

}  // namespace weft::remote
