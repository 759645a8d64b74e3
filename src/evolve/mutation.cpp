#include "weft/evolve/mutation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "evolve/layer_weights.hpp"
#include "grid/layer_rows.hpp"
#include "grid/random_draws.hpp"
#include "weft/grid/builders.hpp"

namespace weft::evolve {
namespace {

using grid::Coordinate;
using grid::Layer;
using grid::LayerType;

void check_options(const MutationOptions& o) {
  const std::pair<const char*, double> chances[] = {{"weights", o.weights},   {"activation", o.activation},
                                                    {"node", o.node},         {"toggle", o.toggle},
                                                    {"add_link", o.add_link}, {"drop_link", o.drop_link}};
  for (const auto& [name, chance] : chances)
    if (!(chance >= 0 && chance <= 1))
      throw UsageError(fmt::format("mutate: {} is {}; a probability is in [0, 1]", name, chance));
  if (!(o.amount >= 0 && std::isfinite(o.amount))) throw UsageError(fmt::format("mutate: amount is {}", o.amount));
  if (o.width < 0) throw UsageError(fmt::format("mutate: width is {}", o.width));
}

/// A description and the parameters for it, which change together.
class Genome {
 public:
  Genome(const Network& network, const MutationOptions& options)
      : description_(network.description()), options_(options), draws_(options.seed, "evolve.mutate") {
    for (nn::NamedArray& array : network.state_dict()) {
      std::string name = layer_name(array.name);
      arrays_[std::move(name)].push_back(std::move(array));
    }
  }

  void mutate() {
    for (std::size_t i = 0; i < description_.layers.size(); ++i)
      if (!is_fresh(description_.layers[i])) mutate_layer(i);
    if (draws_.chance(options_.add_link)) add_link();
    if (draws_.chance(options_.drop_link)) drop_link();
  }

  std::unique_ptr<Network> express() const {
    auto network = std::make_unique<Network>(description_);
    nn::StateDict state;
    for (const auto& [name, arrays] : arrays_) state.insert(state.end(), arrays.begin(), arrays.end());
    network->load_state_dict(state);
    return network;
  }

 private:
  std::string name_of_layer(std::size_t index) const {
    const Coordinate at = description_.coordinate(index);
    return fmt::format("z{}y{}x{}l{}", at.z, at.y, at.x, at.layer);
  }

  void mutate_layer(std::size_t index) {
    Layer& layer = description_.layers[index];
    if (draws_.chance(options_.weights))
      for (nn::NamedArray& array : arrays_[name_of_layer(index)])
        for (float& value : values_of(array))
          value += static_cast<float>(draws_.uniform(-options_.amount, options_.amount));
    if (draws_.chance(options_.activation)) {
      const grid::Activation activation = grid::kActivations[draws_.below(grid::kActivations.size())];
      if (grid::row_of(layer.type).activates) layer.activation = activation;
    }
    if (draws_.chance(options_.node)) change_type(index);
    if (draws_.chance(options_.toggle) && (layer.disabled || keeps_width(layer))) layer.disabled = !layer.disabled;
  }

  // ---- Types -------------------------------------------------------------------------------------------------------------

  struct Widths {
    Extent inputs = 0, outputs = 0;  // 0: unknown
    bool operator==(const Widths&) const = default;
  };

  Widths widths_of(const Layer& l) const {
    switch (l.type) {
      case LayerType::dense:
      case LayerType::rnn:
      case LayerType::lstm: return {l.inputs, l.outputs};
      case LayerType::attention:
      case LayerType::swiglu:
      case LayerType::rms_norm:
      case LayerType::layer_norm: return {l.inputs, l.inputs};
      case LayerType::kmeans: return {l.inputs, l.features ? l.inputs : l.clusters};
      case LayerType::embedding:
      case LayerType::parallel:
      case LayerType::sequential: return {};
      default: return {options_.width, options_.width};
    }
  }
  bool keeps_width(const Layer& layer) const {
    const Widths w = widths_of(layer);
    return w.inputs > 0 && w.inputs == w.outputs;
  }

