// Low-rank changes of experts: what files of adapters call them, and in which order they keep them.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "llm/adapter.hpp"
#include "llm/adapter_modules.hpp"

namespace weft::llm {

/// Folders of PEFT have the gates and ups of a layer's experts as one parameter, and the downs as another.
constexpr std::string_view kGateUp = "gate_up_proj", kDown = "down_proj";

/// A folder's matrices A [experts rank, in] and B [out, rank experts] as [experts, rank, in] and [experts, out, rank].
void stack_experts(ModuleChange& change, Extent experts);
/// And back.
void unstack_experts(ModuleChange& change);

/// The changes of experts among those of `modules`, whose names are added to `used`. `form` is the graph that the adapter's kind of file
/// gives the model. Changes of gates, ups and single experts are put side by side, with zeros for the others. `problem` is called for
/// those that do not fit.
std::vector<LowRank> expert_changes_of(const ModuleChanges& modules, const ModelGraph& form,
                                       std::set<std::string>& used,
                                       const std::function<void(const std::string&)>& problem);

/// Changes of experts as tensors of a GGUF file, [experts, rank, in] and [experts, out, rank], or of a folder, whose names end in
/// ".experts.gate_up_proj" and ".experts.down_proj". Others stay out.
ModuleChanges expert_modules_of(const std::vector<LowRank>& changes, const ModelGraph& form);

/// What is added to the matrices of experts [first, first + count) of a constant, [count, rows, columns]; nothing if the changes leave it.
std::optional<std::vector<float>> expert_deltas(const std::vector<LowRank>& changes, const ModelGraph& graph,
                                                std::string_view constant, Extent first, Extent count);

}  // namespace weft::llm
