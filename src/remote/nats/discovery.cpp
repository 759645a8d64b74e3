#include "remote/nats/discovery.hpp"

#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <vector>

#include "base/utc_time.hpp"
#include "remote/nats/protocol.hpp"
#include "weft/operations/specification.hpp"

namespace weft::remote {
namespace {

namespace op = operations;

constexpr std::size_t kPageBytes = 400 << 10;  // of specifications in a message

class Discovery {
 public:
  Discovery(NatsConnection& connection, ServiceNames names, const op::Registry& registry,
            const ServiceStatistics& statistics)
      : connection_(connection), names_(std::move(names)), registry_(registry), statistics_(statistics) {
    started_ = utc_text(std::time(nullptr));
  }

  Value identity(std::string_view kind) const {
    return Value::object({{"type", fmt::format("io.nats.micro.v1.{}_response", kind)},
                          {"name", "weft"},
                          {"id", names_.id},
                          {"version", names_.version},
                          {"metadata", Value::Object()}});
  }

  Value endpoint(const op::Specification& specification) const {
    // Names of endpoints have no dots.
    return Value::object({{"name", specification.space + "_" + specification.name},
                          {"subject", fmt::format("{}.call.{}", names_.prefix, specification.id())},
                          {"queue_group", "workers"}});
  }

  Value info() const {
    Value answer = identity("info");
    answer.members().set("description", "Operations of Weft");
    Value::Array endpoints;
    for (const auto& each : registry_.list()) {
      Value row = endpoint(*each);
      row.members().set("metadata", Value::object({{"kind", op::name_of(each->kind)}, {"version", each->version}}));
      endpoints.push_back(std::move(row));
    }
    answer.members().set("endpoints", std::move(endpoints));
    return answer;
  }

  Value stats() const {
    Value answer = identity("stats");
    answer.members().set("started", started_);
    Value::Array endpoints;
    const auto rows = statistics_.rows();
    for (const auto& each : registry_.list()) {
      const auto found = rows.find(each->id());
      const ServiceStatistics::Row row = found == rows.end() ? ServiceStatistics::Row() : found->second;
      Value out = endpoint(*each);
      out.members().set("num_requests", row.requests);
      out.members().set("num_errors", row.errors);
      out.members().set("last_error", row.last_error);
      out.members().set("processing_time", row.nanoseconds);
      out.members().set("average_processing_time", row.requests ? row.nanoseconds / row.requests : 0);
      endpoints.push_back(std::move(out));
    }
    answer.members().set("endpoints", std::move(endpoints));
    return answer;
  }

  // Specifications in pages; the last one says so.
  void describe(const std::string& reply) const {
    const auto all = registry_.list();
    std::string page;
    std::size_t i = 0;
    do {
      page.clear();
      for (; i < all.size() && page.size() < kPageBytes; ++i)
        page += (page.empty() ? "" : ",") + op::to_value(*all[i]).to_json();
      connection_.publish(
          reply, "", {{wire::kWorker, names_.id}},
          fmt::format("{{\"worker\":\"{}\",\"last\":{},\"operations\":[{}]}}", names_.id, i == all.size(), page));
    } while (i < all.size());
  }

  void answer(const NatsMessage& message, const Value& value) const {
    if (!message.reply().empty()) connection_.publish(std::string(message.reply()), "", {}, value.to_json());
  }

  NatsConnection& connection_;
  const ServiceNames names_;
  const op::Registry& registry_;
  const ServiceStatistics& statistics_;
  std::string started_;
};

}  // namespace

void ServiceStatistics::add(const std::string& operation, bool failed, std::chrono::nanoseconds time,
                            std::string_view error) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[operation];
  ++row.requests;
  row.nanoseconds += static_cast<std::uint64_t>(time.count());
  if (!failed) return;
  ++row.errors;
  row.last_error = error;
}

std::map<std::string, ServiceStatistics::Row> ServiceStatistics::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

void serve_discovery(NatsConnection& connection, const ServiceNames& names, const op::Registry& registry,
                     const ServiceStatistics& statistics, std::function<bool(std::string_view)> may_read) {
  const auto discovery = std::make_shared<Discovery>(connection, names, registry, statistics);
  const auto on_all = [&](std::string_view verb, Value (*make)(const Discovery&)) {
    for (const std::string& subject : {fmt::format("$SRV.{}", verb), fmt::format("$SRV.{}.weft", verb),
                                       fmt::format("$SRV.{}.weft.{}", verb, names.id)})
      connection.subscribe(
          subject, "", [discovery, make](const NatsMessage& message) { discovery->answer(message, make(*discovery)); });
  };
  on_all("PING", [](const Discovery& d) { return d.identity("ping"); });
  on_all("INFO", [](const Discovery& d) { return d.info(); });
  on_all("STATS", [](const Discovery& d) { return d.stats(); });
  const auto may = std::make_shared<std::function<bool(std::string_view)>>(std::move(may_read));
  connection.subscribe(names.prefix + ".describe", "", [discovery, may](const NatsMessage& message) {
    if (!message.reply().empty() && (*may)(message.header(wire::kAuthorization)))
      discovery->describe(std::string(message.reply()));
  });
  connection.subscribe(names.prefix + ".describe.>", "workers",
                       [discovery, may, skip = names.prefix.size() + 10](const NatsMessage& message) {
                         if (message.reply().empty() || !(*may)(message.header(wire::kAuthorization))) return;
                         const auto found = discovery->registry_.find(
                             message.subject().substr(std::min(skip, message.subject().size())));
                         discovery->answer(message, found ? op::to_value(*found) : Value());
                       });
}

}  // namespace weft::remote
