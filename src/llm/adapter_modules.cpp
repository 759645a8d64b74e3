#include "llm/adapter_modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/quote.hpp"
#include "llm/adapter_experts.hpp"
#include "llm/convert_moves.hpp"
#include "llm/convert_values.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr std::string_view kWeight = ".weight";

/// The row of the tensor that is row `i` of the product.
Extent row_in_tensor(const ModuleTarget& target, Extent i) {
  if (!target.cut) return i;
  const Cut& cut = *target.cut;
  const Extent group = i / cut.count, row = i % cut.count;
  return group * cut.rows + cut.begin + row * cut.step;
}

/// Rows of B in the order that the other graph has them in.
std::vector<float> turned(std::vector<float> b, const ModuleTarget& from, const ModuleTarget& to, Extent rope_dims,
                          Extent rank) {
  if (from.heads == 0 || from.neighbours == to.neighbours) return b;
  return with_rows_turned(b, from.heads, rope_dims, static_cast<std::size_t>(rank), to.neighbours);
}

/// The target's rows of an array that has `width` values for each row of its tensor.
std::vector<float> rows_of_target(const std::vector<float>& values, const ModuleTarget& target, Extent width) {
  std::vector<float> rows(static_cast<std::size_t>(target.rows * width));
  for (Extent row = 0; row < target.rows; ++row)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row_in_tensor(target, row) * width), width,
                rows.begin() + static_cast<std::ptrdiff_t>(row * width));
  return rows;
}

/// Puts a number for each row of a target to its places among all rows of the tensor; rows of others get `usual` at first.
void put_rows(std::vector<float>& all, const std::vector<float>& values, const ModuleTarget& target, float usual) {
  if (values.empty()) return;
  if (all.empty()) all.assign(static_cast<std::size_t>(target.out), usual);
  for (Extent row = 0; row < target.rows; ++row)
    all[static_cast<std::size_t>(row_in_tensor(target, row))] = values[static_cast<std::size_t>(row)];
}

std::map<std::string, ModuleTarget> by_node(const std::multimap<std::string, ModuleTarget>& targets) {
  std::map<std::string, ModuleTarget> nodes;
  for (const auto& [module, target] : targets) nodes.emplace(target.node, target);
  return nodes;
}

}  // namespace

std::string_view without_prefix(std::string_view module) {
  constexpr std::string_view kParts[] = {"base_model.",     "model.",      "transformer.",
                                         "language_model.", "text_model.", "backbone."};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view part : kParts)
      if (module.starts_with(part)) {
        module.remove_prefix(part.size());
        found = true;
      }
  }
  return module;
}

std::multimap<std::string, ModuleTarget> module_targets(const ModelGraph& graph) {
  const auto layouts = layouts_of(graph);
  std::multimap<std::string, ModuleTarget> targets;
  for (const OpNode& node : graph.nodes) {
    if (!takes_low_rank(node)) continue;
    const TensorDesc& weight = graph.at(node.inputs[1]);
    if (weight.keys.size() != 1) continue;
    ModuleTarget target{node.id, weight.shape[1].value, weight.shape[0].value, weight.shape[0].value};
    if (weight.cut) {
      const Cut& cut = *weight.cut;
      if (cut.of_columns || cut.transposed) continue;
      target.cut = &cut;
      target.out = cut.groups * cut.rows;
    }
    target.transposed = weight.transposed;
    if (const auto found = layouts.find(weight.name); found != layouts.end()) {
      target.heads = found->second.heads;
      target.neighbours = found->second.neighbours;
    }
    std::string key = weight.keys[0];
    if (key.ends_with(kWeight)) key.resize(key.size() - kWeight.size());
    // The head of a tied model is the table of tokens; adapters name it apart.
    if (node.id == "lm_head" && weight.name == "embed.weight") key = graph.config.from_gguf ? "output" : "lm_head";
    targets.emplace(std::move(key), std::move(target));
  }
  return targets;
}

