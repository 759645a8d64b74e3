#include "weft/evolve/grafting.hpp"

#include <fmt/format.h>

#include "evolve/layer_weights.hpp"
#include "weft/grid/builders.hpp"

namespace weft::evolve {
namespace {

bool holds_link(const grid::Layer& layer) {
  for (const auto* inside : {&layer.children, &layer.gate})
    for (const grid::Layer& child : *inside)
      if (child.link || holds_link(child)) return true;
  return false;
}

/// Copies the arrays whose names begin with `from` + "." into `state`, with `to` in its place.
void copy_under(const nn::StateDict& source, const std::string& from, const std::string& to, nn::StateDict& state) {
  for (const nn::NamedArray& array : source)
    if (array.name.starts_with(from + ".")) {
      state.push_back(array);
      state.back().name = to + array.name.substr(from.size());
    }
}

}  // namespace

std::unique_ptr<Network> graft(std::span<const Network* const> networks, grid::Combine combine,
                               const std::optional<grid::Layer>& gate) {
  if (networks.empty()) throw UsageError("graft: give at least one network");
  std::vector<grid::Layer> children;
  nn::StateDict state;
  for (const Network* network : networks) {
    if (!network) throw UsageError("graft: a network is null");
    const grid::Layer& first = network->description().layers[0];
    if (holds_link(first))
      throw UsageError("graft: a first layer runs another layer of its network by a link, which is not grafted");
    const nn::StateDict source = network->state_dict();
    const std::string name = "z0y0x0l0";
    const bool opens = first.type == grid::LayerType::parallel && !first.disabled;
    for (std::size_t i = 0; i < (opens ? first.children.size() : 1); ++i) {
      copy_under(source, opens ? fmt::format("{}.{}", name, i) : name, fmt::format("{}.{}", name, children.size()),
                 state);
      children.push_back(opens ? first.children[i] : first);
      children.back().link.reset();
    }
  }
  grid::Layer layer = grid::parallel_layer(std::move(children), combine);
  if (gate) layer.gate.push_back(*gate);
  auto result = std::make_unique<Network>(grid::Description::chain({std::move(layer)}));
  result->load_state_dict(state, /*strict=*/false);
  return result;
}

std::unique_ptr<Network> residual_graft(const Network& network, const grid::Coordinate& at) {
  grid::Description d = network.description();
  grid::Layer& layer = d.at(at);
  grid::Layer inner = layer;
  inner.link.reset();
  grid::Layer sum = grid::parallel_layer({grid::Description().layers[0], std::move(inner)}, grid::Combine::add);
  sum.link = layer.link;
  layer = std::move(sum);
  const std::string name = fmt::format("z{}y{}x{}l{}", at.z, at.y, at.x, at.layer);
  nn::StateDict state = network.state_dict();
  for (nn::NamedArray& array : state)
    if (array.name.starts_with(name + ".")) array.name = name + ".1" + array.name.substr(name.size());
  auto result = std::make_unique<Network>(std::move(d));
  result->load_state_dict(state);
  result->train(network.is_training());
  return result;
}

}  // namespace weft::evolve