  void change_type(std::size_t index) {
    Layer& layer = description_.layers[index];
    const Widths w = widths_of(layer);
    if (w.inputs == 0) return;
    std::vector<LayerType> types;
    for (int i = 0; i < grid::kLayerTypeCount; ++i)
      if (const auto type = static_cast<LayerType>(i); type != layer.type && grid::can_map(type, w.inputs, w.outputs))
        types.push_back(type);
    Layer next = grid::layer_of_width(types[draws_.below(types.size())], w.inputs, w.outputs);
    if (grid::row_of(next.type).activates && grid::row_of(layer.type).activates) next.activation = layer.activation;
    next.dtype = layer.dtype;
    next.disabled = layer.disabled;
    next.link = layer.link;
    layer = std::move(next);
    // A module of its own knows names and shapes.
    const std::string name = name_of_layer(index);
    std::vector<nn::NamedArray>& arrays = arrays_[name];
    arrays.clear();
    const grid::LayerModule module(layer);
    for (const auto& [parameter, shape] : module.own_parameters()) {
      nn::NamedArray array{name + "." + parameter, DType::f32, shape,
                           std::vector<std::byte>(bytes_of(DType::f32, static_cast<std::size_t>(shape.numel())))};
      for (float& value : values_of(array))
        value = static_cast<float>(draws_.uniform(-options_.amount, options_.amount));
      arrays.push_back(std::move(array));
    }
  }

  // ---- Links -------------------------------------------------------------------------------------------------------------

  static bool adds(const Layer& l) {
    return l.type == LayerType::parallel && (l.combine == grid::Combine::add || l.combine == grid::Combine::average);
  }
  /// Of what links are added to: a layer, or the children of one that adds.
  Widths widths_of_sum(const Layer& l) const {
    if (!adds(l)) return widths_of(l);
    for (const Layer& child : l.children)
      if (!child.link && widths_of(child).inputs > 0) return widths_of(child);
    return {};
  }

  void add_link() {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t to = 0; to < description_.layers.size(); ++to)
      for (std::size_t target = 0; target < description_.layers.size(); ++target)
        if (to != target && fits(description_.layers[to], description_.layers[target])) pairs.emplace_back(to, target);
    if (pairs.empty()) return;
    const auto [to, target] = pairs[draws_.below(pairs.size())];
    const Layer before = description_.layers[to];
    Layer& layer = description_.layers[to];
    const bool wraps = !adds(layer);
    if (wraps) {
      Layer inner = layer;
      inner.link.reset();  // the wrapping layer reads what the layer read
      layer = grid::parallel_layer({std::move(inner)}, grid::Combine::add);
      layer.link = before.link;
      layer.dtype = before.dtype;
    }
    layer.children.push_back(grid::link_layer(description_.coordinate(target)));
    if (!grid::problems_of(description_).empty()) {  // such as a circle of links
      layer = before;
      return;
    }
    if (!wraps) return;
    const std::string name = name_of_layer(to);
    for (nn::NamedArray& array : arrays_[name]) array.name = name + ".0" + array.name.substr(name.size());
  }

  bool fits(const Layer& to, const Layer& target) const {
    if (is_fresh(to) || is_fresh(target) || to.disabled || target.disabled) return false;
    const Widths w = widths_of_sum(to);
    return w.inputs > 0 && w == widths_of(target);
  }

  void drop_link() {
    std::vector<std::pair<std::size_t, std::size_t>> links;
    for (std::size_t i = 0; i < description_.layers.size(); ++i) {
      const Layer& layer = description_.layers[i];
      if (!adds(layer) || layer.children.size() < 2) continue;
      for (std::size_t child = 0; child < layer.children.size(); ++child)
        if (layer.children[child].link) links.emplace_back(i, child);
    }
    if (links.empty()) return;
    const auto [index, child] = links[draws_.below(links.size())];
    std::vector<Layer>& children = description_.layers[index].children;
    children.erase(children.begin() + static_cast<std::ptrdiff_t>(child));
    rename_after(index, child);
  }

  /// The children behind a removed one move up, and so do the names of their parameters.
  void rename_after(std::size_t index, std::size_t removed) {
    const std::string prefix = name_of_layer(index) + ".";
    for (nn::NamedArray& array : arrays_[name_of_layer(index)]) {
      const std::size_t end = array.name.find('.', prefix.size());
      const std::string part = array.name.substr(prefix.size(), end - prefix.size());
      if (end == std::string::npos || part == "gate") continue;
      if (const std::size_t place = std::stoul(part); place > removed)
        array.name = fmt::format("{}{}{}", prefix, place - 1, array.name.substr(end));
    }
  }

  grid::Description description_;
  const MutationOptions& options_;
  grid::RandomDraws draws_;
  std::map<std::string, std::vector<nn::NamedArray>> arrays_;  // by layer of the grid
};

}  // namespace

std::unique_ptr<Network> mutate(const Network& network, const MutationOptions& options) {
  check_options(options);
  Genome genome(network, options);
  genome.mutate();
  auto mutant = genome.express();
  mutant->train(network.is_training());
  return mutant;
}

}  // namespace weft::evolve
