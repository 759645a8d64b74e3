#include "llm/divide.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// Nodes [begin, end) as a graph. Its input and its output are still those of the whole.
ModelGraph part_of(const ModelGraph& graph, std::size_t begin, std::size_t end) {
  ModelGraph part = graph;
  part.nodes.assign(graph.nodes.begin() + static_cast<std::ptrdiff_t>(begin),
                    graph.nodes.begin() + static_cast<std::ptrdiff_t>(end));
  std::set<std::string, std::less<>> used;
  for (const OpNode& node : part.nodes) {
    used.insert(node.inputs.begin(), node.inputs.end());
    used.insert(node.output);
  }
  std::erase_if(part.tensors, [&](const TensorDesc& tensor) { return !used.contains(tensor.name); });
  return part;
}

/// The activations that a part reads and does not make.
std::vector<std::string> inputs_of(const ModelGraph& part) {
  std::set<std::string, std::less<>> made{part.positions, part.image_rows};
  std::vector<std::string> inputs;
  for (const OpNode& node : part.nodes) {
    for (const std::string& name : node.inputs)
      if (part.at(name).storage == TensorStorage::activation && made.insert(name).second) inputs.push_back(name);
    made.insert(node.output);
  }
  return inputs;
}

}  // namespace

std::vector<ModelGraph> divide(const ModelGraph& graph, std::span<const Extent> layers) {
  if (std::accumulate(layers.begin(), layers.end(), Extent{0}) != graph.config.layers)
    throw InternalError(fmt::format("model graph: parts that do not have {} layers together", graph.config.layers));
  if (layers.size() > 1 && (graph.config.layer_input > 0 || graph.config.layers_without_keys > 0))
    throw UsageError(fmt::format(
        "{}: layers of {} read more than the results of the layer before them (inputs of their own, and keys "
        "of other layers), so the model is not divided between devices; name one device",
        graph.config.source, graph.config.architecture));
  std::vector<ModelGraph> parts;
  std::size_t begin = 0;
  Extent layer = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layer += layers[i];
    const auto next = std::find_if(graph.nodes.begin() + static_cast<std::ptrdiff_t>(begin), graph.nodes.end(),
                                   [&](const OpNode& node) { return node.layer >= layer; });
    const std::size_t end =
        i + 1 == layers.size() ? graph.nodes.size() : static_cast<std::size_t>(next - graph.nodes.begin());
    parts.push_back(part_of(graph, begin, end));
    begin = end;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string> inputs = inputs_of(parts[i]);
    const auto makes = [&](const OpNode& node) { return node.output == inputs[0]; };
    if (inputs.size() != 1 || std::none_of(parts[i - 1].nodes.begin(), parts[i - 1].nodes.end(), makes))
      throw InternalError(fmt::format("model graph of {}: layers behind a cut read {} activations from before it",
                                      graph.family, inputs.size()));
    parts[i].input = parts[i - 1].output = inputs[0];
  }
  for (const ModelGraph& part : parts) part.validate();
  return parts;
}

}  // namespace weft::llm
