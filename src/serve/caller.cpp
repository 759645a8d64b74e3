#include "serve/caller.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "base/xxh64.hpp"
#include "weft/operations/exchange.hpp"

namespace weft::serve {

namespace op = operations;

std::string server_of(std::string_view url) {
  const auto scheme = url.find("://");
  std::string_view rest = scheme == std::string_view::npos ? url : url.substr(scheme + 3);
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) rest = rest.substr(at + 1);
  return std::string(rest.substr(0, rest.find('/')));
}

op::Envelope Caller::call(std::string_view id, const Value& input, const RemoteCallOptions& options) {
  std::optional<op::Envelope> first;
  run(id, input, options, [&](op::Envelope envelope) {
    first = std::move(envelope);
    return false;
  });
  if (!first) throw op::OperationError(op::kExecutionError, fmt::format("{} ended without an answer", id));
  return std::move(*first);
}

namespace {

constexpr std::size_t kRequestIdBytesMax = 100;  // as servers take them

// The id of a request at another place, where all callers of this place have one token.
std::string forwarded_id(const op::Context& call) {
  if (call.client_request_id().empty()) return "";
  const std::string name = fmt::format("{}/{}", call.identity() ? call.identity()->id : "", call.client_request_id());
  return name.size() <= kRequestIdBytesMax ? name : fmt::format("{:016x}{:016x}", xxh64(name), xxh64("2 " + name));
}

// What may go wrong on the way to another place, beside what the operation declares.
void declare_transport_errors(op::Specification& specification) {
  const op::DeclaredError errors[] = {
      {.code = "UNAVAILABLE", .description = "the other place cannot be reached, or has no room", .http_status = 503},
      {.code = "UNAUTHENTICATED", .description = "the other place does not know the token", .http_status = 502},
      {.code = "TOO_LARGE", .description = "a message is larger than the other place takes", .http_status = 413},
      {.code = "WORKER_LOST", .description = "the worker died; the call may have had its effect", .http_status = 502}};
  for (const op::DeclaredError& error : errors)
    if (std::none_of(specification.errors.begin(), specification.errors.end(),
                     [&](const op::DeclaredError& known) { return known.code == error.code; }))
      specification.errors.push_back(error);
}

// The operations of one place in a registry, which keeps it.
class Follower {
 public:
  Follower(op::Registry& registry, std::shared_ptr<Caller> caller) : registry_(registry), caller_(std::move(caller)) {}
  ~Follower() { caller_->forget(observer_); }
  Follower(const Follower&) = delete;

  std::size_t begin() {
    const std::size_t added = update();
    observer_ = caller_->on_change([this] {
      try {
        update();
      } catch (const std::exception& error) {
        log(LogLevel::warning, "serve", fmt::format("operations of another place: {}", error.what()));
      }
    });
    return added;
  }

 private:
  // Adds what is new, replaces what differs, removes what has gone. Returns the number of those added.
  std::size_t update() {
    auto all = caller_->operations();
    if (all.empty() && own_.empty())
      throw op::OperationError("UNAVAILABLE", "nobody answers here, or nobody knows the token");
    std::map<std::string, Value> now;
    std::size_t added = 0;
    for (op::Specification& specification : all) {
      declare_transport_errors(specification);
      const std::string id = specification.id();
      Value described = op::to_value(specification);
      const auto before = own_.find(id);
      const bool is_known = before != own_.end();
      const bool is_same = is_known && before->second == described;
      if (is_known && !is_same) registry_.remove(id);
      if (!is_same) {
        if (registry_.find(id, true)) continue;
        add(std::move(specification));
        ++added;
      }
      now.emplace(id, std::move(described));
    }
    for (const auto& [id, described] : own_)
      if (!now.contains(id)) registry_.remove(id);
    own_ = std::move(now);
    return added;
  }

  void add(op::Specification specification) {
    const bool streams = specification.kind == op::Kind::subscription;
    const std::string id = specification.id();
    registry_.add(std::move(specification), [caller = caller_, id, streams](op::Context& call) {
      const RemoteCallOptions options{
          .deadline = call.deadline(), .stop = call.stop(), .request_id = forwarded_id(call), .via = call.via()};
      if (!streams) return caller->call(id, call.input(), options).data;
      caller->run(id, call.input(), options, [&](op::Envelope envelope) {
        call.emit(std::move(envelope.data));
        return true;
      });
      return Value();
    });
  }

  op::Registry& registry_;
  const std::shared_ptr<Caller> caller_;
  std::map<std::string, Value> own_;  // what was added: specifications by id
  std::size_t observer_ = 0;
};

}  // namespace

std::size_t from_call(op::Registry& registry, const std::shared_ptr<Caller>& caller) {
  const auto follower = std::make_shared<Follower>(registry, caller);
  const std::size_t added = follower->begin();
  registry.keep(follower);
  return added;
}

}  // namespace weft::serve
