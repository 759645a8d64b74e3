// weft operations list|describe|call|serve
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "ops/names.hpp"
#include "serve/http.hpp"
#include "serve/mcp.hpp"
#include "weft/catalogue.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/io.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
namespace op = operations;

// All operations of Weft, with the rights of the owner of this process.
struct Offer {
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue{
      registry,
      {.any_files = true, .tensor_bytes_max = UINT64_MAX, .handles_max = SIZE_MAX, .handle_bytes_max = UINT64_MAX}};
};

int list(const std::string& space, bool json) {
  const Offer offer;
  Value::Array all;
  std::string_view last;
  std::size_t count = 0;
  const auto operations = offer.registry->list();
  for (const auto& specification : operations) {
    if (!space.empty() && specification->space != space) continue;
    ++count;
    if (json) {
      all.push_back(op::to_value(*specification));
      continue;
    }
    if (specification->space != last) fmt::print("{}{}\n", last.empty() ? "" : "\n", specification->space);
    last = specification->space;
    fmt::print("  {:<34}  {:<12}  {}\n", specification->id(), op::name_of(specification->kind),
               specification->description);
  }
  if (json)
    fmt::print("{}\n", Value::object({{"weft", WEFT_VERSION}, {"operations", std::move(all)}}).to_json(2));
  else if (count == 0)
    throw UsageError(fmt::format("there is no namespace {}", quote(space)));
  else
    fmt::print("\n{} operations. Schemas and errors: weft operations describe ID\n", count);
  return kOk;
}

std::string unknown(const op::Registry& registry, const std::string& id) {
  const auto all = registry.list();
  std::vector<std::string> ids;
  for (const auto& each : all) ids.push_back(each->id());
  const std::vector<std::string_view> names(ids.begin(), ids.end());
  const std::string_view nearest = nearest_name(id, names);
  return fmt::format("there is no operation {}.{} All of them: weft operations list", quote(id),
                     nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest));
}

int describe(const std::string& id) {
  const Offer offer;
  const auto specification = offer.registry->find(id);
  if (!specification) throw UsageError(unknown(*offer.registry, id));
  fmt::print("{}\n", op::to_value(*specification).to_json(2));
  return kOk;
}

struct CallRequest {
  std::string id, input, device = "auto";
  std::vector<std::string> tensors;
  fs::path out;
  double timeout = 0;
  bool envelope = false;
};

// "NAME=FILE" in two.
std::pair<std::string, std::string> named_file(const std::string& pair, std::string_view option,
                                               std::string_view file) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("{} is {}, and not NAME={}", option, quote(pair), file));
  return {pair.substr(0, equals), pair.substr(equals + 1)};
}

Value input_of(const CallRequest& request, op::Handles& handles) {
  Value input = Value::Object();
  if (request.input.starts_with('@'))
    input = Value::parse(read_text_file(request.input.substr(1)), request.input.substr(1));
  else if (!request.input.empty())
    input = Value::parse(request.input, "--input");
  input = op::from_wire(std::move(input), handles, "owner");
  for (const std::string& pair : request.tensors) {
    const auto [name, file] = named_file(pair, "--tensor", "FILE.npy");
    if (!input.is_object()) throw UsageError("--tensor adds members to an input that is an object");
    input.members().set(name, load_npy(file));
  }
  return input;
}

// Moves the tensors of a value into a list, by their paths; their dtypes and shapes stay in the value.
void collect(const Value& value, const std::string& path, NamedTensors& tensors) {
  if (value.is_tensor()) {
    tensors.emplace(path, value.tensor());
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.elements().size(); ++i)
      collect(value[i], fmt::format("{}{}{}", path, path.empty() ? "" : ".", i), tensors);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.members()) collect(member, path.empty() ? key : path + "." + key, tensors);
  }
}

void write_tensors(const fs::path& path, const Value& data) {
  NamedTensors tensors;
  collect(data, "", tensors);
  if (tensors.empty()) throw UsageError("--out: the answer has no tensors");
  if (path.extension() == ".safetensors") return save_safetensors(path, tensors);
  if (path.extension() == ".npz") return save_npz(path, tensors);
  if (tensors.size() > 1)
    throw UsageError(
        fmt::format("--out: the answer has {} tensors; write a .npz or .safetensors file", tensors.size()));
  save_npy(path, tensors.begin()->second);
}

int exit_code_of(const op::OperationError& error) {
  for (const std::string_view code : {op::kNotFound, op::kValidationError, std::string_view("USAGE_ERROR"),
                                      std::string_view("SHAPE_ERROR"), std::string_view("DTYPE_ERROR")})
    if (error.code() == code) return kUsage;
  if (error.code() == "FILE_ERROR") return kFile;
  if (error.code() == "DEVICE_ERROR") return kDevice;
  return kFailure;
}

int call(const CallRequest& request) {
  set_default_device(parse_device(request.device));
  Offer offer;
  const auto specification = offer.registry->find(request.id);
  if (!specification) throw UsageError(unknown(*offer.registry, request.id));
  op::Exchange exchange(offer.registry);
  op::CallOptions options{.identity = offer.registry->owner()};
  if (request.timeout > 0)
    options.deadline = op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(request.timeout * 1000));
  StopOnInterrupt interrupt;
  try {
    op::Subscription answers = exchange.subscribe(request.id, input_of(request, offer.catalogue.handles()), options);
    const std::stop_callback stop(interrupt.token(), [&] { answers.abort(); });
    while (const auto answer = answers.next()) {
      for (const std::string& warning : answer->warnings) put_message(fmt::format("warning: {}", warning));
      if (!request.out.empty()) write_tensors(request.out, answer->data);
      const Value shown = request.envelope ? op::to_value(*answer) : answer->data;
      // With --out the elements are in the file.
      const Value printed =
          request.out.empty() ? op::to_wire(shown, op::WireTensors::data, offer.catalogue.handles(), "owner") : shown;
      if (!put_text(printed.to_json() + "\n")) break;
    }
  } catch (const op::OperationError& error) {
    if (interrupt.signal() != 0) throw Interrupted();
    return fail(fmt::format("{}: {}", error.code(), error.what()), exit_code_of(error));
  }
  return kOk;
}

