// weft workflow check|run
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/offer.hpp"
#include "cli/operations.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/workflow.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
namespace op = operations;

constexpr std::uint64_t kTemplateBytesMax = std::uint64_t{16} << 20;

workflow::Template read_template(const fs::path& path) {
  try {
    return workflow::template_from(Value::parse(read_text(path, kTemplateBytesMax), path.string()));
  } catch (Error& error) {
    error.add_context(fmt::format("reading the workflow {}", quote(path.string())));
    throw;
  }
}

struct CheckRequest {
  Elsewhere place;
  fs::path file;
  bool json = false;
};

int check(const CheckRequest& request) {
  const Offer offer(request.place);
  const workflow::Template made = read_template(request.file);
  const auto problems = workflow::check(made, *offer.registry);
  if (request.json) {
    Value::Array list;
    for (const workflow::Problem& each : problems)
      list.push_back(Value::object({{"code", each.code}, {"path", each.path}, {"message", each.message}}));
    Value::Object object{{"problems", std::move(list)}};
    if (problems.empty()) object.set("graph", workflow::to_value(workflow::operation_graph(made, *offer.registry)));
    put_foreign(Value(std::move(object)).to_json(2) + "\n");
  } else if (!problems.empty()) {
    put_foreign(workflow::to_string(problems) + "\n");
  } else {
    const workflow::OperationGraph graph = workflow::operation_graph(made, *offer.registry);
    for (const auto& node : graph.nodes)
      put_foreign(fmt::format("{:<32}  {}  {}\n", node.operation, node.path, node.id));
    fmt::print("{} operations; nothing is wrong\n", graph.nodes.size());
  }
  return problems.empty() ? kOk : kUsage;
}

struct RunRequest {
  Elsewhere place;
  fs::path file, out, graph;
  std::string input, device = "auto";
  std::vector<std::string> tensors;
  double timeout = 0;
  bool events = false;
};

// A line on standard error for each change.
void show(const workflow::NodeEvent& event) {
  put_message(fmt::format("{:<10} {}{}{}{}", workflow::name_of(event.status), event.node,
                          event.name.empty() ? "" : fmt::format(" {}", quote(event.name)),
                          event.operation.empty() ? "" : fmt::format("  {}", event.operation),
                          event.message.empty() ? "" : fmt::format("  {}", event.message)));
}

int run(const RunRequest& request) {
  set_default_device(parse_device(request.device));
  Offer offer(request.place);
  const workflow::Template made = read_template(request.file);
  op::Exchange exchange(offer.registry);
  workflow::RunOptions options;
  options.call.identity = offer.registry->owner();
  if (request.timeout > 0)
    options.call.deadline =
        op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(request.timeout, 1e6) * 1000));
  if (request.events) options.observer = show;
  const StopOnInterrupt interrupt;
  try {
    Value input = call_input(request.input, request.tensors, offer.handles());
    workflow::Run running = workflow::start(exchange, made, std::move(input), options);
    const std::stop_callback stop(interrupt.token(), [&] { running.abort(); });
    const auto write_graph = [&] {
      if (!request.graph.empty())
        write_file_atomically(request.graph, workflow::to_value(running.graph()).to_json(2) + "\n");
    };
    Value answer;
    try {
      answer = running.get();
    } catch (...) {
      write_graph();
      throw;
    }
    write_graph();
    if (!request.out.empty()) write_tensors(request.out, answer);
    const Value printed =
        request.out.empty() ? op::to_wire(answer, op::WireTensors::data, offer.handles(), "owner") : answer;
    put_text(printed.to_json() + "\n");
  } catch (const op::OperationError& error) {
    if (interrupt.signal() != 0) throw Interrupted();
    return fail(fmt::format("{}: {}", error.code(), error.what()), exit_code_of(error));
  }
  return kOk;
}

}  // namespace

void set_up_workflow(CLI::App& app, Action& action) {
  app.require_subcommand(1);

  CLI::App* check_app = app.add_subcommand("check", "find what is wrong with a workflow; nothing runs");
  auto checked = std::make_shared<CheckRequest>();
  check_app->add_option("file", checked->file, "the template as JSON; - for standard input")->required();
  check_app->add_flag("--json", checked->json, "problems, or the graph of operations, for programs");
  add_elsewhere_options(*check_app, checked->place);
  check_app->callback([&action, checked] { action = [checked] { return check(*checked); }; });

  CLI::App* run_app = app.add_subcommand("run", "check a workflow, run it, and print its result");
  auto request = std::make_shared<RunRequest>();
  run_app->add_option("file", request->file, "the template as JSON; - for standard input")->required();
  run_app->add_option("--input", request->input, "the input as JSON, or @FILE");
  run_app
      ->add_option("--tensor", request->tensors,
                   "NAME=FILE: a member of the input, an array from a .npy file or else the bytes of the file; "
                   "NAME[]=FILE adds to a list; may be "
                   "repeated")
      ->take_all();
  run_app->add_option("--out", request->out, "write tensors of the result to .npy, .npz or .safetensors");
  run_app->add_option("--graph", request->graph, "write what ran, and how it ended, to this file as JSON");
  run_app->add_option("--device", request->device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  run_app->add_option("--timeout", request->timeout, "seconds after which the workflow ends")
      ->check(CLI::NonNegativeNumber);
  run_app->add_flag("--events", request->events, "print every change of an element's status on standard error");
  add_elsewhere_options(*run_app, request->place);
  run_app->callback([&action, request] { action = [request] { return run(*request); }; });
}

}  // namespace weft::cli
