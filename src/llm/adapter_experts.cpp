#include "llm/adapter_experts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

enum class Kind { gate_up, gates, ups, downs };

/// What a name in an adapter's file changes.
struct Place {
  const OpNode* node;
  Kind kind;
  Extent expert = -1;  // -1: all of them
};

constexpr std::string_view kExperts = ".experts";

std::string without_weight(std::string key) {
  if (key.ends_with(".weight")) key.resize(key.size() - std::string_view(".weight").size());
  return key;
}

const TensorDesc& matrices(const ModelGraph& graph, const OpNode& node, Kind kind) {
  return graph.at(node.inputs[kind == Kind::downs ? 4 : kind == Kind::ups ? 3 : 2]);
}

/// The module of transformers that has the experts of a layer.
std::string module_of(const ModelGraph& folder, const OpNode& node) {
  std::string key = matrices(folder, node, Kind::downs).keys[0];
  if (const std::size_t at = key.find(kExperts); at != std::string::npos) {
    key.resize(at + kExperts.size());
    // Files of Mixtral and MiniMax keep a name that the module no longer has.
    constexpr std::string_view kOld = "block_sparse_moe";
    if (const std::size_t old = key.find(kOld); old != std::string::npos) key.replace(old, kOld.size(), "mlp");
    return key;
  }
  return key.substr(0, key.rfind('.', key.rfind('.') - 1)) + std::string(kExperts);
}

std::map<std::string, Place> places_of(const ModelGraph& form) {
  std::map<std::string, Place> places;
  const auto add = [&](std::string_view name, Place place) {
    places.emplace(std::string(without_prefix(name)), place);
  };
  for (const OpNode& node : form.nodes) {
    if (node.op != OpType::experts || node.integer("plain") != 0) continue;
    for (const Kind kind : {Kind::gates, Kind::ups, Kind::downs}) {
      const TensorDesc& tensor = matrices(form, node, kind);
      if (tensor.cut) continue;
      for (std::size_t e = 0; e < tensor.keys.size(); ++e)
        add(without_weight(tensor.keys[e]), {&node, kind, tensor.keys.size() > 1 ? static_cast<Extent>(e) : -1});
    }
    if (form.config.from_gguf) continue;
    add(fmt::format("{}.{}", module_of(form, node), kGateUp), {&node, Kind::gate_up});
    add(fmt::format("{}.{}", module_of(form, node), kDown), {&node, Kind::downs});
  }
  return places;
}

/// Matrices of Llama 4's experts are [in, out], which PEFT does not know of: it has A and B the other way round.
bool swaps_matrices(const ModelGraph& form) { return form.family == "llama4"; }
/// gpt-oss has rows of gates and ups in turn.
bool is_in_turn(const ModelGraph& form, const OpNode& node) {
  const auto& cut = matrices(form, node, Kind::gates).cut;
  return cut && cut->step == 2;
}

std::vector<float> transposed_each(const std::vector<float>& values, Extent count, Extent rows, Extent columns) {
  std::vector<float> turned(values.size());
  for (Extent i = 0; i < count; ++i)
    for (Extent r = 0; r < rows; ++r)
      for (Extent c = 0; c < columns; ++c)
        turned[static_cast<std::size_t>((i * columns + c) * rows + r)] =
            values[static_cast<std::size_t>((i * rows + r) * columns + c)];
  return turned;
}

void swap_matrices(ModuleChange& change) {
  std::vector<float> a = transposed_each(change.b, change.experts, change.out, change.rank);
  change.b = transposed_each(change.a, change.experts, change.rank, change.in);
  change.a = std::move(a);
  std::swap(change.in, change.out);
}

/// Rows of B [experts, 2 F, rank]: gates and ups in turn, or first the gates.
void turn_rows(ModuleChange& change, bool to_turns) {
  std::vector<float> b(change.b.size());
  const Extent half = change.out / 2;
  for (Extent e = 0; e < change.experts; ++e)
    for (Extent row = 0; row < half; ++row)
      for (const Extent part : {0, 1}) {
        const Extent apart = part * half + row, in_turn = 2 * row + part;
        std::copy_n(
            change.b.begin() +
                static_cast<std::ptrdiff_t>((e * change.out + (to_turns ? apart : in_turn)) * change.rank),
            change.rank,
            b.begin() + static_cast<std::ptrdiff_t>((e * change.out + (to_turns ? in_turn : apart)) * change.rank));
      }
  change.b = std::move(b);
}