struct ServeRequest {
  std::string http, device = "auto";
  fs::path token_file;
  bool mcp = false, quiet = false;
  std::vector<fs::path> read_folders, write_folders;
  std::vector<std::string> models;
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

int serve(const ServeRequest& request) {
  if (request.http.empty() && !request.mcp) throw UsageError("say how to serve: --http HOST:PORT, --mcp, or both");
  set_default_device(parse_device(request.device));
  const auto registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue(registry, {.read_folders = request.read_folders, .write_folders = request.write_folders});
  for (const std::string& pair : request.models) {
    const auto [name, path] = named_file(pair, "--model", "PATH");
    try {
      catalogue.load_model(name, path);
    } catch (const op::OperationError& error) {
      throw UsageError(fmt::format("--model {}: {}", name, error.what()));
    }
  }
  op::Exchange exchange(registry);
  const weft::serve::Service service{exchange, catalogue.handles()};
  std::optional<weft::serve::HttpServer> http;
  if (!request.http.empty()) {
    if (request.token_file.empty()) throw UsageError("--http needs --token-file: who may call, and what");
    const auto colon = request.http.rfind(':');
    weft::serve::HttpOptions options{.host = request.http.substr(0, colon), .version = WEFT_VERSION};
    const std::string port = colon == std::string::npos ? "" : request.http.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), options.port);
    if (port.empty() || read.ec != std::errc() || read.ptr != port.data() + port.size())
      throw UsageError(fmt::format("--http is {}, and not HOST:PORT", quote(request.http)));
    if (options.host.starts_with('[') && options.host.ends_with(']'))
      options.host = options.host.substr(1, options.host.size() - 2);
    if (!request.quiet) options.log = [](std::string_view line) { put_message(line); };
    http.emplace(service, weft::serve::Tokens::load(request.token_file, *registry), options);
    put_message(fmt::format("serving {} operations on http://{}:{}", registry->list().size(),
                            request.http.substr(0, colon), http->port()));
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

void set_up_operations(CLI::App& app, Action& action) {
  app.require_subcommand(1);

  CLI::App* list_app = app.add_subcommand("list", "list the operations: tensor ops, handles, models, training, files");
  auto space = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  list_app->add_option("--namespace", *space, "of this namespace only");
  list_app->add_flag("--json", *json, "their specifications, for programs");
  list_app->callback([&action, space, json] { action = [space, json] { return list(*space, *json); }; });

  CLI::App* describe_app = app.add_subcommand("describe", "print the specification of an operation, with its schemas");
  auto id = std::make_shared<std::string>();
  describe_app->add_option("id", *id, "namespace.name, as in tensor.matmul")->required();
  describe_app->callback([&action, id] { action = [id] { return describe(*id); }; });

  CLI::App* call_app = app.add_subcommand("call", "call an operation and print its answers, a line of JSON each");
  auto request = std::make_shared<CallRequest>();
  call_app->footer(
      "A tensor in JSON: {\"$tensor\": {\"dtype\": \"f32\", \"shape\": [2], \"data\": \"BASE64\"}}. docs/operations.md "
      "has examples.");
  call_app->add_option("id", request->id, "namespace.name, as in tensor.matmul")->required();
  call_app->add_option("--input", request->input, "the input as JSON, or @FILE");
  call_app
      ->add_option("--tensor", request->tensors, "NAME=FILE.npy: a member of the input, from a file; may be repeated")
      ->take_all();
  call_app->add_option("--out", request->out, "write tensors of the answer to .npy, .npz or .safetensors");
  call_app->add_option("--device", request->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  call_app->add_option("--timeout", request->timeout, "seconds after which the call ends")
      ->check(CLI::NonNegativeNumber);
  call_app->add_flag("--envelope", request->envelope, "print where the answer came from, too");
  call_app->callback([&action, request] { action = [request] { return call(*request); }; });

  CLI::App* serve_app = app.add_subcommand("serve", "offer the operations to clients, over HTTP or MCP");
  auto serving = std::make_shared<ServeRequest>();
  serve_app->footer(
      "The token file: {\"tokens\": [{\"token\": \"...\", \"id\": \"me\", \"scopes\": [\"tensor:run\"], \"resources\": "
      "{\"model:*\": [\"run\"]}}]}.\n"
      "docs/operations.md describes routes and limits.");
  serve_app->add_option("--http", serving->http, "HOST:PORT to listen on; port 0 takes a free one");
  serve_app->add_option("--token-file", serving->token_file, "who may call over HTTP, and what");
  serve_app->add_flag("--mcp", serving->mcp,
                      "Model Context Protocol on standard input and output, for whoever starts this");
  serve_app->add_option("--allow-read", serving->read_folders, "a folder that operations may read; may be repeated")
      ->take_all();
  serve_app
      ->add_option("--allow-write", serving->write_folders, "a folder that operations may write in; may be repeated")
      ->take_all();
  serve_app->add_option("--model", serving->models, "NAME=PATH: a language model to load first; may be repeated")
      ->take_all();
  serve_app->add_option("--device", serving->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  serve_app->add_flag("--quiet", serving->quiet, "print no line for each request");
  serve_app->callback([&action, serving] { action = [serving] { return serve(*serving); }; });
}

}  // namespace weft::cli
