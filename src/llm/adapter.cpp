#include "llm/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// The matrices of two changes of one product: A below A, B beside B.
void append(LowRank& to, const LowRank& more) {
  to.b = to.scaled_b();
  to.scale = 1;
  const std::vector<float> more_b = more.scaled_b();
  const auto groups = static_cast<std::size_t>(std::max<Extent>(to.experts, 1));
  const auto out = groups * static_cast<std::size_t>(to.out), first = static_cast<std::size_t>(to.rank),
             second = static_cast<std::size_t>(more.rank);
  std::vector<float> b;
  for (std::size_t row = 0; row < out; ++row) {
    b.insert(b.end(), to.b.begin() + static_cast<std::ptrdiff_t>(row * first),
             to.b.begin() + static_cast<std::ptrdiff_t>((row + 1) * first));
    b.insert(b.end(), more_b.begin() + static_cast<std::ptrdiff_t>(row * second),
             more_b.begin() + static_cast<std::ptrdiff_t>((row + 1) * second));
  }
  if (!more.gain.empty()) {
    if (to.gain.empty()) to.gain.assign(out, 1.0F);
    for (std::size_t row = 0; row < out; ++row) to.gain[row] += more.gain[row] - 1;
  }
  std::vector<float> a;
  for (std::size_t group = 0; group < groups; ++group)
    for (const LowRank* each : {static_cast<const LowRank*>(&to), &more}) {
      const std::size_t part = each->a.size() / groups;
      const auto begin = each->a.begin() + static_cast<std::ptrdiff_t>(group * part);
      a.insert(a.end(), begin, begin + static_cast<std::ptrdiff_t>(part));
    }
  to.a = std::move(a);
  to.b = std::move(b);
  to.rank += more.rank;
}

/// Products of experts that `id` names, as further inputs of their node.
bool add_to_experts(ModelGraph& graph, std::string_view id, Extent rank) {
  for (OpNode& node : graph.nodes) {
    if (node.op != OpType::experts) continue;
    const bool is_down = id == changed_downs(node.id);
    if (!is_down && id != changed_gate_ups(node.id)) continue;
    const std::vector<Dim> downs = graph.at(node.inputs[4]).shape;  // [E, H, F]
    const Extent hidden = downs[1].value, width = downs[2].value;
    node.attributes[is_down ? "down_change" : "gate_up_change"] = static_cast<Extent>(node.inputs.size());
    node.inputs.insert(node.inputs.end(), {low_rank_a(id), low_rank_b(id)});
    graph.tensors.push_back(
        {low_rank_a(id), {downs[0], rank, is_down ? width : hidden}, Element::f32, TensorStorage::adapter});
    graph.tensors.push_back(
        {low_rank_b(id), {downs[0], is_down ? hidden : 2 * width, rank}, Element::f32, TensorStorage::adapter});
    return true;
  }
  return false;
}

}  // namespace

std::vector<float> LowRank::scaled_b() const {
  std::vector<float> scaled = b;
  for (float& value : scaled) value = static_cast<float>(value * scale);
  return scaled;
}

std::string low_rank_a(std::string_view node) { return fmt::format("{}.lora_a", node); }
std::string low_rank_b(std::string_view node) { return fmt::format("{}.lora_b", node); }

std::string low_rank_gain(std::string_view node) { return fmt::format("{}.lora_gain", node); }

std::string changed_gate_ups(std::string_view node) { return fmt::format("{}.gate_up", node); }
std::string changed_downs(std::string_view node) { return fmt::format("{}.down", node); }

bool takes_low_rank(const OpNode& node) { return node.op == OpType::matmul; }

void add_low_rank(ModelGraph& graph, std::string_view id, Extent rank, bool has_gain) {
  if (!has_gain && add_to_experts(graph, id, rank)) return;
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const OpNode& n) { return n.id == id; });
  if (found == graph.nodes.end() || !takes_low_rank(*found))
    throw InternalError(fmt::format("model graph: {} is no product", id));
  OpNode& product = *found;
  const std::string x = product.inputs[0], y = product.output;
  const std::vector<Dim> shape = graph.at(y).shape;
  const Extent in = graph.at(product.inputs[1]).shape[1].value;
  const auto add_tensor = [&](std::string name, std::vector<Dim> extents, TensorStorage storage) {
    graph.tensors.push_back({std::move(name), std::move(extents), Element::f32, storage});
  };
  const std::string plain = product.id + "_plain", low = product.id + "_low", change = product.id + "_change";
  add_tensor(low_rank_a(id), {rank, in}, TensorStorage::adapter);
  add_tensor(low_rank_b(id), {shape[1], rank}, TensorStorage::adapter);
  add_tensor(plain, shape, TensorStorage::activation);
  add_tensor(low, {shape[0], rank}, TensorStorage::activation);
  add_tensor(change, shape, TensorStorage::activation);
  const Extent layer = product.layer;
  std::vector<std::string> change_inputs = {low, low_rank_b(id)};
  std::vector<OpNode> added;
  std::string base = plain;
  if (has_gain) {
    base = product.id + "_gained";
    add_tensor(low_rank_gain(id), {shape[1]}, TensorStorage::adapter);
    add_tensor(base, shape, TensorStorage::activation);
    added.push_back({base, OpType::mul, {plain, low_rank_gain(id)}, base, {}, layer});
    // The bias is added behind the gain.
    change_inputs.insert(change_inputs.end(), product.inputs.begin() + 2, product.inputs.end());
    product.inputs.resize(2);
  }
  added.push_back({low, OpType::matmul, {x, low_rank_a(id)}, low, {}, layer});
  added.push_back({change, OpType::matmul, std::move(change_inputs), change, {}, layer});
  added.push_back({std::string(id), OpType::add, {base, change}, y, {}, layer});
  product.id = product.output = plain;
  graph.nodes.insert(found + 1, added.begin(), added.end());
}

std::vector<LowRank> joined(const ModelGraph& graph, std::span<const std::vector<LowRank>> adapters) {
  std::vector<LowRank> all;
  std::vector<std::string> ids;
  for (const OpNode& node : graph.nodes)
    if (node.op == OpType::experts)
      ids.insert(ids.end(), {changed_gate_ups(node.id), changed_downs(node.id)});
    else
      ids.push_back(node.id);
  for (const std::string& id : ids) {
    LowRank* own = nullptr;
    for (const std::vector<LowRank>& adapter : adapters)
      for (const LowRank& change : adapter) {
        if (change.node != id) continue;
        if (!change.magnitude.empty())
          throw InternalError(fmt::format("llm: the magnitudes of {} are no gains yet", change.node));
        if (own)
          append(*own, change);
        else
          own = &all.emplace_back(change);
      }
  }
  return all;
}

}  // namespace weft::llm
