// Volumetric networks as operations: they are made from descriptions or files, run, trained and saved. A network is a resource,
// network:NAME, with the actions create, read, run and train. Files of weights need the right on weights:PATH as well.
#include <fmt/format.h>

#include <map>

#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/held_networks.hpp"
#include "weft/evolve.hpp"
#include "weft/ops.hpp"

namespace weft::operations {
namespace {

constexpr const char* kTrainingProperties = R"(
  "x": {"x-tensor": true, "description": "inputs, [examples, ...]"},
  "y": {"x-tensor": true, "description": "what is expected, [examples, ...]; classes [examples] for cross_entropy"},
  "loss": {"enum": ["mse", "cross_entropy"], "default": "mse"},
  "learning_rate": {"type": "number", "minimum": 0, "default": 0.001, "description": "of Adam"})";

std::uint64_t parameter_bytes(const grid::Description& description) {
  std::uint64_t count = 0;
  for (const grid::Layer& layer : description.layers) {
    const auto own = static_cast<std::uint64_t>(grid::parameter_count(layer));
    if (own > UINT64_MAX / 4 - count) return UINT64_MAX;
    count += own;
  }
  return 4 * count;
}

// A new network of {"description": ...} or {"builder": {"kind": ..., options}}, within the limit on its size.
std::unique_ptr<grid::Network> made_of(const Value& input, std::uint64_t bytes_max) {
  grid::Description description;
  if (const Value* builder = input.find("builder")) {
    Value::Object given = builder->members();
    const std::string kind = given.find("kind")->string();
    given.remove("kind");
    description = grid::build(kind, std::move(given));
  } else {
    description = grid::from_value(input["description"]);
  }
  grid::check(description);
  if (const std::uint64_t bytes = parameter_bytes(description); bytes > bytes_max)
    throw OperationError("NETWORK_TOO_LARGE",
                         fmt::format("its parameters have {} bytes; at most {} are allowed", bytes, bytes_max));
  auto network = std::make_unique<grid::Network>(std::move(description));
  network->initialize(input["seed"].unsigned_integer());
  return network;
}

Value facts_of(const std::string& name, const grid::Network& network) {
  const grid::Memory memory = network.memory();
  return Value::object({{"network", name},
                        {"layers", network.description().layers.size()},
                        {"parameters", memory.parameters},
                        {"master_bytes", memory.master_bytes},
                        {"packed_bytes", memory.packed_bytes}});
}

Tensor run_network(const Value& input, grid::Network& network) {
  network.eval();
  const Tensor x = network_tensor(input["x"].tensor());
  const std::int64_t ticks = input["ticks"].integer();
  if (ticks == 0) return network(x);
  grid::Systolic mesh(network);
  mesh.set_input(x);
  mesh.ticks(static_cast<int>(ticks));
  if (!mesh.output().defined())
    throw UsageError(fmt::format("after {} ticks nothing has reached the last layer; give more ticks", ticks));
  return mesh.output();
}

// Trains for some epochs, and emits a report after each.
void train_network(Context& call, HeldNetwork& held) {
  const Value& input = call.input();
  grid::Network& network = held.network();
  train::fit(network, train::loss_named(input["loss"].string()), held.optimizer(input["learning_rate"].number()),
             examples_of(input),
             {.epochs = static_cast<int>(input["epochs"].integer()),
              .batch = input["batch"].integer(),
              .seed = input["seed"].unsigned_integer(),
              .on_epoch =
                  [&](const train::EpochReport& report) {
                    call.emit(Value::object(
                        {{"epoch", report.epoch}, {"loss", finite_or_null(report.loss)}, {"seconds", report.seconds}}));
                    return true;
                  },
              .stop = call.stop()});
  call.check();
}

// Parameters by their dotted names, "z0y0x0l1.weight"; all without names.
Value read_parameters(const Value& input, const grid::Network& network) {
  std::map<std::string, Variable> known;
  for (const nn::NamedParameter& each : network.named_parameters()) known.emplace(each.name, each.variable);
  Value::Object made;
  if (const Value* names = input.find("names")) {
    for (const Value& name : names->elements()) {
      const auto found = known.find(name.string());
      if (found == known.end()) throw UsageError(fmt::format("there is no parameter {}", quote(name.string())));
      made.set(found->first, found->second.value());
    }
  } else {
    for (const auto& [name, variable] : known) made.set(name, variable.value());
  }
  return Value::object({{"parameters", std::move(made)}});
}
// All or none.
void write_parameters(const Value& parameters, const grid::Network& network) {
  std::map<std::string, Variable> known;
  for (const nn::NamedParameter& each : network.named_parameters()) known.emplace(each.name, each.variable);
  std::string problems;
  for (const auto& [name, value] : parameters.members()) {
    const auto found = known.find(name);
    if (found == known.end())
      problems += fmt::format("\n  unknown: {}", quote(name));
    else if (found->second.shape() != value.tensor().shape())
      problems += fmt::format("\n  shape: {} is {}, given {}", name, found->second.shape().to_string(),
                              value.tensor().shape().to_string());
  }
  if (!problems.empty()) throw UsageError("the parameters do not fit" + problems);
  for (const auto& [name, value] : parameters.members()) known.at(name).assign(cast(value.tensor(), DType::f32));
  for (const auto& [name, value] : parameters.members()) known.at(name).value().eval();
}

// The schema of an object with a network's name and other members.
Value network_schema(std::string_view members, std::string_view required = "") {
  return schema_of(fmt::format(
      R"({{"type": "object", "required": ["network"{}], "additionalProperties": false, "properties": {{"network": {}{}{}}}}})",
      required, kNetworkName, members.empty() ? "" : ", ", members));
}

}  // namespace

