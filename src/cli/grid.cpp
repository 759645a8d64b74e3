// weft grid
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/evolve.hpp"
#include "weft/grid.hpp"
#include "weft/io.hpp"
#include "weft/nn/table.hpp"
#include "weft/ops.hpp"
#include "weft/train/fit.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct GridRequest {
  fs::path network, data, out;
  std::string device = "auto", dtype, kind = "mlp", activation = "relu", loss = "mse", input = "x", target = "y";
  std::vector<Extent> widths;
  int ticks = 0, epochs = 10, generations = 20;
  Extent batch = 32;
  std::size_t population = 16;
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  bool json = false, keep_master = false;
};

/// A description has '{' first, a checkpoint the length of its header.
bool is_json(const fs::path& path) {
  if (path.extension() == ".json") return true;
  const MappedFile file(path);
  return !file.bytes().empty() && file.bytes()[0] == std::byte{'{'};
}

/// The network of a checkpoint, or a new one of a description.
std::unique_ptr<grid::Network> open_network(const GridRequest& request) {
  if (!is_json(request.network)) return grid::load(request.network);
  auto network = std::make_unique<grid::Network>(grid::load_description(request.network));
  network->initialize(request.seed);
  return network;
}

Tensor array_of(const NamedTensors& arrays, const std::string& name, const fs::path& path) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    std::string names;
    for (const auto& [given, tensor] : arrays)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", quote(given, 40));
    throw UsageError(
        fmt::format("{}: it has no array {}; it has {}", path.string(), quote(name), names.empty() ? "none" : names));
  }
  const Tensor& x = found->second;
  // Networks take f32, and ids in i32.
  return is_integer(x.dtype()) ? cast(x, DType::i32) : cast(x, DType::f32);
}

int make_network(const GridRequest& request) {
  grid::Description description;
  if (request.kind == "mlp")
    description = grid::mlp(request.widths, grid::activation(request.activation));
  else if (request.kind == "cnn")
    description = grid::cnn({});
  else if (request.kind == "transformer")
    description = grid::transformer({});
  else
    description = grid::random({.seed = request.seed});
  const std::string text = grid::to_value(description).to_json(2) + "\n";
  if (request.out.empty()) return put_foreign(text) ? kOk : kFile;
  write_file_atomically(request.out, text);
  return kOk;
}

int describe_network(const GridRequest& request) {
  const auto network = open_network(request);
  if (request.json) return put_foreign(grid::to_value(network->description()).to_json(2) + "\n") ? kOk : kFile;
  const grid::Memory memory = network->memory();
  put_foreign(fmt::format("{}\n{}{} parameters: {} bytes in f32, {} packed\n", network->describe(),
                          nn::to_text(nn::table_of(*network)), grouped(static_cast<std::int64_t>(memory.parameters)),
                          grouped(static_cast<std::int64_t>(memory.master_bytes)),
                          grouped(static_cast<std::int64_t>(memory.packed_bytes))));
  return kOk;
}

int run_network(const GridRequest& request) {
  set_default_device(parse_device(request.device));
  const auto network = open_network(request);
  network->eval();
  if (!request.dtype.empty()) network->morph(grid::number_type(request.dtype));
  const Tensor x = array_of(load_npz(request.data), request.input, request.data);
  Tensor y;
  if (request.ticks > 0) {
    grid::Systolic mesh(*network);
    mesh.set_input(x);
    mesh.ticks(request.ticks);
    y = mesh.output();
    if (!y.defined())
      throw UsageError(
          fmt::format("after {} ticks nothing has reached the last layer; give more --ticks", request.ticks));
  } else {
    y = (*network)(x);
  }
  save_npz(request.out, {{"y", y}});
  return kOk;
}

train::Examples examples_of(const GridRequest& request) {
  const NamedTensors arrays = load_npz(request.data);
  return {array_of(arrays, request.input, request.data), array_of(arrays, request.target, request.data)};
}

/// Writes the checkpoint, also after Ctrl-C: nothing that was learnt is lost.
int save_learnt(const grid::Network& network, const GridRequest& request, const StopOnInterrupt& interrupt) {
  grid::save(network, request.out, {.keep_master = request.keep_master});
  if (interrupt.signal() == 0) return kOk;
  put_message(fmt::format("interrupted; {} has what was learnt so far", request.out.string()));
  return kInterrupted;
}

int train_network(const GridRequest& request) {
  set_default_device(parse_device(request.device));
  manual_seed(static_cast<std::uint32_t>(request.seed));
  const auto network = open_network(request);
  if (!request.dtype.empty()) network->morph(grid::number_type(request.dtype));
  const train::Examples examples = examples_of(request);
  optim::Adam optimizer(*network, {.learning_rate = request.learning_rate});
  Console console(stdout);
  const StopOnInterrupt interrupt;
  train::fit(*network, train::loss_named(request.loss), optimizer, examples,
             {.epochs = request.epochs,
              .batch = request.batch,
              .seed = request.seed,
              .on_epoch =
                  [&](const train::EpochReport& r) {
                    console.status(fmt::format("epoch {}  loss {:.6g}  {}", r.epoch, r.loss, clock_text(r.seconds)),
                                   r.epoch == request.epochs);
                    return true;
                  },
              .stop = interrupt.token()});
  console.end_status();
  return save_learnt(*network, request, interrupt);
}

