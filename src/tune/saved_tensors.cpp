#include "tune/saved_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/quote.hpp"
#include "llm/convert.hpp"
#include "llm/convert_moves.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::tune {
namespace {

using llm::ModelGraph;
using llm::OpNode;
using llm::OpType;
using llm::TensorDesc;

constexpr std::string_view kHead = "lm_head.weight";

/// A tensor that could train as a whole.
struct Candidate {
  std::string key;  ///< in folders
  std::string constant;
  bool is_head_of_table = false;  ///< the head of a model whose table of tokens it is too

  std::string module() const { return key.substr(0, key.rfind('.')); }
};

/// Constants that folders have as one tensor, in the same form as the model's files.
std::vector<Candidate> candidates_of(const ModelGraph& graph) {
  const ModelGraph folder = graph.config.from_gguf ? llm::graph_of_other_kind(graph) : graph;
  const auto own_layouts = llm::layouts_of(graph), layouts = llm::layouts_of(folder);
  const auto layout = [](const auto& all, const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? llm::Layout() : found->second;
  };
  std::vector<Candidate> candidates;
  for (const TensorDesc& tensor : folder.tensors) {
    if (tensor.keys.size() != 1 || tensor.cut || tensor.transposed) continue;
    const TensorDesc& own = graph.at(tensor.name);
    const llm::Layout a = layout(own_layouts, tensor.name), b = layout(layouts, tensor.name);
    if (own.cut || own.transposed || own.keys.size() != 1 || a.offset != b.offset || a.neighbours != b.neighbours)
      continue;
    candidates.push_back({tensor.keys[0], tensor.name});
  }
  if (!graph.find(kHead)) candidates.push_back({std::string(kHead), "embed.weight", true});
  return candidates;
}

std::string saved_name(const Candidate& candidate) {
  return fmt::format("{}.saved", candidate.is_head_of_table ? kHead : candidate.constant);
}

/// Makes the nodes that read the constant read what trains.
void rewire(ModelGraph& graph, const Candidate& candidate) {
  const bool is_tied = candidate.constant == "embed.weight" && !graph.find(kHead);
  TensorDesc saved = graph.at(candidate.constant);
  saved.name = saved_name(candidate);
  saved.storage = llm::TensorStorage::adapter;
  saved.keys.clear();
  for (OpNode& node : graph.nodes) {
    if (is_tied && (node.op == OpType::embedding) == candidate.is_head_of_table) continue;
    std::replace(node.inputs.begin(), node.inputs.end(), candidate.constant, saved.name);
  }
  graph.tensors.push_back(std::move(saved));
}

/// Those that `options` names: a name is the end of a module's, as in PEFT.
std::vector<Candidate> chosen_of(const std::vector<Candidate>& candidates, const std::vector<std::string>& names) {
  std::vector<Candidate> chosen;
  std::set<std::string> known;
  for (const Candidate& candidate : candidates) {
    const std::string module = candidate.module();
    known.insert(module.substr(module.rfind('.') + 1));
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return module.ends_with(name); }))
      chosen.push_back(candidate);
  }
  for (const std::string& name : names)
    if (name.empty() ||
        std::none_of(chosen.begin(), chosen.end(), [&](const Candidate& c) { return c.module().ends_with(name); }))
      throw UsageError(fmt::format("tune: no module whose tensors can train as a whole is called {}; there are {}",
                                   quote(name, 60), fmt::join(known, ", ")));
  return chosen;
}

}  // namespace

SavedTensors::SavedTensors(const llm::detail::Engine& engine, ModelGraph& graph, const TunerOptions& options,
                           const llm::AdapterContents& from) {
  if (options.saved.empty() && from.saved.empty()) return;
  const std::vector<Candidate> candidates = candidates_of(graph);
  std::vector<Candidate> chosen = chosen_of(candidates, options.saved);
  std::map<std::string, const io::SourceTensor*> given;
  for (const auto& [key, tensor] : from.saved) {
    const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return llm::without_prefix(c.key) == llm::without_prefix(key);
    });
    const bool fits = found != candidates.end() && !key.ends_with(".bias");
    if (!fits)
      throw UsageError(
          fmt::format("{}: the adapter holds {}, which does not train; merge it into its model (weft convert "
                      "--adapter), and go on from that",
                      options.from.string(), quote(key, 120)));
    given[found->key] = &tensor;
    if (std::none_of(chosen.begin(), chosen.end(), [&](const Candidate& c) { return c.key == found->key; }))
      chosen.push_back(*found);
  }
  for (const Candidate& candidate : chosen) {
    const TensorDesc& desc = graph.at(candidate.constant);
    Shape shape;
    for (const llm::Dim& extent : desc.shape) shape.push_back(extent.value);
    Tensor value = zeros(shape, DType::f32, engine.device());
    if (const auto found = given.find(candidate.key); found != given.end()) {
      if (found->second->shape != shape)
        throw FileError(fmt::format("{}: {} is {}, and the model's is {}", options.from.string(),
                                    quote(candidate.key, 120), found->second->shape.to_string(), shape.to_string()));
      std::vector<float> values(static_cast<std::size_t>(shape.numel()));
      from.source->read_f32(*found->second, values);
      value = llm::detail::on_device(values, shape, engine.device());
    } else if (!engine.is_planned()) {
      // Added to zero, so that the value is memory of its own.
      value = cast(engine.stages()[0]->weights().at(candidate.constant), DType::f32) + value;
    }
    saved_.push_back({candidate.key, Variable(value.eval(), saved_name(candidate), true)});
    rewire(graph, candidate);
  }
}

std::vector<Variable> SavedTensors::variables() const {
  std::vector<Variable> all;
  for (const Saved& saved : saved_) all.push_back(saved.variable);
  return all;
}

std::map<std::string, Tensor> SavedTensors::values() const {
  std::map<std::string, Tensor> values;
  for (const Saved& saved : saved_) values[saved.variable.name()] = saved.variable.value();
  return values;
}

std::vector<llm::SavedTensor> SavedTensors::to_write() const {
  std::vector<llm::SavedTensor> all;
  for (const Saved& saved : saved_)
    all.push_back({saved.key, saved.variable.value().shape(), saved.variable.value().to_vector<float>()});
  return all;
}

}  // namespace weft::tune