/// A change that an adapter's file has, in the order of the graph.
struct Given {
  Place place;
  ModuleChange change;
};

/// Puts changes of one node side by side.
LowRank side_by_side(const std::string& id, std::vector<Given> given, Extent experts, Extent in, Extent out) {
  LowRank all{id, 0, in, out, {}, {}, given.front().change.scale};
  all.experts = experts;
  std::map<Kind, Extent> ranks;  // single experts of a kind share a rank
  for (const Given& g : given) ranks[g.place.kind] = std::max(ranks[g.place.kind], g.change.rank);
  std::map<Kind, Extent> begins;
  for (const auto& [kind, rank] : ranks) {
    begins[kind] = all.rank;
    all.rank += rank;
  }
  all.a.assign(static_cast<std::size_t>(experts * all.rank * in), 0.0F);
  all.b.assign(static_cast<std::size_t>(experts * out * all.rank), 0.0F);
  for (const Given& g : given) {
    const ModuleChange& c = g.change;
    const double factor = c.scale == all.scale ? 1 : c.scale / all.scale;
    const Extent begin = begins.at(g.place.kind), first_row = g.place.kind == Kind::ups ? out / 2 : 0;
    for (Extent e = 0; e < experts; ++e) {
      if (g.place.expert >= 0 && g.place.expert != e) continue;
      const Extent from = g.place.expert >= 0 ? 0 : e;
      std::copy_n(c.a.begin() + static_cast<std::ptrdiff_t>(from * c.rank * in), c.rank * in,
                  all.a.begin() + static_cast<std::ptrdiff_t>((e * all.rank + begin) * in));
      for (Extent row = 0; row < c.out; ++row)
        for (Extent r = 0; r < c.rank; ++r)
          all.b[static_cast<std::size_t>((e * out + first_row + row) * all.rank + begin + r)] =
              static_cast<float>(c.b[static_cast<std::size_t>((from * c.out + row) * c.rank + r)] * factor);
    }
  }
  return all;
}

}  // namespace

void stack_experts(ModuleChange& change, Extent experts) {
  change.experts = experts;
  change.rank /= experts;
  std::vector<float> b(change.b.size());
  for (Extent row = 0; row < change.out; ++row)
    for (Extent r = 0; r < change.rank; ++r)
      for (Extent e = 0; e < experts; ++e)
        b[static_cast<std::size_t>((e * change.out + row) * change.rank + r)] =
            change.b[static_cast<std::size_t>((row * change.rank + r) * experts + e)];
  change.b = std::move(b);
}

void unstack_experts(ModuleChange& change) {
  std::vector<float> b(change.b.size());
  for (Extent row = 0; row < change.out; ++row)
    for (Extent r = 0; r < change.rank; ++r)
      for (Extent e = 0; e < change.experts; ++e)
        b[static_cast<std::size_t>((row * change.rank + r) * change.experts + e)] =
            change.b[static_cast<std::size_t>((e * change.out + row) * change.rank + r)];
  change.b = std::move(b);
  change.rank *= change.experts;
  change.experts = 0;
}

