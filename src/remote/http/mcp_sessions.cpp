#include "remote/http/mcp_sessions.hpp"

#include <fmt/format.h>

#include <random>

namespace weft::remote {
namespace {

constexpr std::size_t kSessionsMax = 1000, kSessionsPerIdentityMax = 100;
// Each standing stream takes one of the server's connections.
constexpr std::size_t kStreamsMax = 128, kStreamsPerIdentityMax = 32;

}  // namespace

std::optional<std::string> McpReplies::next_until(std::chrono::steady_clock::time_point time, bool& ended) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time, [&] { return !messages_.empty() || ended_; });
  ended = messages_.empty() && ended_;
  if (messages_.empty()) return std::nullopt;
  std::string message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

bool McpReplies::is_answer(std::string_view message) { return message.starts_with(R"({"jsonrpc":"2.0","id":)"); }

void McpReplies::add(std::string_view message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(message);
  }
  changed_.notify_all();
}

void McpReplies::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

std::string McpSessions::open(const operations::Identity& identity) {
  std::random_device random;
  const std::string name = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  auto session = std::make_shared<serve::McpSession>(
      service_, serve::McpOptions{.identity = identity, .version = version_, .session = "mcp " + name});
  const std::lock_guard lock(mutex_);
  std::size_t own = 0;
  for (const auto& [key, entry] : entries_) own += entry.owner == identity.id;
  if (entries_.size() >= kSessionsMax || own >= kSessionsPerIdentityMax)
    throw operations::OperationError(operations::kOverloaded,
                                     "too many sessions are open; close some, or come again later");
  entries_.emplace(name, Entry{std::move(session), identity.id, std::chrono::steady_clock::now()});
  return name;
}

std::shared_ptr<McpReplies> McpSessions::take(const std::string& name, const operations::Identity& identity,
                                              const std::string& message) {
  std::shared_ptr<serve::McpSession> session;
  std::shared_ptr<const bool> present;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end() || found->second.owner != identity.id) return nullptr;
    found->second.used = std::chrono::steady_clock::now();
    session = found->second.session;
    present = found->second.present;
  }
  const auto replies = std::make_shared<McpReplies>();
  // The replies end when nobody is left who could send one: a cancelled call has no answer.
  const std::shared_ptr<McpReplies> ending(replies.get(), [replies](McpReplies* all) { all->end(); });
  session->take(message, [ending](std::string_view text) {
    ending->add(text);
    return true;
  });
  // Only the caller's pointer holds `present`; those of calls under way do not.
  return {replies.get(), [replies, present](McpReplies*) {}};
}

std::shared_ptr<McpReplies> McpSessions::listen(const std::string& name, const operations::Identity& identity) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.owner != identity.id) return nullptr;
  Entry& entry = found->second;
  if (const auto earlier = entry.standing.lock()) earlier->end();
  entry.standing.reset();
  std::size_t streams = 0, own = 0;
  for (const auto& [key, other] : entries_) {
    if (other.standing.expired()) continue;
    ++streams;
    own += other.owner == identity.id;
  }
  if (streams >= kStreamsMax || own >= kStreamsPerIdentityMax)
    throw operations::OperationError(operations::kOverloaded,
                                     "too many streams of MCP are open; calls work without one");
  const auto replies = std::make_shared<McpReplies>();
  entry.standing = replies;
  entry.used = std::chrono::steady_clock::now();
  entry.session->listen([to = std::weak_ptr(replies)](std::string_view text) {
    const auto open = to.lock();
    if (open) open->add(text);
    return open != nullptr;
  });
  return {replies.get(), [replies, present = entry.present](McpReplies*) {}};
}

bool McpSessions::close(const std::string& name, const operations::Identity& identity) {
  std::shared_ptr<serve::McpSession> closed;  // ends without the lock
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.owner != identity.id) return false;
  closed = std::move(found->second.session);
  if (const auto standing = found->second.standing.lock()) standing->end();
  entries_.erase(found);
  return true;
}

void McpSessions::close_unused_for(std::chrono::seconds age) {
  std::vector<std::shared_ptr<serve::McpSession>> closed;
  const std::lock_guard lock(mutex_);
  const auto oldest = std::chrono::steady_clock::now() - age;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto at = entry++;
    if (at->second.present.use_count() > 1) at->second.used = std::chrono::steady_clock::now();
    if (at->second.used >= oldest) continue;
    closed.push_back(std::move(at->second.session));
    entries_.erase(at);
  }
}

void McpSessions::close_all() {
  TextMap<Entry> closed;
  const std::lock_guard lock(mutex_);
  closed.swap(entries_);
}

}  // namespace weft::remote
