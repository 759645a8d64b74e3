// Evolution of volumetric networks as operations: what they have in common, and new networks of them.
#include <fmt/format.h>

#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/held_networks.hpp"
#include "weft/evolve.hpp"

namespace weft::operations {
namespace {

constexpr const char* kMutationSchema = R"({"type": "object", "additionalProperties": false, "properties": {
  "weights": {"type": "number"}, "amount": {"type": "number"}, "activation": {"type": "number"}, "node": {"type": "number"},
  "toggle": {"type": "number"}, "add_link": {"type": "number"}, "drop_link": {"type": "number"},
  "width": {"type": "integer", "minimum": 0}, "seed": {"type": "integer", "minimum": 0}}})";
constexpr const char* kSpliceSchema = R"({"type": "object", "additionalProperties": false, "properties": {
  "mode": {"enum": ["blend", "point", "uniform"]}, "split_ratio": {"type": "number"}, "blend_alpha": {"type": "number"},
  "fitness_a": {"type": "number"}, "fitness_b": {"type": "number"}, "seed": {"type": "integer", "minimum": 0}}})";

/// A copy of a network, so that long work keeps nobody waiting. The caller needs the right to read it.
std::unique_ptr<grid::Network> copy_of(Context& call, const Networks& networks, const char* member) {
  const std::string& name = call.input(member).string();
  require_right(call, "network", name, "read");
  return networks.find(name)->use(call,
                                  [](const std::unique_ptr<HeldNetwork>& held) { return held->network().clone(); });
}

Value options_of(const Context& call) {
  const Value* given = call.input().find("options");
  return given ? *given : Value();
}

void evolve_network(Context& call, Networks& networks) {
  const Value& input = call.input();
  const std::string& name = input["network"].string();
  networks.check_free(name);
  const auto ancestor = copy_of(call, networks, "ancestor");
  const train::Examples examples = examples_of(input);
  const train::Loss loss = train::loss_named(input["loss"].string());
  evolve::PopulationOptions options{.size = static_cast<std::size_t>(input["size"].integer()),
                                    .seed = input["seed"].unsigned_integer()};
  if (const Value* mutation = input.find("mutation")) options.mutation = evolve::mutation_options(*mutation);
  if (const Value* splice = input.find("splice")) options.splice = evolve::splice_options(*splice);
  ancestor->eval();
  evolve::Population population(*ancestor, options);
  for (std::int64_t i = 0; i < input["generations"].integer(); ++i) {
    call.emit(evolve::to_value(population.evolve([&](const grid::Network& network) {
      call.check();
      return -static_cast<double>(loss(network(examples.x), examples.y).item<float>());
    })));
  }
  networks.add(name, std::make_unique<HeldNetwork>(population.best().clone()));
}

}  // namespace

