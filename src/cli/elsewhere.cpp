#include "cli/elsewhere.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "cli/network.hpp"
#include "serve/mcp_client.hpp"
#include "weft/error.hpp"

namespace weft::cli {

void add_elsewhere_options(CLI::App& app, Elsewhere& elsewhere) {
  app.add_option(
      "--from", elsewhere.from,
      "operations of others: http://HOST:PORT, nats://HOST:PORT, grpc://HOST:PORT, mcp+http://HOST:PORT/PATH "
      "(https://, "
      "grpcs://, mcp+https:// with TLS), "
      "mcp+stdio:COMMAND, which starts an MCP server, or a service by its OpenAPI description: "
      "openapi+http://..., openapi:FILE; or operations that a JSON Schema document describes, with --service: "
      "schema+http://..., schema:FILE");
  app.add_option("--service", elsewhere.service,
                 "the URL that answers the operations of a JSON Schema document: POST URL/NAME");
  app.add_option("--schema-namespace", elsewhere.space,
                 "the namespace of a JSON Schema document's operations; otherwise its title");
  app.add_option("--allow-host", elsewhere.allow_hosts,
                 "HOST:PORT that an OpenAPI description may name beside its own host; may be repeated")
      ->take_all();
  app.add_option("--token", elsewhere.token, "the token for --from; better set as WEFT_TOKEN");
  app.add_option("--ca", elsewhere.authority,
                 "PEM file with the certificate authority of the server of --from; turns TLS on for NATS");
  app.add_option("--client-certificate", elsewhere.certificate, "PEM file of the certificate that --from is shown");
  app.add_option("--client-key", elsewhere.key, "PEM file of its key");
  app.add_option("--nats-prefix", elsewhere.nats.prefix, "of the subjects on NATS")->capture_default_str();
  app.add_option("--nats-credentials", elsewhere.nats.credentials, "a .creds file for NATS");
}

bool is_nats(const std::string& from) { return from.starts_with("nats://") || from.starts_with("tls://"); }

remote::NatsOptions nats_options(const Elsewhere& elsewhere, const std::string& url) {
  remote::NatsOptions options = elsewhere.nats;
  options.url = url;
  options.authority = elsewhere.authority;
  options.certificate = elsewhere.certificate;
  options.key = elsewhere.key;
  return options;
}

std::shared_ptr<serve::Caller> connect(const Elsewhere& elsewhere) {
  const std::string& from = elsewhere.from;
  const std::string scheme = from.substr(0, from.find("://"));
  if (is_nats(from)) return network().call_nats({.nats = nats_options(elsewhere, from), .token = elsewhere.token});
  if (scheme == "grpc" || scheme == "grpcs") {
    if ((scheme == "grpcs") == elsewhere.authority.empty())
      throw UsageError("--ca belongs to grpcs://: the certificate that signed the server's");
    return network().call_grpc({.address = serve::server_of(from),
                                .token = elsewhere.token,
                                .authority = elsewhere.authority,
                                .certificate = elsewhere.certificate,
                                .key = elsewhere.key});
  }
  constexpr std::string_view kProgram = "mcp+stdio:";
  if (from.starts_with(kProgram))
    return std::make_shared<serve::McpClient>(serve::mcp_program(from.substr(kProgram.size())),
                                              serve::McpClientOptions{.version = WEFT_VERSION});
  // The server of `weft operations serve --http` takes MCP at a path of its own, which needs no description.
  const bool is_weft = scheme == "http" || scheme == "https";
  if (is_weft && from.find('/', scheme.size() + 3) < from.size() - 1)
    throw UsageError(
        fmt::format("--from has a path; give {}://HOST:PORT for a server of Weft, mcp+{}:// or openapi+{}:// "
                    "for others",
                    scheme, scheme, scheme));
  if (is_weft || scheme == "mcp+http" || scheme == "mcp+https")
    return std::make_shared<serve::McpClient>(
        network().mcp_over_http(
            {.url = is_weft ? from.substr(0, from.find('/', scheme.size() + 3)) + "/mcp" : from.substr(4),
             .token = elsewhere.token,
             .tls = {elsewhere.authority, elsewhere.certificate, elsewhere.key}}),
        serve::McpClientOptions{.version = WEFT_VERSION});
  constexpr std::string_view kDescription = "openapi";
  if (from.starts_with("openapi:") || scheme == "openapi+http" || scheme == "openapi+https")
    return network().call_openapi({.place = from.substr(kDescription.size() + 1),
                                   .token = elsewhere.token,
                                   .allow_hosts = elsewhere.allow_hosts,
                                   .tls = {elsewhere.authority, elsewhere.certificate, elsewhere.key}});
  constexpr std::string_view kSchema = "schema";
  if (from.starts_with("schema:") || scheme == "schema+http" || scheme == "schema+https") {
    if (elsewhere.service.empty())
      throw UsageError("a JSON Schema document describes operations, and does not answer them; give --service URL");
    return network().call_openapi({.place = from.substr(kSchema.size() + 1),
                                   .service = elsewhere.service,
                                   .space = elsewhere.space,
                                   .token = elsewhere.token,
                                   .allow_hosts = {},
                                   .tls = {elsewhere.authority, elsewhere.certificate, elsewhere.key}});
  }
  throw UsageError(
      fmt::format("--from is {}, and not http://HOST:PORT, nats://HOST:PORT, grpc://HOST:PORT, mcp+stdio:COMMAND, "
                  "mcp+http://HOST:PORT/PATH, openapi+http://HOST:PORT/PATH or schema:FILE",
                  quote(serve::server_of(from))));
}

}  // namespace weft::cli
