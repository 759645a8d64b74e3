// grid: volumetric networks of descriptions as modules, their modes, and their evolution.
#include <fmt/format.h>

#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/media.hpp"
#include "script/modules.hpp"
#include "weft/evolve.hpp"
#include "weft/grid.hpp"

namespace weft::script {
namespace {

using SharedNetwork = std::shared_ptr<grid::Network>;

// ---- Networks -------------------------------------------------------------------------------------------------------------------

Local wrap_network(Engine& engine, SharedNetwork network) {
  grid::Network* const raw = network.get();
  return wrap(engine, std::move(network), [raw](Engine& e, Arguments arguments) {
    e.count_work();
    return e.make((*raw)(e.tensor(at(arguments, 0), "grid: the input")));
  });
}

SharedNetwork network_at(Engine& engine, Arguments arguments, std::size_t i, const char* function) {
  const ModuleHandle* const handle = module_handle(engine, at(arguments, i));
  auto network = handle ? std::dynamic_pointer_cast<grid::Network>(handle->module) : nullptr;
  if (!network)
    Engine::refuse(function,
                   fmt::format("argument {} is {}, not a network of grid", i, inspect(engine, at(arguments, i))));
  return network;
}

// network(description): a module.
Local make_network(Engine& engine, JSValueConst, Arguments arguments) {
  return wrap_network(engine, std::make_shared<grid::Network>(grid::from_value(value_from(engine, at(arguments, 0)))));
}
// build(kind, options): a description.
Local build(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, grid::to_value(grid::build(engine.text(at(arguments, 0)), options_at(engine, arguments, 1))));
}
// mlp(widths, activation): a module.
Local mlp(Engine& engine, JSValueConst, Arguments arguments) {
  Value::Object options{{"widths", value_from(engine, at(arguments, 0))}};
  if (!JS_IsUndefined(at(arguments, 1))) options.set("activation", engine.text(arguments[1]));
  return wrap_network(engine, std::make_shared<grid::Network>(grid::build("mlp", std::move(options))));
}
Local describe(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, grid::to_value(network_at(engine, arguments, 0, "grid.describe")->description()));
}
// morph(network, dtype, [z, y, x, layer])
Local morph(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork network = network_at(engine, arguments, 0, "grid.morph");
  const DType type = grid::number_type(engine.text(at(arguments, 1)));
  if (JS_IsUndefined(at(arguments, 2))) {
    network->morph(type);
    return {};
  }
  const std::vector<Extent> place = engine.extents(arguments[2], "grid.morph: the place");
  if (place.size() != 4) Engine::refuse("grid.morph", "a place is four numbers: z, y, x, layer");
  network->morph({place[0], place[1], place[2], place[3]}, type);
  return {};
}
Local memory(Engine& engine, JSValueConst, Arguments arguments) {
  const grid::Memory m = network_at(engine, arguments, 0, "grid.memory")->memory();
  return value_to(
      engine,
      Value::object({{"parameters", m.parameters}, {"masterBytes", m.master_bytes}, {"packedBytes", m.packed_bytes}}));
}
Local clone(Engine& engine, JSValueConst, Arguments arguments) {
  return wrap_network(engine, SharedNetwork(network_at(engine, arguments, 0, "grid.clone")->clone()));
}
// pass(network, x): {output, layers: [{path, input, before, after}]}
Local pass(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork network = network_at(engine, arguments, 0, "grid.pass");
  engine.count_work();
  const grid::Pass made = network->pass(engine.tensor(at(arguments, 1), "grid.pass: the input"));
  Local layers = engine.array();
  std::uint32_t i = 0;
  for (const grid::LayerPass& each : made.layers) {
    Local layer = engine.object();
    engine.set(layer.get(), "path", engine.string(each.path));
    engine.set(layer.get(), "input", engine.make(each.input));
    engine.set(layer.get(), "before", engine.make(each.before));
    engine.set(layer.get(), "after", engine.make(each.after));
    engine.set(layers.get(), i++, std::move(layer));
  }
  Local object = engine.object();
  engine.set(object.get(), "output", engine.make(made.output));
  engine.set(object.get(), "layers", std::move(layers));
  return object;
}