void add_evolution_operations(Registry& registry, const std::shared_ptr<Networks>& networks, const CatalogueOptions&) {
  std::vector<DeclaredError> errors = {{"NETWORK_NOT_FOUND", "there is no such network", true, 404},
                                       {"NETWORK_EXISTS", "the name is taken", true, 409},
                                       {"NETWORK_LIMIT", "as many networks are held as there may be", true, 429}};
  errors.insert(errors.end(), engine_errors().begin(), engine_errors().end());
  const auto add = [&](Specification specification, std::function<Value(Context&)> run) {
    specification.space = "grid";
    specification.errors = errors;
    registry.add(std::move(specification),
                 [run = std::move(run)](Context& call) { return with_codes([&] { return run(call); }); });
  };
  // Access to the network that an input's member names; handlers check the others.
  const auto access = [](const char* member, const char* action, const char* scope) {
    return Access{.scopes = {scope}, .resource_type = "network", .resource_action = action, .resource_input = member};
  };
  const auto schema = [](std::string_view required, std::string_view properties) {
    return schema_of(
        fmt::format(R"({{"type": "object", "required": [{}], "additionalProperties": false, "properties": {{{}}}}})",
                    required, properties));
  };
  const std::string name = kNetworkName;

  add({.name = "dna",
       .title = "the DNA of a network",
       .description = "The direction of each layer's parameters, as the pass sees them.",
       .input = schema(R"("network")", R"("network": )" + name),
       .output = schema_of(
           R"({"type": "object", "required": ["layers"], "properties": {"layers": {"type": "array", "items": {"type": "object",
                "properties": {"at": {"type": "string"}, "type": {"type": "string"}, "dtype": {"type": "string"}, "direction": {"x-tensor": {"dtypes": ["f32"]}}}}}}})"),
       .access = access("network", "read", "grid:run")},
      [networks](Context& call) {
        const auto network = copy_of(call, *networks, "network");
        return Value::object({{"layers", evolve::to_value(evolve::extract_dna(*network))}});
      });
  add({.name = "compare",
       .title = "compare two networks",
       .description = "How alike two networks are, place by place, and which layers have moved.",
       .input = schema(R"("a", "b")", R"("a": )" + name + R"(, "b": )" + name +
                                          R"(, "shift_above": {"type": "number", "default": 0.8})"),
       .output = schema_of(
           R"({"type": "object", "required": ["overall", "layers", "shifts"], "properties": {"overall": {"type": "number"}, "layers": {"type": "array", "items": {"type": "object"}}, "shifts": {"type": "array", "items": {"type": "object"}}}})"),
       .access = access("a", "read", "grid:run")},
      [networks](Context& call) {
        const auto a = copy_of(call, *networks, "a"), b = copy_of(call, *networks, "b");
        return evolve::to_value(
            evolve::compare(evolve::extract_dna(*a), evolve::extract_dna(*b), call.input("shift_above").number()));
      });
  add({.name = "splice",
       .kind = Kind::mutation,
       .title = "splice two networks",
       .description = "A new network with parameters of two parents, which stay as they are.",
       .input = schema(R"("network", "a", "b")", R"("network": )" + name + R"(, "a": )" + name + R"(, "b": )" + name +
                                                     R"(, "options": )" + kSpliceSchema),
       .output = schema_of(
           R"({"type": "object", "required": ["spliced", "similar", "similarities"], "properties": {"spliced": {"type": "integer"}, "similar": {"type": "integer"}, "similarities": {"type": "array", "items": {"type": "object"}}}})"),
       .access = access("network", "create", "grid:create")},
      [networks](Context& call) {
        const std::string& made = call.input("network").string();
        networks->check_free(made);
        const auto a = copy_of(call, *networks, "a"), b = copy_of(call, *networks, "b");
        evolve::Splice splice = evolve::splice_with_report(*a, *b, evolve::splice_options(options_of(call)));
        Value report = evolve::to_value(splice);
        networks->add(made, std::make_unique<HeldNetwork>(std::move(splice.child)));
        return report;
      });
  add({.name = "mutate",
       .kind = Kind::mutation,
       .title = "mutate a network",
       .description =
           "A new network with changed weights, activations, types of layers and links; valid for the same input.",
       .input = schema(R"("network", "ancestor")",
                       R"("network": )" + name + R"(, "ancestor": )" + name + R"(, "options": )" + kMutationSchema),
       .access = access("network", "create", "grid:create")},
      [networks](Context& call) {
        const std::string& made = call.input("network").string();
        networks->check_free(made);
        const auto ancestor = copy_of(call, *networks, "ancestor");
        networks->add(
            made, std::make_unique<HeldNetwork>(evolve::mutate(*ancestor, evolve::mutation_options(options_of(call)))));
        return Value::object({{"network", made}});
      });
  add({.name = "evolve",
       .kind = Kind::subscription,
       .title = "evolve a population",
       .description = "Evolves mutants of a network on examples; an answer after each generation. The best network is "
                      "kept under the new "
                      "name at the end.",
       .input = schema(R"("network", "ancestor", "x", "y")", R"("network": )" + name + R"(, "ancestor": )" + name +
                                                                 R"(, "x": {"x-tensor": true}, "y": {"x-tensor": true},
                           "loss": {"enum": ["mse", "cross_entropy"], "default": "mse"},
                           "generations": {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 20},
                           "size": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 16},
                           "seed": {"type": "integer", "minimum": 0, "default": 1}, "mutation": )" +
                                                                 kMutationSchema + R"(, "splice": )" + kSpliceSchema),
       .output = schema_of(
           R"({"type": "object", "required": ["generation", "best"], "properties": {"generation": {"type": "integer"}, "best": {"type": ["number", "null"], "description": "minus the loss"}, "mean": {"type": ["number", "null"]}, "worst": {"type": ["number", "null"]}}})"),
       .access = access("network", "create", "grid:create")},
      [networks](Context& call) {
        evolve_network(call, *networks);
        return Value();
      });
}

}  // namespace weft::operations
