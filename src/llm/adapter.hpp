// Adapters by low-rank matrices (LoRA, Hu et al. 2021): products of a model get a second way, x -> (x A^T) B^T, which is added.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/ir.hpp"

namespace weft::llm {

/// What is added to one product y = x W^T of a graph.
struct LowRank {
  std::string node;  ///< id of the product
  Extent rank = 0, in = 0, out = 0;
  std::vector<float> a;  ///< [rank, in]
  std::vector<float> b;  ///< [out, rank]
  double scale = 1;      ///< of the change: alpha / rank, times what the user asked for

  /// B times the scale.
  std::vector<float> scaled_b() const;
};

/// The parts of a product's second way in the graph: constants without keys, whose values the adapter has.
std::string low_rank_a(std::string_view node);
std::string low_rank_b(std::string_view node);

/// Whether the node is a product that can be changed: its weight is one matrix.
bool takes_low_rank(const OpNode& node);

/// Adds a second way of this rank to a product. InternalError for an id that is none.
void add_low_rank(ModelGraph& graph, std::string_view node, Extent rank);

/// Changes of several adapters as one list, in the order of the graph: those of the same product side by side, so ranks add up.
std::vector<LowRank> joined(const ModelGraph& graph, std::span<const std::vector<LowRank>> adapters);

}  // namespace weft::llm