std::vector<LowRank> expert_changes_of(const ModuleChanges& modules, const ModelGraph& form,
                                       std::set<std::string>& used,
                                       const std::function<void(const std::string&)>& problem) {
  const std::map<std::string, Place> places = places_of(form);
  std::map<std::string, std::vector<Given>> by_id;
  for (const auto& [name, change] : modules) {
    const auto found = places.find(std::string(without_prefix(name)));
    if (found == places.end()) continue;
    used.insert(name);
    const Place& place = found->second;
    Given given{place, change};
    const bool is_parameter = !form.config.from_gguf && place.expert < 0;
    if (is_parameter && change.experts > 0 && swaps_matrices(form)) swap_matrices(given.change);
    const auto& shape = matrices(form, *place.node, place.kind).shape;
    const Extent experts = place.expert < 0 ? shape[0].value : 0, in = shape[2].value,
                 out = shape[1].value * (place.kind == Kind::gate_up ? 2 : 1);
    const ModuleChange& c = given.change;
    if (c.experts != experts || c.in != in || c.out != out) {
      problem(fmt::format("{}: it changes {} x {} x {}, the model's experts are {} x {} x {}", quote(name, 120),
                          c.experts, c.out, c.in, experts, out, in));
      continue;
    }
    if (!c.magnitude.empty()) {
      problem(fmt::format("{}: magnitudes of experts are not read", quote(name, 120)));
      continue;
    }
    if (place.kind == Kind::gate_up && is_in_turn(form, *place.node)) turn_rows(given.change, false);
    by_id[place.kind == Kind::downs ? changed_downs(place.node->id) : changed_gate_ups(place.node->id)].push_back(
        std::move(given));
  }
  std::vector<LowRank> changes;
  for (auto& [id, given] : by_id) {
    const OpNode& node = *given.front().place.node;
    const auto& downs = matrices(form, node, Kind::downs).shape;
    const Extent experts = downs[0].value, hidden = downs[1].value, width = downs[2].value;
    const bool is_down = given.front().place.kind == Kind::downs;
    changes.push_back(
        side_by_side(id, std::move(given), experts, is_down ? width : hidden, is_down ? hidden : 2 * width));
  }
  return changes;
}

ModuleChanges expert_modules_of(const std::vector<LowRank>& changes, const ModelGraph& form) {
  ModuleChanges modules;
  for (const OpNode& node : form.nodes) {
    if (node.op != OpType::experts) continue;
    for (const LowRank& change : changes) {
      const bool is_down = change.node == changed_downs(node.id);
      if (!is_down && change.node != changed_gate_ups(node.id)) continue;
      ModuleChange made{change.rank, change.in, change.out, change.a, change.b, change.scale};
      made.experts = change.experts;
      if (!form.config.from_gguf) {
        if (!is_down && is_in_turn(form, node)) turn_rows(made, true);
        if (swaps_matrices(form)) swap_matrices(made);
        modules.emplace(fmt::format("{}.{}", module_of(form, node), is_down ? kDown : kGateUp), std::move(made));
        continue;
      }
      const auto name = [&](Kind kind) { return without_weight(matrices(form, node, kind).keys[0]); };
      if (is_down) {
        modules.emplace(name(Kind::downs), std::move(made));
        continue;
      }
      const Extent half = change.out / 2;
      for (const bool is_up : {false, true}) {  // each with the whole A
        ModuleChange part = made;
        part.out = half;
        part.b.clear();
        for (Extent e = 0; e < change.experts; ++e) {
          const auto begin =
              made.b.begin() + static_cast<std::ptrdiff_t>((e * 2 + (is_up ? 1 : 0)) * half * change.rank);
          part.b.insert(part.b.end(), begin, begin + static_cast<std::ptrdiff_t>(half * change.rank));
        }
        modules.emplace(name(is_up ? Kind::ups : Kind::gates), std::move(part));
      }
    }
  }
  return modules;
}

std::optional<std::vector<float>> expert_deltas(const std::vector<LowRank>& changes, const ModelGraph& graph,
                                                std::string_view constant, Extent first, Extent count) {
  for (const OpNode& node : graph.nodes) {
    if (node.op != OpType::experts) continue;
    for (const Kind kind : {Kind::gates, Kind::ups, Kind::downs}) {
      if (matrices(graph, node, kind).name != constant) continue;
      for (const LowRank& change : changes) {
        if (change.node != (kind == Kind::downs ? changed_downs(node.id) : changed_gate_ups(node.id))) continue;
        if (count == 0) return std::vector<float>();
        const Tensor a = tensor_from_bytes(change.a.data() + first * change.rank * change.in,
                                           {count, change.rank, change.in}, DType::f32, kCpu),
                     b = tensor_from_bytes(change.b.data() + first * change.out * change.rank,
                                           {count, change.out, change.rank}, DType::f32, kCpu);
        const Extent half = change.out / 2;
        const Tensor rows = kind == Kind::downs ? b : narrow(b, 1, kind == Kind::ups ? half : 0, half);
        return (matmul(rows, a) * change.scale).to_vector<float>();
      }
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace weft::llm