// save(network, path, {keepMaster}), load(path)
Local save_network(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork network = network_at(engine, arguments, 0, "grid.save");
  Options options(engine, at(arguments, 2), "grid.save");
  const bool keep_master = options.boolean("keepMaster", false);
  options.finish();
  engine.files->save(engine.text(at(arguments, 1)), [&](const std::filesystem::path& file) {
    grid::save(*network, file, {.keep_master = keep_master});
  });
  return {};
}
Local load_network(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  return wrap_network(engine, SharedNetwork(grid::load(file.path())));
}

// ---- Modes: objects that work on a network, and keep it -------------------------------------------------------------------------

/// A systolic mesh, a stream, target propagation, or a population.
struct GridHandle final : Handle {
  GridHandle(Engine& engine, std::string_view name, SharedNetwork network)
      : Handle(engine), name(name), network(std::move(network)) {}
  std::string_view kind() const override { return name; }
  std::string_view name;
  SharedNetwork network;
  std::unique_ptr<grid::Systolic> mesh;
  std::unique_ptr<grid::Stream> stream;
  std::unique_ptr<grid::TargetPropagation> propagation;
  std::unique_ptr<evolve::Population> population;
};

GridHandle& self_of(Engine& engine, JSValueConst self) {
  auto* const handle = static_cast<GridHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.grid_class)));
  if (!handle)
    Engine::refuse("grid", inspect(engine, self) + " is none of a mesh, stream, target propagation or population");
  return *handle;
}
template <class Part>
Part& part_of(const std::unique_ptr<Part>& part, const GridHandle& handle, const char* method) {
  if (!part) Engine::refuse("grid", fmt::format("a {} has no method {}", handle.name, method));
  return *part;
}
std::pair<Local, GridHandle*> make_handle(Engine& engine, std::string_view name, SharedNetwork network) {
  engine.check_handles();
  Local made = engine.checked(JS_NewObjectClass(engine.context, static_cast<int>(engine.grid_class)));
  auto* const handle = new GridHandle(engine, name, std::move(network));
  JS_SetOpaque(made.get(), static_cast<Handle*>(handle));
  return {std::move(made), handle};
}
Local tensor_or_null(Engine& engine, const Tensor& tensor) {
  return tensor.defined() ? engine.make(tensor) : Local(engine.context, JS_NULL);
}

// systolic(network, {keepsGradients}): setInput(x), ticks(count), output()
Local systolic(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "grid.systolic");
  const bool keeps = options.boolean("keepsGradients", false);
  options.finish();
  auto [made, handle] = make_handle(engine, "systolic mesh", network_at(engine, arguments, 0, "grid.systolic"));
  handle->mesh = std::make_unique<grid::Systolic>(*handle->network, grid::Systolic::Options{.keeps_gradients = keeps});
  return std::move(made);
}
Local set_input(Engine& engine, JSValueConst self, Arguments arguments) {
  GridHandle& handle = self_of(engine, self);
  part_of(handle.mesh, handle, "setInput").set_input(engine.tensor(at(arguments, 0), "setInput: the input"));
  return {};
}
Local ticks(Engine& engine, JSValueConst self, Arguments arguments) {
  GridHandle& handle = self_of(engine, self);
  grid::Systolic& mesh = part_of(handle.mesh, handle, "ticks");
  const Extent count = JS_IsUndefined(at(arguments, 0)) ? 1 : engine.integer(arguments[0], "ticks: the number");
  if (count < 1 || count > 1'000'000)
    Engine::refuse("ticks", fmt::format("{} ticks; 1 to 1000000 are possible", count));
  for (Extent i = 0; i < count; ++i) {
    engine.count_work();
    mesh.tick();
  }
  return {};
}
Local output(Engine& engine, JSValueConst self, Arguments) {
  GridHandle& handle = self_of(engine, self);
  return tensor_or_null(engine, part_of(handle.mesh, handle, "output").output());
}