void add_grid_operations(Registry& registry, const CatalogueOptions& options) {
  const auto networks = std::make_shared<Networks>("network", "NETWORK", options.networks_max);
  const std::uint64_t bytes_max = options.network_bytes_max;
  const DeclaredError missing{"NETWORK_NOT_FOUND", "there is no such network", true, 404};
  const auto with = [&](std::vector<DeclaredError> own) {
    own.insert(own.end(), engine_errors().begin(), engine_errors().end());
    return own;
  };
  const std::vector<DeclaredError> making = {
      {"NETWORK_EXISTS", "the name is taken", true, 409},
      {"NETWORK_LIMIT", "as many networks are held as there may be", true, 429},
      {"NETWORK_TOO_LARGE", "a network with more parameters than one may have", true, 413},
      {"FILE_ERROR", "a file that is missing, cannot be read or written, or is damaged"}};
  const auto on_network = [](const char* action, std::vector<std::string> scopes) {
    return Access{.scopes = std::move(scopes),
                  .resource_type = "network",
                  .resource_action = action,
                  .resource_input = "network"};
  };
  const auto add = [&](Specification specification, std::function<Value(Context&)> run) {
    specification.space = "grid";
    registry.add(std::move(specification),
                 [run = std::move(run)](Context& call) { return with_codes([&] { return run(call); }); });
  };
  // An operation on a network that exists.
  const auto on = [&](Specification specification, std::function<Value(Context&, HeldNetwork&)> run) {
    add(std::move(specification), [networks, run = std::move(run)](Context& call) {
      return networks->find(call.input("network").string())->use(call, [&](const std::unique_ptr<HeldNetwork>& held) {
        return run(call, *held);
      });
    });
  };
  const Value facts = schema_of(
      R"({"type": "object", "required": ["network", "layers", "parameters"], "properties": {
            "network": {"type": "string"}, "layers": {"type": "integer"}, "parameters": {"type": "integer"},
            "master_bytes": {"type": "integer", "description": "in f32"}, "packed_bytes": {"type": "integer", "description": "in the types of the layers"}}})");

  add({.name = "create",
       .kind = Kind::mutation,
       .title = "create a network",
       .description = "Makes a volumetric network of a description, or of a builder (mlp, cnn, transformer, random) "
                      "with its options, and "
                      "keeps it under a name.",
       .input = schema_of(fmt::format(
           R"({{"type": "object", "required": ["network"], "additionalProperties": false,
                "oneOf": [{{"required": ["description"]}}, {{"required": ["builder"]}}], "properties": {{
                "network": {}, "description": {{"type": "object"}},
                "builder": {{"type": "object", "required": ["kind"], "properties": {{"kind": {{"enum": ["mlp", "cnn", "transformer", "random"]}}}}}},
                "seed": {{"type": "integer", "minimum": 0, "default": 1, "description": "of the initial parameters"}}}}}})",
           kNetworkName)),
       .output = facts,
       .errors = with(making),
       .access = on_network("create", {"grid:create"})},
      [networks, bytes_max](Context& call) {
        const std::string& name = call.input("network").string();
        networks->check_free(name);
        auto network = made_of(call.input(), bytes_max);
        Value answer = facts_of(name, *network);
        networks->add(name, std::make_unique<HeldNetwork>(std::move(network)));
        return answer;
      });
  add({.name = "load",
       .kind = Kind::mutation,
       .title = "load a network",
       .description = "Reads a checkpoint of a volumetric network and keeps it under a name.",
       .input = network_schema(R"("path": {"type": "string"})", R"(, "path")"),
       .output = facts,
       .errors = with(making),
       .access = on_network("create", {"grid:create", "files:read"})},
      [networks, options, bytes_max](Context& call) {
        const std::string &name = call.input("network").string(), &path = call.input("path").string();
        require_right(call, "weights", path, "read");
        networks->check_free(name);
        auto network = grid::load(allowed_path(options, path, false));
        if (const std::uint64_t bytes = parameter_bytes(network->description()); bytes > bytes_max)
          throw OperationError("NETWORK_TOO_LARGE",
                               fmt::format("its parameters have {} bytes; at most {} are allowed", bytes, bytes_max));
        Value answer = facts_of(name, *network);
        networks->add(name, std::make_unique<HeldNetwork>(std::move(network)));
        return answer;
      });
  on({.name = "save",
      .kind = Kind::mutation,
      .title = "save a network",
      .description = "Writes a checkpoint, a safetensors file, whole or not at all.",
      .input = network_schema(
          R"("path": {"type": "string"}, "keep_master": {"type": "boolean", "default": false, "description": "store f32 parameters, not those of the layers' types"})",
          R"(, "path")"),
      .errors = with({missing, making.back()}),
      .access = on_network("read", {"files:write"})},
     [options](Context& call, HeldNetwork& held) {
       const std::string& path = call.input("path").string();
       require_right(call, "weights", path, "write");
       grid::save(held.network(), allowed_path(options, path, true),
                  {.keep_master = call.input("keep_master").boolean()});
       return Value(Value::Object());
     });
  add({.name = "list",
       .title = "list networks",
       .description = "Names of the networks that the caller may read.",
       .input = schema_of(R"({"type": ["object", "null"]})"),
       .output = schema_of(
           R"({"type": "object", "properties": {"networks": {"type": "array", "items": {"type": "string"}}}})"),
       .access = {.scopes = {"grid:run"}}},
      [networks](Context& call) {
        return Value::object({{"networks", networks->names(call, "read")}});
      });
  on({.name = "describe",
      .title = "describe a network",
      .description = "The description of a network as data, its parameters and its sizes.",
      .input = network_schema(""),
      .output = facts,
      .errors = {missing},
      .access = on_network("read", {"grid:run"})},
     [](Context& call, HeldNetwork& held) {
       Value answer = facts_of(call.input("network").string(), held.network());
       answer.members().set("description", grid::to_value(held.network().description()));
       return answer;
     });
  add({.name = "remove",
       .kind = Kind::mutation,
       .title = "remove a network",
       .description = "Frees a network, once calls that use it have ended.",
       .input = network_schema(""),
       .errors = {missing},
       .access = on_network("create", {"grid:create"})},
      [networks](Context& call) {
        networks->remove(call.input("network").string());
        return Value(Value::Object());
      });
  on({.name = "forward",
      .title = "run a network",
      .description = "The output of a network for an input [batch, ...]; by a clock if ticks are given.",
      .input = network_schema(
          R"("x": {"x-tensor": true}, "ticks": {"type": "integer", "minimum": 0, "maximum": 1000000, "default": 0, "description": "of systolic mode; 0: an ordinary pass"})",
          R"(, "x")"),
      .output = schema_of(R"({"type": "object", "required": ["y"], "properties": {"y": {"x-tensor": true}}})"),
      .errors = with({missing}),
      .access = on_network("run", {"grid:run"})},
     [most = options.tensor_bytes_max](Context& call, HeldNetwork& held) {
       Tensor y = run_network(call.input(), held.network());
       check_size(y, most);
       // Computed before another call may change the parameters.
       return Value::object({{"y", y.eval()}});
     });
  on({.name = "train",
      .kind = Kind::subscription,
      .title = "train a network",
      .description = "Trains for some epochs; an answer after each. A caller that leaves ends the training, and what "
                     "was learnt stays.",
      .input =
          network_schema(fmt::format(
                             R"({}, "epochs": {{"type": "integer", "minimum": 1, "maximum": 1000000, "default": 10}},
                  "batch": {{"type": "integer", "minimum": 1, "maximum": 16777216, "default": 32}},
                  "seed": {{"type": "integer", "minimum": 0, "default": 1, "description": "of the order of the examples"}})",
                             kTrainingProperties),
                         R"(, "x", "y")"),
      .output = schema_of(
          R"({"type": "object", "required": ["epoch", "loss"], "properties": {"epoch": {"type": "integer"}, "loss": {"type": ["number", "null"]}, "seconds": {"type": "number"}}})"),
      .errors = with({missing}),
      .access = on_network("train", {"grid:train"})},
     [](Context& call, HeldNetwork& held) {
       train_network(call, held);
       return Value();
     });
  on({.name = "train_step",
      .kind = Kind::mutation,
      .title = "one step of training",
      .description = "One update with a batch, and the loss before it. The moments of Adam stay with the network.",
      .input = network_schema(kTrainingProperties, R"(, "x", "y")"),
      .output = schema_of(
          R"({"type": "object", "required": ["loss"], "properties": {"loss": {"type": ["number", "null"]}}})"),
      .errors = with({missing}),
      .access = on_network("train", {"grid:train"})},
     [](Context& call, HeldNetwork& held) {
       const double loss =
           held.step(examples_of(call.input()), call.input("loss").string(), call.input("learning_rate").number());
       return Value::object({{"loss", finite_or_null(loss)}});
     });
  on({.name = "reset_optimizer",
      .kind = Kind::mutation,
      .title = "reset the optimiser",
      .description = "Forgets the moments of Adam; the parameters stay.",
      .input = network_schema(""),
      .errors = {missing},
      .access = on_network("train", {"grid:train"})},
     [](Context&, HeldNetwork& held) {
       held.reset_optimizer();
       return Value(Value::Object());
     });
  on({.name = "morph",
      .kind = Kind::mutation,
      .title = "change the type of numbers",
      .description = "All layers see their parameters in this type from now on: one of 21, such as int8 or binary.",
      .input = network_schema(R"("dtype": {"type": "string"})", R"(, "dtype")"),
      .errors = with({missing}),
      .access = on_network("train", {"grid:train"})},
     [](Context& call, HeldNetwork& held) {
       held.network().morph(grid::number_type(call.input("dtype").string()));
       return Value(Value::Object());
     });
  on({.name = "read_parameters",
      .title = "read parameters",
      .description = "The f32 parameters by their dotted names.",
      .input = network_schema(R"("names": {"type": "array", "items": {"type": "string"}})"),
      .output = schema_of(
          R"({"type": "object", "required": ["parameters"], "properties": {"parameters": {"type": "object", "additionalProperties": {"x-tensor": {"dtypes": ["f32"]}}}}})"),
      .errors = with({missing}),
      .access = on_network("read", {"grid:run"})},
     [](Context& call, HeldNetwork& held) { return read_parameters(call.input(), held.network()); });
  on({.name = "write_parameters",
      .kind = Kind::mutation,
      .title = "write parameters",
      .description = "Sets parameters by their dotted names, all or none; the moments of Adam stay.",
      .input = network_schema(
          R"("parameters": {"type": "object", "minProperties": 1, "additionalProperties": {"x-tensor": true}})",
          R"(, "parameters")"),
      .errors = with({missing}),
      .access = on_network("train", {"grid:train"})},
     [](Context& call, HeldNetwork& held) {
       write_parameters(call.input("parameters"), held.network());
       return Value(Value::Object());
     });
  add_evolution_operations(registry, networks, options);
}

}  // namespace weft::operations
