// weft operations serve
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "base/quote.hpp"
#include "cli/elsewhere.hpp"
#include "cli/language_model.hpp"
#include "cli/network.hpp"
#include "cli/operations.hpp"
#include "cli/output.hpp"
#include "cli/script_flags.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "serve/mcp.hpp"
#include "weft/catalogue.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
namespace op = operations;

struct ServeRequest {
  std::string http, grpc, device = "auto";
  Elsewhere elsewhere;
  fs::path certificate, key, client_authority;
  fs::path token_file;
  bool mcp = false, quiet = false, runs_scripts = false, may_fetch = false;
  std::vector<fs::path> read_folders, write_folders, scripts;
  std::vector<std::string> models;
  ScriptFlags script_flags{.time_limit = 60};
  std::size_t calls = 64;
};

// A line of standard input without its end; of one that is too long, its beginning.
std::optional<std::string> read_line(std::size_t bytes_max) {
  std::string line;
  int c = 0;
  while ((c = std::getc(stdin)) != EOF && c != '\n')
    if (line.size() <= bytes_max) line += static_cast<char>(c);
  if (c == EOF && line.empty()) return std::nullopt;
  return line;
}

std::unique_ptr<remote::Server> start_http(const ServeRequest& request, const weft::serve::Service& service,
                                           const std::function<weft::serve::Tokens()>& tokens) {
  const auto colon = request.http.rfind(':');
  remote::HttpOptions options{.host = request.http.substr(0, colon),
                              .version = WEFT_VERSION,
                              .certificate = request.certificate,
                              .key = request.key,
                              .client_authority = request.client_authority};
  const std::string port = colon == std::string::npos ? "" : request.http.substr(colon + 1);
  const auto read = std::from_chars(port.data(), port.data() + port.size(), options.port);
  if (port.empty() || read.ec != std::errc() || read.ptr != port.data() + port.size())
    throw UsageError(fmt::format("--http is {}, and not HOST:PORT", quote(request.http)));
  if (options.host.starts_with('[') && options.host.ends_with(']'))
    options.host = options.host.substr(1, options.host.size() - 2);
  if (!request.quiet) options.log = [](std::string_view line) { put_message(line); };
  allow_more_descriptors();
  auto http = network().serve_http(service, tokens(), options);
  put_message(fmt::format("serving {} operations on {}://{}:{}", service.exchange.registry().list().size(),
                          request.certificate.empty() ? "http" : "https", request.http.substr(0, colon), http->name()));
  return http;
}

// Operations of other workers, which look as if they were local.
void import_remote(const ServeRequest& request, op::Registry& registry) {
  const Elsewhere& elsewhere = request.elsewhere;
  if (elsewhere.from.empty()) return;
  const std::string& nats = elsewhere.nats.url;
  if (!nats.empty() && is_nats(elsewhere.from) &&
      network().nats_reaches(nats_options(elsewhere, elsewhere.from), nats_options(elsewhere, nats)))
    throw UsageError(
        "--nats and --from reach the same NATS server, so calls of imported operations would come back to this worker "
        "and "
        "never end: leave out --from, because callers reach the other workers through the server, or name another "
        "server");
  put_message(fmt::format("{} operations are called at {}",
                          weft::serve::from_call(registry, connect(request.elsewhere)),
                          weft::serve::server_of(request.elsewhere.from)));
}

// Scripts whose operations are offered beside the others. False after a signal.
bool start_scripts(const ServeRequest& request, const std::shared_ptr<op::Exchange>& exchange,
                   std::list<script::Host>& hosts) {
  StopOnInterrupt interrupt;
  for (const fs::path& file : request.scripts) {
    ScriptFlags flags = request.script_flags;
    flags.read = request.read_folders;
    flags.write = request.write_folders;
    flags.device = request.device;
    script::IsolateOptions options = options_of(flags);
    options.exchange = exchange;
    // Standard output belongs to the protocol of --mcp.
    options.print = [](std::string_view line, bool) { put_message(line); };
    try {
      const auto& ids = hosts.emplace_back(file, std::move(options), interrupt.token()).operations();
      put_message(fmt::format("{} offers {}", file.filename().string(), fmt::join(ids, ", ")));
    } catch (const Error&) {
      if (interrupt.signal() != 0) return false;
      throw;
    }
  }
  return true;
}