// stream(network): next(x)
Local stream(Engine& engine, JSValueConst, Arguments arguments) {
  auto [made, handle] = make_handle(engine, "stream", network_at(engine, arguments, 0, "grid.stream"));
  handle->stream = std::make_unique<grid::Stream>(*handle->network);
  return std::move(made);
}
Local next_steps(Engine& engine, JSValueConst self, Arguments arguments) {
  GridHandle& handle = self_of(engine, self);
  engine.count_work();
  return engine.make(part_of(handle.stream, handle, "next").next(engine.tensor(at(arguments, 0), "next: the steps")));
}

// targetPropagation(network, {mode, gradientScale, learningRate, budgetMin}): step(x, target)
Local target_propagation(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "grid.targetPropagation");
  grid::TargetOptions o;
  const std::string mode = options.text("mode", "chain_rule");
  if (mode != "chain_rule" && mode != "gap") Engine::refuse("grid.targetPropagation", "the mode is chain_rule or gap");
  o.mode = mode == "gap" ? grid::TargetMode::gap : grid::TargetMode::chain_rule;
  options.read("gradientScale", o.gradient_scale).read("learningRate", o.learning_rate).read("budgetMin", o.budget_min);
  options.finish();
  auto [made, handle] =
      make_handle(engine, "target propagation", network_at(engine, arguments, 0, "grid.targetPropagation"));
  handle->propagation = std::make_unique<grid::TargetPropagation>(*handle->network, o);
  return std::move(made);
}
// A list of {path, target, budget, gap}. The input may be a mesh.
Local step_targets(Engine& engine, JSValueConst self, Arguments arguments) {
  GridHandle& handle = self_of(engine, self);
  grid::TargetPropagation& propagation = part_of(handle.propagation, handle, "step");
  engine.count_work();
  const Tensor target = engine.tensor(at(arguments, 1), "step: the target");
  const auto* const mesh =
      static_cast<GridHandle*>(static_cast<Handle*>(JS_GetOpaque(at(arguments, 0), engine.grid_class)));
  const std::vector<grid::LinkState> states =
      mesh ? propagation.step(part_of(mesh->mesh, *mesh, "output"), target)
           : propagation.step(engine.tensor(at(arguments, 0), "step: the input"), target);
  Local list = engine.array();
  std::uint32_t i = 0;
  for (const grid::LinkState& each : states) {
    Local state = engine.object();
    engine.set(state.get(), "path", engine.string(each.path));
    engine.set(state.get(), "target", tensor_or_null(engine, each.target));
    engine.set(state.get(), "budget", tensor_or_null(engine, each.budget));
    engine.set(state.get(), "gap", tensor_or_null(engine, each.gap));
    engine.set(list.get(), i++, std::move(state));
  }
  return list;
}

// ---- Evolution ------------------------------------------------------------------------------------------------------------------

Local dna(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, evolve::to_value(evolve::extract_dna(*network_at(engine, arguments, 0, "grid.dna"))));
}
Local compare(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork a = network_at(engine, arguments, 0, "grid.compare"),
                      b = network_at(engine, arguments, 1, "grid.compare");
  const double above = JS_IsUndefined(at(arguments, 2)) ? 0.8 : engine.number(arguments[2], "grid.compare: shiftAbove");
  return value_to(engine, evolve::to_value(evolve::compare(evolve::extract_dna(*a), evolve::extract_dna(*b), above)));
}
Local splice(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork a = network_at(engine, arguments, 0, "grid.splice"),
                      b = network_at(engine, arguments, 1, "grid.splice");
  return wrap_network(engine,
                      SharedNetwork(evolve::splice(*a, *b, evolve::splice_options(options_at(engine, arguments, 2)))));
}
Local mutate(Engine& engine, JSValueConst, Arguments arguments) {
  const SharedNetwork network = network_at(engine, arguments, 0, "grid.mutate");
  return wrap_network(
      engine, SharedNetwork(evolve::mutate(*network, evolve::mutation_options(options_at(engine, arguments, 1)))));
}