std::vector<LowRank> changes_of(const ModuleChanges& modules, const ModelGraph& graph, const ModelGraph& form,
                                const std::string& source) {
  const std::multimap<std::string, ModuleTarget> targets = module_targets(form);
  const std::map<std::string, ModuleTarget> own = by_node(module_targets(graph));
  std::map<std::string_view, std::string> names;  // of modules by what is behind their prefix
  for (const auto& [module, target] : targets) names.emplace(without_prefix(module), module);
  std::string problems;
  int count = 0;
  const auto problem = [&](const std::string& fact) {
    if (++count <= 10) problems += "\n  " + fact;
  };
  std::set<std::string> of_experts;
  std::vector<LowRank> changes = expert_changes_of(modules, form, of_experts, problem);
  for (const auto& [given, change] : modules) {
    if (of_experts.contains(given)) continue;
    const auto name = names.find(without_prefix(given));
    if (name == names.end()) {
      problem(fmt::format("{}: the model has no product of this name that an adapter can change", quote(given, 120)));
      continue;
    }
    const auto [begin, end] = targets.equal_range(name->second);
    if (change.experts > 0 || begin->second.in != change.in || begin->second.out != change.out) {
      problem(fmt::format("{}: it changes a matrix of {} x {}, the model's is {} x {}", quote(given, 120), change.out,
                          change.in, begin->second.out, begin->second.in));
      continue;
    }
    for (auto it = begin; it != end; ++it) {
      const ModuleTarget& target = it->second;
      const auto mine = own.find(target.node);
      if (mine == own.end()) {
        problem(fmt::format("{}: the product {} has no matrix of its own in the model's file", quote(given, 120),
                            target.node));
        continue;
      }
      const auto rows_of = [&](const std::vector<float>& values, Extent width) {
        return turned(rows_of_target(values, target, width), target, mine->second, graph.config.rope_dims, width);
      };
      LowRank& made = changes.emplace_back(LowRank{target.node, change.rank, change.in, target.rows, change.a,
                                                   rows_of(change.b, change.rank), change.scale});
      if (!change.magnitude.empty()) made.magnitude = rows_of(change.magnitude, 1);
      made.strength = change.strength;
    }
  }
  if (count > 10) problems += fmt::format("\n  and {} more", count - 10);
  if (count > 0)
    throw FileError(
        fmt::format("{}: {} part{} of the adapter {} not fit the model {}; is it an adapter of this model?{}", source,
                    count, count == 1 ? "" : "s", count == 1 ? "does" : "do", graph.config.source, problems));
  return changes;
}

ModuleChanges modules_of(const std::vector<LowRank>& changes, const ModelGraph& graph, const ModelGraph& form) {
  const std::multimap<std::string, ModuleTarget> targets = module_targets(form);
  const std::map<std::string, ModuleTarget> own = by_node(module_targets(graph));
  ModuleChanges modules;
  for (const LowRank& change : changes) {
    if (change.experts > 0) continue;
    const auto found =
        std::find_if(targets.begin(), targets.end(), [&](const auto& t) { return t.second.node == change.node; });
    if (found == targets.end())
      throw FileError(
          fmt::format("{}: the product {} has no matrix of its own in this kind of file, so an adapter of "
                      "it cannot be written; write the other kind",
                      graph.config.source, change.node));
    const ModuleTarget& target = found->second;
    const auto turned_here = [&](const std::vector<float>& values, Extent width) {
      return values.empty() ? values : turned(values, own.at(change.node), target, graph.config.rope_dims, width);
    };
    std::vector<float> b = turned_here(change.b, change.rank);
    ModuleChange& module = modules[found->first];
    if (module.rank == 0) module.scale = change.scale;
    // Rows that get no length of their own show as 0 below.
    put_rows(module.magnitude, turned_here(change.magnitude, 1), target, 0);
    put_rows(module.gain, turned_here(change.gain, 1), target, 1);
    if (change.scale != module.scale)
      for (float& value : b) value = static_cast<float>(value * (change.scale / module.scale));
    // Products that share a tensor have ranks side by side: each its own rows of B.
    const Extent before = module.rank;
    std::vector<float> all(static_cast<std::size_t>(target.out * (before + change.rank)), 0.0F);
    const auto at = [&](Extent row, Extent column) {
      return static_cast<std::size_t>(row * (before + change.rank) + column);
    };
    for (Extent row = 0; before > 0 && row < target.out; ++row)
      std::copy_n(module.b.begin() + static_cast<std::ptrdiff_t>(row * before), before,
                  all.begin() + static_cast<std::ptrdiff_t>(at(row, 0)));
    for (Extent row = 0; row < target.rows; ++row)
      std::copy_n(b.begin() + static_cast<std::ptrdiff_t>(row * change.rank), change.rank,
                  all.begin() + static_cast<std::ptrdiff_t>(at(row_in_tensor(target, row), before)));
    module.a.insert(module.a.end(), change.a.begin(), change.a.end());
    module.rank = before + change.rank;
    module.in = target.in;
    module.out = target.out;
    module.b = std::move(all);
  }
  for (const auto& [name, module] : modules)
    if (std::find(module.magnitude.begin(), module.magnitude.end(), 0.0F) != module.magnitude.end())
      throw FileError(fmt::format(
          "{}: {} is one matrix in this kind of file, and only a part of its rows has magnitudes; train all of "
          "its products with magnitudes (dora), or none",
          graph.config.source, name));
  return modules;
}

}  // namespace weft::llm
