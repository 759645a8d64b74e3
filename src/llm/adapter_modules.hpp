// Changes of a graph's products as changes of the tensors of a kind of file, and back.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llm/adapter.hpp"
#include "llm/cut.hpp"

namespace weft::llm {

/// The change of one tensor of a model's files: it counts as [out, in], whether files hold it so or transposed.
struct ModuleChange {
  Extent rank = 0, in = 0, out = 0;
  std::vector<float> a;                          ///< [rank, in]
  std::vector<float> b;                          ///< [out, rank]
  double scale = 1;                              ///< of the change
  std::vector<float> magnitude = {}, gain = {};  ///< [out], or empty; as `LowRank` has them
  double strength = 1;
  Extent experts = 0;  ///< of stacked matrices: a is [experts, rank, in] and b [experts, out, rank]
};
using ModuleChanges = std::map<std::string, ModuleChange>;  ///< by the tensor's name without ".weight"

/// Files name the same module with other parts before its layer: "model.layers.0.mlp.up_proj" is "language_model.layers..." too.
std::string_view without_prefix(std::string_view module);

/// A product whose weight is a tensor of a file, or a part of its rows.
struct ModuleTarget {
  std::string node;
  Extent in = 0, out = 0;  ///< of the tensor
  Extent rows = 0;         ///< of the product
  const Cut* cut = nullptr;
  Extent heads = 0;  ///< of rows that turn with the position; 0: they do not
  bool neighbours = false;
  bool transposed = false;
};
/// The products of a graph by their module.
std::multimap<std::string, ModuleTarget> module_targets(const ModelGraph& graph);

/// `form` is the graph that a kind of file gives the model; it may be `graph` itself.
/// FileError that names modules without a product, and changes of another shape; `source` opens the message.
std::vector<LowRank> changes_of(const ModuleChanges& modules, const ModelGraph& graph, const ModelGraph& form,
                                const std::string& source);
/// Changes of products; those of experts are `expert_modules_of`.
ModuleChanges modules_of(const std::vector<LowRank>& changes, const ModelGraph& graph, const ModelGraph& form);

}  // namespace weft::llm