// population(network, {size, seed, mutation, splice}): evolve(fitness), best()
Local population(Engine& engine, JSValueConst, Arguments arguments) {
  auto [made, handle] = make_handle(engine, "population", network_at(engine, arguments, 0, "grid.population"));
  const evolve::PopulationOptions options = evolve::population_options(options_at(engine, arguments, 1));
  const std::uint64_t bytes = handle->network->memory().master_bytes, most = engine.options.device_memory_limit;
  if (most && (bytes > most || options.size > most / std::max<std::uint64_t>(bytes, 1)))
    Engine::refuse("grid.population", fmt::format("{} networks of {} bytes exceed the limit of {} on device memory",
                                                  options.size, bytes, most));
  handle->population = std::make_unique<evolve::Population>(*handle->network, options);
  return std::move(made);
}
Local evolve_population(Engine& engine, JSValueConst self, Arguments arguments) {
  GridHandle& handle = self_of(engine, self);
  evolve::Population& population = part_of(handle.population, handle, "evolve");
  const JSValueConst fitness = at(arguments, 0);
  if (!JS_IsFunction(engine.context, fitness))
    Engine::refuse("evolve", "the fitness is " + inspect(engine, fitness) + ", not a function of a network");
  const Local held(engine.context, JS_DupValue(engine.context, self));  // the function may drop it
  return value_to(engine, evolve::to_value(population.evolve([&](const grid::Network& network) {
                    // The script gets a network of its own, which it may keep.
                    const Local own = wrap_network(engine, SharedNetwork(network.clone()));
                    const Local result = engine.call(fitness, JS_UNDEFINED, {own.get()});
                    return engine.number(result.get(), "evolve: the fitness");
                  })));
}
Local best_of(Engine& engine, JSValueConst self, Arguments) {
  GridHandle& handle = self_of(engine, self);
  return wrap_network(engine, SharedNetwork(part_of(handle.population, handle, "best").best().clone()));
}

}  // namespace

void define_grid(Engine& engine) {
  const Local prototype = engine.make_class(engine.grid_class, "Grid");
  const JSValueConst p = prototype.get();
  engine.method(p, "setInput", native<set_input>, 1);
  engine.method(p, "ticks", native<ticks>, 1);
  engine.method(p, "output", native<output>, 0);
  engine.method(p, "next", native<next_steps>, 1);
  engine.method(p, "step", native<step_targets>, 2);
  engine.method(p, "evolve", native<evolve_population>, 1);
  engine.method(p, "best", native<best_of>, 0);
  Local space = engine.object();
  const JSValueConst g = space.get();
  engine.method(g, "network", native<make_network>, 1);
  engine.method(g, "build", native<build>, 2);
  engine.method(g, "mlp", native<mlp>, 2);
  engine.method(g, "describe", native<describe>, 1);
  engine.method(g, "morph", native<morph>, 2);
  engine.method(g, "memory", native<memory>, 1);
  engine.method(g, "clone", native<clone>, 1);
  engine.method(g, "pass", native<pass>, 2);
  engine.method(g, "save", native<save_network>, 2);
  engine.method(g, "load", native<load_network>, 1);
  engine.method(g, "systolic", native<systolic>, 1);
  engine.method(g, "stream", native<stream>, 1);
  engine.method(g, "targetPropagation", native<target_propagation>, 1);
  engine.method(g, "dna", native<dna>, 1);
  engine.method(g, "compare", native<compare>, 2);
  engine.method(g, "splice", native<splice>, 2);
  engine.method(g, "mutate", native<mutate>, 1);
  engine.method(g, "population", native<population>, 1);
  engine.checked(JS_FreezeObject(engine.context, g));
  add_export(engine, "grid", std::move(space));
}

}  // namespace weft::script
