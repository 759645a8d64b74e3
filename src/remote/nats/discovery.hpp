// How workers are found: the services of NATS ($SRV.PING, INFO, STATS), and specifications.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "remote/nats/connection.hpp"
#include "weft/operations/registry.hpp"

namespace weft::remote {

/// Counts of a worker's calls.
class ServiceStatistics {
 public:
  void add(const std::string& operation, bool failed, std::chrono::nanoseconds time, std::string_view error);
  struct Row {
    std::uint64_t requests = 0, errors = 0, nanoseconds = 0;
    std::string last_error;
  };
  std::map<std::string, Row> rows() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Row> rows_;
};

struct ServiceNames {
  std::string prefix, id, version;
};

/// Answers questions about a worker until the connection closes. Specifications go to those whose header "Authorization" `may_read`
/// accepts; the others see names only.
void serve_discovery(NatsConnection& connection, const ServiceNames& names, const operations::Registry& registry,
                     const ServiceStatistics& statistics, std::function<bool(std::string_view)> may_read);

}  // namespace weft::remote
