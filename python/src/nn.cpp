// What modules of Python share with those of C++: initial values, the mode of training, and the routing of experts.
#include <fmt/format.h>

#include <atomic>

#include "graph/node.hpp"
#include "graph/trace_scope.hpp"
#include "handle.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"
#include "weft/nn/init.hpp"
#include "weft/nn/mixture.hpp"
#include "weft/ops.hpp"

namespace weft::python {
namespace {

// Whether a module trains: a compiled function that reads it is traced once for each value.
struct Switch {
  std::shared_ptr<std::atomic<bool>> on;
};

}  // namespace

void bind_nn(nb::module_& m) {
  nb::class_<Switch>(m, "_Switch")
      .def("__init__", [](Switch* self, bool on) { new (self) Switch{std::make_shared<std::atomic<bool>>(on)}; })
      .def("read",
           [](const Switch& self) {
             const bool value = *self.on;
             if (auto* scope = graph::TraceScope::current()) scope->note(self.on, value);
             return value;
           })
      .def("set", [](const Switch& self, bool on) { *self.on = on; });
  m.def("_generator_seed", [] {
    const nb::gil_scoped_release free;
    // While a function is traced nothing may be evaluated; the seed is in memory, unless it was set a moment ago.
    if (graph::TraceScope::current())
      if (const graph::NodeRef node = graph::committed_of(*random_state().cell())) {
        std::uint32_t state[2];
        runtime::backend_of(node->device).download(*runtime::buffer_of(*node), 0, 2, DType::u32, state);
        return state[0];
      }
    return random_state().value().to_vector<std::uint32_t>().at(0);
  });
  m.def("_draw", [](const std::string& kind, double a, double b, std::vector<Extent> shape, std::uint64_t seed,
                    const std::string& name) {
    const nn::Init init = kind == "normal"    ? nn::Init::normal(b, a)
                          : kind == "uniform" ? nn::Init::uniform(a, b)
                                              : nn::Init::constant(a);
    for (const Extent extent : shape)
      if (extent < 0) throw ShapeError(fmt::format("parameter \"{}\": the negative extent {}", name, extent));
    const Shape extents(std::move(shape));
    const nb::gil_scoped_release free;
    const std::vector<float> values = nn::draw(init, extents.numel(), seed, name);
    Tensor made = tensor_from_bytes(values.data(), extents, DType::f32);
    const nb::gil_scoped_acquire again;
    return wrapped(made);
  });
  m.def(
      "_route",
      [](nb::object scores, Extent top_k) {
        const nn::Routing r = nn::route(value_from(scores.ptr(), "route"), top_k);
        return nb::make_tuple(wrapped(r.weights), wrapped(r.experts), wrapped(r.ends), wrapped(r.order),
                              wrapped(r.probabilities));
      },
      nb::arg("scores"), nb::arg("top_k"));
  m.def(
      "_balance_loss",
      [](nb::args routing) {
        const std::vector<Tensor> r = values_from(routing.ptr(), "balance_loss");
        if (r.size() != 5) throw UsageError("balance_loss: takes what route() gives");
        return wrapped(nn::balance_loss({r[0], r[1], r[2], r[3], r[4]}));
      },
      nb::arg("routing"), nb::sig("def _balance_loss(*routing: Tensor) -> Tensor"));
}

}  // namespace weft::python
