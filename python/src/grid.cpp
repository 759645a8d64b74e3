// Volumetric networks and their evolution.
#include "weft/grid.hpp"

#include <filesystem>

#include "callable.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/shared_ptr.h"
#include "values.hpp"
#include "weft/error.hpp"
#include "weft/evolve.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;
using SharedNetwork = std::shared_ptr<grid::Network>;

grid::Coordinate coordinate_from(const nb::object& place) {
  const std::vector<Extent> numbers = integers_from(place.ptr());
  if (numbers.size() != 4) throw UsageError("a place in the grid is four numbers: z, y, x, layer");
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

nb::list states_of(const std::vector<grid::LinkState>& states) {
  nb::list list;
  for (const grid::LinkState& each : states)
    list.append(nb::make_tuple(each.path, wrapped_or_none(each.target), wrapped_or_none(each.budget),
                               wrapped_or_none(each.gap)));
  return list;
}

grid::TargetMode target_mode(const std::string& name) {
  if (name == "chain_rule") return grid::TargetMode::chain_rule;
  if (name == "gap") return grid::TargetMode::gap;
  throw UsageError("target propagation: the mode is chain_rule or gap, not " + name);
}

// Objects that work on a network keep it.
struct Mesh {
  SharedNetwork network;
  grid::Systolic state;
  Mesh(SharedNetwork of, bool keeps_gradients)
      : network(std::move(of)), state(*network, {.keeps_gradients = keeps_gradients}) {}
};
struct PartByPart {
  SharedNetwork network;
  grid::Stream stream;
  explicit PartByPart(SharedNetwork of) : network(std::move(of)), stream(*network) {}
};
struct Targets {
  SharedNetwork network;
  grid::TargetPropagation propagation;
  Targets(SharedNetwork of, const grid::TargetOptions& options)
      : network(std::move(of)), propagation(*network, options) {}
};

void bind_network(nb::module_& m) {
  nb::class_<grid::Network>(m, "_GridNetwork")
      .def("__call__", [](const grid::Network& self,
                          nb::object x) { return wrapped(self(value_from(x.ptr(), "grid: the input"))); })
      .def("run_pass",
           [](const grid::Network& self, nb::object x) {
             const grid::Pass pass = self.pass(value_from(x.ptr(), "grid: the input"));
             nb::list layers;
             for (const grid::LayerPass& each : pass.layers)
               layers.append(nb::make_tuple(each.path, wrapped(each.input), wrapped(each.before), wrapped(each.after)));
             return nb::make_tuple(wrapped(pass.output), layers);
           })
      .def("description", [](const grid::Network& self) { return object_of(grid::to_value(self.description())); })
      .def("describe", &grid::Network::describe)
      .def("named_parameters",
           [](const grid::Network& self) {
             nb::list list;
             for (const nn::NamedParameter& each : self.named_parameters())
               list.append(nb::make_tuple(each.name, wrap_variable(each.variable), each.decay));
             return list;
           })
      .def("initialize", [](grid::Network& self, std::uint64_t seed) { self.initialize(seed); })
      .def("train", [](grid::Network& self, bool on) { self.train(on); })
      .def("clone", [](const grid::Network& self) { return SharedNetwork(self.clone()); })
      .def(
          "morph",
          [](grid::Network& self, const std::string& type, nb::object at) {
            if (at.is_none())
              self.morph(grid::number_type(type));
            else
              self.morph(coordinate_from(at), grid::number_type(type));
          },
          nb::arg("type"), nb::arg("at").none())
      .def("set_disabled",
           [](grid::Network& self, nb::object at, bool disabled) { self.set_disabled(coordinate_from(at), disabled); })
      .def("set_activation",
           [](grid::Network& self, nb::object at, const std::string& name) {
             self.set_activation(coordinate_from(at), grid::activation(name));
           })
      .def("memory",
           [](const grid::Network& self) {
             const grid::Memory memory = self.memory();
             return nb::make_tuple(memory.parameters, memory.master_bytes, memory.packed_bytes);
           })
      .def("save",
           [](const grid::Network& self, const Path& path, bool keep_master) {
             const nb::gil_scoped_release free;
             grid::save(self, path, {.keep_master = keep_master});
           })
      .def("time_layers", [](const grid::Network& self, nb::object x, int repeats) {
        const Tensor value = value_from(x.ptr(), "grid: the input");
        const std::vector<grid::LayerTime> times = without_gil([&] { return grid::time_layers(self, value, repeats); });
        nb::list list;
        for (const grid::LayerTime& each : times)
          list.append(nb::make_tuple(each.path, std::string(grid::name_of(each.type)), each.seconds));
        return list;
      });
  m.def("_make_grid", [](nb::object description) {
    return std::make_shared<grid::Network>(grid::from_value(value_of(description.ptr())));
  });
  m.def("_load_grid", [](const Path& path) {
    const nb::gil_scoped_release free;
    return SharedNetwork(grid::load(path));
  });
  m.def("_grid_description", [](const std::string& kind, const nb::dict& options) {
    return object_of(grid::to_value(grid::build(kind, value_of(options.ptr()))));
  });
}

void bind_modes(nb::module_& m) {
  nb::class_<Mesh>(m, "_Systolic")
      .def(nb::init<SharedNetwork, bool>())
      .def("set_input", [](Mesh& self, nb::object x) { self.state.set_input(value_from(x.ptr(), "the input")); })
      .def("ticks",
           [](Mesh& self, int count) {
             const nb::gil_scoped_release free;
             self.state.ticks(count);
           })
      .def(
          "output",
          [](const Mesh& self, nb::object at) {
            return wrapped_or_none(at.is_none() ? self.state.output() : self.state.output(coordinate_from(at)));
          },
          nb::arg("at").none())
      .def("tick_count", [](const Mesh& self) { return self.state.tick_count(); })
      .def("reset", [](Mesh& self) { self.state.reset(); });
  nb::class_<PartByPart>(m, "_GridStream")
      .def(nb::init<SharedNetwork>())
      .def("next",
           [](PartByPart& self, nb::object x) {
             const Tensor value = value_from(x.ptr(), "the next steps");
             const Tensor y = without_gil([&] { return self.stream.next(value); });
             return wrapped(y);
           })
      .def("reset", [](PartByPart& self) { self.stream.reset(); });
  nb::class_<Targets>(m, "_TargetPropagation")
      .def("__init__",
           [](Targets* self, SharedNetwork network, const std::string& mode, double gradient_scale,
              double learning_rate, double budget_min) {
             new (self) Targets(std::move(network), {.mode = target_mode(mode),
                                                     .gradient_scale = gradient_scale,
                                                     .learning_rate = learning_rate,
                                                     .budget_min = budget_min});
           })
      .def("step",
           [](Targets& self, nb::object x, nb::object target) {
             return states_of(
                 self.propagation.step(value_from(x.ptr(), "the input"), value_from(target.ptr(), "the target")));
           })
      .def("step_mesh", [](Targets& self, const Mesh& mesh, nb::object target) {
        return states_of(self.propagation.step(mesh.state, value_from(target.ptr(), "the target")));
      });
}

// A population whose fitness is a function of Python over networks.
struct PythonPopulation {
  evolve::Population population;
  PythonPopulation(const grid::Network& ancestor, const evolve::PopulationOptions& options)
      : population(ancestor, options) {}
  PythonPopulation(const PythonPopulation&) = delete;  // networks are not copied
};

void bind_evolution(nb::module_& m) {
  m.def("_grid_dna",
        [](const grid::Network& network) { return object_of(evolve::to_value(evolve::extract_dna(network))); });
  m.def("_grid_compare", [](const grid::Network& a, const grid::Network& b, double shift_above) {
    return object_of(evolve::to_value(evolve::compare(evolve::extract_dna(a), evolve::extract_dna(b), shift_above)));
  });
  m.def("_grid_splice", [](const grid::Network& a, const grid::Network& b, const nb::dict& options) {
    evolve::Splice splice = evolve::splice_with_report(a, b, evolve::splice_options(value_of(options.ptr())));
    const nb::object report = object_of(evolve::to_value(splice));
    return nb::make_tuple(SharedNetwork(std::move(splice.child)), report);
  });
  m.def("_grid_mutate", [](const grid::Network& network, const nb::dict& options) {
    return SharedNetwork(evolve::mutate(network, evolve::mutation_options(value_of(options.ptr()))));
  });
  nb::class_<PythonPopulation>(m, "_Population")
      .def("__init__",
           [](PythonPopulation* self, const grid::Network& ancestor, const nb::dict& options) {
             new (self) PythonPopulation(ancestor, evolve::population_options(value_of(options.ptr())));
           })
      .def("evolve",
           [](PythonPopulation& self, nb::object fitness) {
             const evolve::Generation generation = self.population.evolve([&](const grid::Network& network) {
               if (PyErr_CheckSignals() != 0) raise();
               // The function gets a network of its own, which it may keep.
               return nb::cast<double>(fitness(SharedNetwork(network.clone())));
             });
             return object_of(evolve::to_value(generation));
           })
      .def("best", [](const PythonPopulation& self) { return SharedNetwork(self.population.best().clone()); })
      .def("members", [](const PythonPopulation& self) {
        nb::list list;
        for (const auto& each : self.population.members()) list.append(SharedNetwork(each->clone()));
        return list;
      });
}

}  // namespace

void bind_grid(nb::module_& m) {
  bind_network(m);
  bind_modes(m);
  bind_evolution(m);
}

}  // namespace weft::python
