#include "cli/elsewhere.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "cli/network.hpp"
#include "weft/error.hpp"

namespace weft::cli {

void add_elsewhere_options(CLI::App& app, Elsewhere& elsewhere) {
  app.add_option("--from", elsewhere.from,
                 "operations of others: nats://HOST:PORT, grpc://HOST:PORT, or grpcs:// with TLS");
  app.add_option("--token", elsewhere.token, "the token for --from; better set as WEFT_TOKEN");
  app.add_option("--ca", elsewhere.authority,
                 "PEM file of what signs the certificate of the server of --from; NATS uses TLS then");
  app.add_option("--client-certificate", elsewhere.certificate, "PEM file of the certificate that --from is shown");
  app.add_option("--client-key", elsewhere.key, "PEM file of its key");
  app.add_option("--nats-prefix", elsewhere.nats.prefix, "of the subjects on NATS")->capture_default_str();
  app.add_option("--nats-credentials", elsewhere.nats.credentials, "a .creds file for NATS");
}

std::shared_ptr<serve::Caller> connect(const Elsewhere& elsewhere) {
  const std::string& from = elsewhere.from;
  const std::string scheme = from.substr(0, from.find("://"));
  if (scheme == "nats" || scheme == "tls") {
    remote::NatsClientOptions options{.nats = elsewhere.nats, .token = elsewhere.token};
    options.nats.url = from;
    options.nats.authority = elsewhere.authority;
    options.nats.certificate = elsewhere.certificate;
    options.nats.key = elsewhere.key;
    return network().call_nats(options);
  }
  if (scheme == "grpc" || scheme == "grpcs") {
    if ((scheme == "grpcs") == elsewhere.authority.empty())
      throw UsageError("--ca belongs to grpcs://: the certificate that signed the server's");
    return network().call_grpc({.address = serve::server_of(from),
                                .token = elsewhere.token,
                                .authority = elsewhere.authority,
                                .certificate = elsewhere.certificate,
                                .key = elsewhere.key});
  }
  throw UsageError(
      fmt::format("--from is {}, and not nats://HOST:PORT or grpc://HOST:PORT", quote(serve::server_of(from))));
}

}  // namespace weft::cli
