// weft operations list|describe|call|serve
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "cli/commands.hpp"
#include "cli/elsewhere.hpp"
#include "cli/offer.hpp"
#include "cli/operations.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "ops/names.hpp"
#include "weft/catalogue.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
namespace op = operations;

int list(const Elsewhere& place, const std::string& space, bool json) {
  const Offer offer(place);
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

int describe(const Elsewhere& place, const std::string& id) {
  const Offer offer(place);
  const auto specification = offer.registry->find(id);
  if (!specification) throw UsageError(unknown(*offer.registry, id));
  fmt::print("{}\n", op::to_value(*specification).to_json(2));
  return kOk;
}

struct CallRequest {
  Elsewhere place;
  std::string id, input, device = "auto";
  std::vector<std::string> tensors;
  fs::path out;
  double timeout = 0;
  bool envelope = false;
};

int call(const CallRequest& request) {
  set_default_device(parse_device(request.device));
  Offer offer(request.place);
  const auto specification = offer.registry->find(request.id);
  if (!specification) throw UsageError(unknown(*offer.registry, request.id));
  op::Exchange exchange(offer.registry);
  op::CallOptions options{.identity = offer.registry->owner()};
  if (request.timeout > 0)
    options.deadline =
        op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(request.timeout, 1e6) * 1000));
  StopOnInterrupt interrupt;
  try {
    op::Subscription answers =
        exchange.subscribe(request.id, call_input(request.input, request.tensors, offer.handles()), options);
    const std::stop_callback stop(interrupt.token(), [&] { answers.abort(); });
    while (const auto answer = answers.next()) {
      for (const std::string& warning : answer->warnings) put_message(fmt::format("warning: {}", warning));
      if (!request.out.empty()) write_tensors(request.out, answer->data);
      const Value shown = request.envelope ? op::to_value(*answer) : answer->data;
      // With --out the elements are in the file.
      const Value printed =
          request.out.empty() ? op::to_wire(shown, op::WireTensors::data, offer.handles(), "owner") : shown;
      if (!put_text(printed.to_json() + "\n")) break;
    }
  } catch (const op::OperationError& error) {
    if (interrupt.signal() != 0) throw Interrupted();
    return fail(fmt::format("{}: {}", error.code(), error.what()), exit_code_of(error));
  }
  return kOk;
}

std::shared_ptr<Elsewhere> add_place(CLI::App& app) {
  auto place = std::make_shared<Elsewhere>();
  add_elsewhere_options(app, *place);
  return place;
}

}  // namespace

void set_up_operations(CLI::App& app, Action& action) {
  app.require_subcommand(1);

  CLI::App* list_app = app.add_subcommand("list", "list the operations: tensor ops, handles, models, training, files");
  auto space = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  list_app->add_option("--namespace", *space, "of this namespace only");
  list_app->add_flag("--json", *json, "their specifications, for programs");
  const auto listed = add_place(*list_app);
  list_app->callback(
      [&action, listed, space, json] { action = [listed, space, json] { return list(*listed, *space, *json); }; });

  CLI::App* describe_app = app.add_subcommand("describe", "print the specification of an operation, with its schemas");
  auto id = std::make_shared<std::string>();
  describe_app->add_option("id", *id, "namespace.name, as in tensor.matmul")->required();
  const auto described = add_place(*describe_app);
  describe_app->callback([&action, described, id] { action = [described, id] { return describe(*described, *id); }; });

  CLI::App* call_app = app.add_subcommand("call", "call an operation and print its answers, a line of JSON each");
  auto request = std::make_shared<CallRequest>();
  call_app->footer(
      "A tensor in JSON: {\"$tensor\": {\"dtype\": \"f32\", \"shape\": [2], \"data\": \"BASE64\"}}. docs/operations.md "
      "has examples.");
  call_app->add_option("id", request->id, "namespace.name, as in tensor.matmul")->required();
  call_app->add_option("--input", request->input, "the input as JSON, or @FILE");
  call_app
      ->add_option("--tensor", request->tensors,
                   "NAME=FILE: a member of the input, an array from a .npy file or else the bytes of the file; "
                   "NAME[]=FILE adds to a list; may be "
                   "repeated")
      ->take_all();
  call_app->add_option(
      "--out", request->out,
      "write tensors of the answer to .npy, .npz or .safetensors, and the bytes of a file to any other");
  call_app->add_option("--device", request->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  call_app->add_option("--timeout", request->timeout, "seconds after which the call ends")
      ->check(CLI::NonNegativeNumber);
  call_app->add_flag("--envelope", request->envelope, "print where the answer came from, too");
  add_elsewhere_options(*call_app, request->place);
  call_app->callback([&action, request] { action = [request] { return call(*request); }; });

  set_up_operations_serve(*app.add_subcommand("serve", "offer the operations to clients: HTTP, gRPC, MCP, NATS"),
                          action);
}

}  // namespace weft::cli