int evolve_network(const GridRequest& request) {
  set_default_device(parse_device(request.device));
  manual_seed(static_cast<std::uint32_t>(request.seed));
  const auto ancestor = open_network(request);
  const train::Examples examples = examples_of(request);
  const train::Loss loss = train::loss_named(request.loss);
  evolve::Population population(*ancestor, {.size = request.population, .seed = request.seed});
  Console console(stdout);
  const StopOnInterrupt interrupt;
  for (int i = 1; i <= request.generations && !interrupt.token().stop_requested(); ++i) {
    const evolve::Generation generation = population.evolve(
        [&](const grid::Network& network) { return -loss(network(examples.x), examples.y).item<float>(); });
    console.status(evolve::to_string(generation), i == request.generations);
  }
  console.end_status();
  return save_learnt(population.best(), request, interrupt);
}

void add_network(CLI::App& app, GridRequest& request) {
  app.add_option("network", request.network, "a description, JSON, or a checkpoint")->required();
}
void add_device(CLI::App& app, GridRequest& request) {
  app.add_option("--device", request.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
}
void add_seed(CLI::App& app, GridRequest& request) {
  app.add_option("--seed", request.seed, "of all random numbers")->capture_default_str();
}
/// What learning from examples needs.
void add_examples(CLI::App& app, GridRequest& request) {
  add_network(app, request);
  app.add_option("--data", request.data, "examples, .npz")->required();
  app.add_option("--input", request.input, "name of the array of inputs")->capture_default_str();
  app.add_option("--target", request.target, "name of the array of targets")->capture_default_str();
  app.add_option("--loss", request.loss, "mse, or cross_entropy with classes as targets")
      ->check(CLI::IsMember({"mse", "cross_entropy"}))
      ->capture_default_str();
  app.add_option("--out", request.out, "file for the checkpoint")->required();
  app.add_flag("--keep-master", request.keep_master, "store f32 parameters, not those of the layers' types");
  add_seed(app, request);
  add_device(app, request);
}

}  // namespace

void set_up_grid(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* summary, int (*run)(const GridRequest&)) {
    auto request = std::make_shared<GridRequest>();
    CLI::App* sub = app.add_subcommand(name, summary);
    sub->callback([&action, request, run] { action = [request, run] { return run(*request); }; });
    return std::pair<CLI::App&, GridRequest&>(*sub, *request);
  };
  {
    const auto [sub, request] = add("new", "write the description of a network, JSON", make_network);
    sub.add_option("kind", request.kind, "mlp, cnn, transformer or random")
        ->required()
        ->check(CLI::IsMember({"mlp", "cnn", "transformer", "random"}));
    sub.add_option("--widths", request.widths, "of an mlp: 4,16,3")->delimiter(',');
    sub.add_option("--activation", request.activation, "of an mlp")->capture_default_str();
    sub.add_option("--out", request.out, "file; standard output if it is not given");
    add_seed(sub, request);
  }
  {
    const auto [sub, request] =
        add("describe", "print the layers of a network, their parameters and sizes", describe_network);
    add_network(sub, request);
    sub.add_flag("--json", request.json, "the description, for programs");
  }
  {
    const auto [sub, request] = add("run", "run a network on an array from a file", run_network);
    add_network(sub, request);
    sub.add_option("--inputs", request.data, "file with the input, .npz")->required();
    sub.add_option("--input", request.input, "name of the array")->capture_default_str();
    sub.add_option("--out", request.out, "file for the output y, .npz")->required();
    sub.add_option("--ticks", request.ticks, "run by a clock, for so many ticks")->check(CLI::Range(1, 1'000'000));
    sub.add_option("--dtype", request.dtype, "type that all layers see their parameters in, such as int8");
    add_seed(sub, request);
    add_device(sub, request);
  }
  {
    const auto [sub, request] = add("train", "train a network on examples from a file", train_network);
    add_examples(sub, request);
    sub.add_option("--epochs", request.epochs, "times through the examples")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    sub.add_option("--batch", request.batch, "examples of an update")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
    sub.add_option("--learning-rate", request.learning_rate, "of Adam")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    sub.add_option("--dtype", request.dtype, "type that all layers see their parameters in, such as int8");
  }
  {
    const auto [sub, request] = add("evolve", "evolve a population and keep its best network", evolve_network);
    add_examples(sub, request);
    sub.add_option("--generations", request.generations, "how many")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    sub.add_option("--population", request.population, "networks of a generation")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
  }
}

}  // namespace weft::cli