int serve(const ServeRequest& request) {
  const std::string& nats = request.elsewhere.nats.url;
  const bool needs_tokens = !request.http.empty() || !request.grpc.empty() || !nats.empty();
  if (!needs_tokens && !request.mcp)
    throw UsageError("say how to serve: --http HOST:PORT, --grpc HOST:PORT, --nats URL, --mcp, or several of them");
  if (needs_tokens && request.token_file.empty())
    throw UsageError("--http, --grpc and --nats need --token-file: who may call, and what");
  if (request.certificate.empty() != request.key.empty()) throw UsageError("--certificate and --key belong together");
  set_default_device(parse_device(request.device));
  const auto registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue(
      registry,
      {.read_folders = request.read_folders, .write_folders = request.write_folders, .may_fetch = request.may_fetch});
  for (const std::string& pair : request.models) {
    const auto [name, path] = named_file(pair, "--model", "PATH");
    try {
      catalogue.load_model(name, model_path(path));
    } catch (const op::OperationError& error) {
      throw UsageError(fmt::format("--model {}: {}", name, error.what()));
    }
  }
  import_remote(request, *registry);
  const auto exchange =
      std::make_shared<op::Exchange>(registry, op::ExchangeOptions{.calls_per_identity_max = request.calls});
  if (request.runs_scripts) {
    if (request.script_flags.time_limit == 0)
      throw UsageError("--run-scripts needs a --time-limit above 0: the scripts come from outside");
    ScriptFlags flags = request.script_flags;
    flags.read = request.read_folders;
    flags.write = request.write_folders;
    flags.device = request.device;
    script::offer_run(*registry, options_of(flags));
  }
  std::list<script::Host> hosts;
  if (!start_scripts(request, exchange, hosts)) throw Interrupted();
  const weft::serve::Service service{*exchange, catalogue.handles()};
  const auto tokens = [&] { return weft::serve::Tokens::load(request.token_file, *registry); };
  std::unique_ptr<remote::Server> http, grpc, worker;
  if (!request.http.empty()) http = start_http(request, service, tokens);
  if (!request.grpc.empty()) {
    remote::GrpcOptions options{.address = request.grpc,
                                .certificate = request.certificate,
                                .key = request.key,
                                .client_authority = request.client_authority};
    if (!request.quiet) options.log = [](std::string_view line) { put_message(line); };
    grpc = network().serve_grpc(service, tokens(), options);
    put_message(fmt::format("serving {} operations over gRPC on {}:{}", registry->list().size(),
                            request.grpc.substr(0, request.grpc.rfind(':')), grpc->name()));
  }
  if (!nats.empty()) {
    remote::NatsWorkerOptions options{.nats = nats_options(request.elsewhere, nats), .version = WEFT_VERSION};
    if (!request.quiet) options.log = [](std::string_view line) { put_message(line); };
    worker = network().serve_nats(service, tokens(), options);
    put_message(fmt::format("serving {} operations on NATS at {} as worker {}", registry->list().size(),
                            weft::serve::server_of(nats), worker->name()));
  }
  if (request.mcp) {
    // The client has the rights of the user who started this process.
    const weft::serve::McpOptions options{.identity = registry->owner(), .version = WEFT_VERSION};
    weft::serve::serve_mcp(
        service, options, [&] { return read_line(options.line_bytes_max); },
        [](std::string_view line) { return put_text(std::string(line) + "\n"); });
    return kOk;
  }
  StopOnInterrupt interrupt;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, interrupt.token(), [] { return false; });
  return kOk;
}

}  // namespace

void set_up_operations_serve(CLI::App& app, Action& action) {
  auto serving = std::make_shared<ServeRequest>();
  serving->elsewhere.nats.url.clear();
  app.footer(
      "The token file: {\"tokens\": [{\"token\": \"...\", \"id\": \"me\", \"scopes\": [\"tensor:run\"], \"resources\": "
      "{\"model:*\": [\"run\"]}}]}.\n"
      "docs/operations.md describes routes and limits.");
  app.add_option("--http", serving->http, "HOST:PORT to listen on; port 0 takes a free one");
  app.add_option("--grpc", serving->grpc, "HOST:PORT to listen on for gRPC; port 0 takes a free one");
  app.add_option("--certificate", serving->certificate,
                 "PEM file: HTTP and gRPC use TLS with this certificate, and --key");
  app.add_option("--key", serving->key, "PEM file: the key of --certificate");
  app.add_option("--client-ca", serving->client_authority,
                 "PEM file: clients of HTTP and gRPC need a certificate that it signed");
  app.add_option("--nats", serving->elsewhere.nats.url,
                 "nats://HOST:PORT: works for this NATS server, beside other workers");
  add_elsewhere_options(app, serving->elsewhere);
  app.add_option("--token-file", serving->token_file, "who may call over HTTP, gRPC and NATS, and what");
  app.add_flag("--mcp", serving->mcp, "Model Context Protocol on standard input and output, for whoever starts this");
  app.add_option("--allow-read", serving->read_folders,
                 "a folder that operations and scripts may read; may be repeated")
      ->take_all();
  app.add_option("--allow-write", serving->write_folders,
                 "a folder that operations and scripts may write in; may be repeated")
      ->take_all();
  app.add_flag("--allow-fetch", serving->may_fetch,
               "model.fetch may fetch models of the hub; callers need the scope model:fetch and a right on the model");
  app.add_option("--model", serving->models,
                 "NAME=PATH: a language model to load first, also NAME=hf:OWNER/NAME; may be repeated")
      ->take_all();
  app.add_option("--device", serving->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--calls", serving->calls, "calls that one identity may have under way at once")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--script", serving->scripts,
                 "a script that registers operations, which are offered too; may be repeated")
      ->take_all();
  app.add_flag("--run-scripts", serving->runs_scripts,
               "offer script.run: callers with the scope script:run may run scripts of their own in a sandbox");
  add_script_flags(app, serving->script_flags, "seconds that a script may load, and then each call of it; 0: no limit");
  app.add_flag("--quiet", serving->quiet, "print no line for each request");
  app.callback([&action, serving] { action = [serving] { return serve(*serving); }; });
}

}  // namespace weft::cli
