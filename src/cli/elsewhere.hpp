// Operations that are not in this process: the options that name their place, and the connection.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "remote/nats/connection.hpp"
#include "serve/caller.hpp"

namespace weft::cli {

struct Elsewhere {
  std::string from, token;
  std::string service, space;  // of a JSON Schema document
  remote::NatsOptions nats;    // its url is that of a server to work for
  std::filesystem::path authority, certificate, key;
  std::vector<std::string> allow_hosts;
};
/// Adds --from and --token, and what connections need: --nats-..., --ca, --client-certificate, --client-key.
void add_elsewhere_options(CLI::App& app, Elsewhere& elsewhere);

/// Whether a place is a NATS server.
bool is_nats(const std::string& from);
remote::NatsOptions nats_options(const Elsewhere& elsewhere, const std::string& url);

/// Errors: UsageError for a place that is neither nats:// nor grpc://; OperationError UNAVAILABLE.
std::shared_ptr<serve::Caller> connect(const Elsewhere& elsewhere);

}  // namespace weft::cli
