// Clients of MCP whose messages come one by one, as requests of HTTP ("streamable HTTP").
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/text_map.hpp"
#include "serve/mcp.hpp"

namespace weft::remote {

/// The messages that answer one message. Thread safety: any thread may call any function.
class McpReplies {
 public:
  /// The next message, or nothing: until `time`, or for ever if `ended`.
  std::optional<std::string> next_until(std::chrono::steady_clock::time_point time, bool& ended);
  /// The answer, and not a report before it.
  static bool is_answer(std::string_view message);

 private:
  friend class McpSessions;
  void add(std::string_view message);
  void end();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  bool ended_ = false;
};

/// Thread safety: any thread may call any function.
class McpSessions {
 public:
  McpSessions(const serve::Service& service, std::string version) : service_(service), version_(std::move(version)) {}

  /// A new session of this identity, by its name. Errors: OperationError OVERLOADED.
  std::string open(const operations::Identity& identity);
  /// Gives a message to a session. Null if there is no such session of this identity. The session is in use until what is returned
  /// is destroyed.
  std::shared_ptr<McpReplies> take(const std::string& name, const operations::Identity& identity,
                                   const std::string& message);
  /// What the session has to say of its own accord, from now on; an earlier stream of the session ends. Null if there is no such
  /// session of this identity. Errors: OperationError OVERLOADED if too many streams are open.
  std::shared_ptr<McpReplies> listen(const std::string& name, const operations::Identity& identity);
  bool close(const std::string& name, const operations::Identity& identity);
  /// Ends sessions that were not used for this time: calls under way are no use if nobody waits for their answers.
  void close_unused_for(std::chrono::seconds age);
  void close_all();

 private:
  struct Entry {
    std::shared_ptr<serve::McpSession> session;
    std::string owner;
    std::chrono::steady_clock::time_point used;
    std::weak_ptr<McpReplies> standing = {};                                   // where the client listens
    std::shared_ptr<const bool> present = std::make_shared<const bool>(true);  // shared with all who wait for replies
  };
  const serve::Service service_;
  const std::string version_;
  std::mutex mutex_;
  TextMap<Entry> entries_;
};

}  // namespace weft::remote
