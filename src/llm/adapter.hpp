// Adapters by low-rank matrices (LoRA, Hu et al. 2021): products of a model get a second way, x -> (x A^T) B^T, which is added. With
// magnitudes (DoRA, Liu et al. 2024, arXiv:2402.09353) each row of W + B A then gets a length of its own: what the product gives is
// multiplied by a gain for each column.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/ir.hpp"

namespace weft::llm {

/// What is added to one product y = x W^T of a graph, or to such a product of each expert of a mixture.
struct LowRank {
  std::string node;  ///< id of the product; of experts `changed_gate_ups` or `changed_downs` of their node
  Extent rank = 0, in = 0, out = 0;
  std::vector<float> a;  ///< [rank, in]
  std::vector<float> b;  ///< [out, rank]
  double scale = 1;      ///< of the change: alpha / rank, times what the user asked for unless there are magnitudes
  /// Of DoRA, [out]: the lengths that rows of W + scale B A get.
  std::vector<float> magnitude = {};
  double strength = 1;  ///< with magnitudes: the share of the whole change that counts, as the user asked for it
  /// [out], or empty: the product is multiplied by it before the change is added. Magnitudes become gains once W is known.
  std::vector<float> gain = {};

  /// Of experts, else 0: a is [experts, rank, in], and b [experts, out, rank] has for gates and ups the rows of the gates first.
  Extent experts = 0;

  bool has_gain() const { return !magnitude.empty() || !gain.empty(); }
  /// B times the scale.
  std::vector<float> scaled_b() const;
};

/// The parts of a product's second way in the graph: constants without keys, whose values the adapter has.
std::string low_rank_a(std::string_view node);
std::string low_rank_b(std::string_view node);
std::string low_rank_gain(std::string_view node);

/// What can be changed of a node of experts: what gates and ups, of one A, make of their input, and what downs make of theirs.
std::string changed_gate_ups(std::string_view node);
std::string changed_downs(std::string_view node);

/// Whether the node is a product that can be changed: its weight is one matrix.
bool takes_low_rank(const OpNode& node);

/// Adds a second way of this rank to a product, and with `has_gain` a gain of its first way; or to products of experts. InternalError for
/// an id that is none.
void add_low_rank(ModelGraph& graph, std::string_view node, Extent rank, bool has_gain = false);

/// Changes of several adapters as one list, in the order of the graph: those of the same product side by side, so ranks add up, and so
/// does what gains differ from 1. Errors: InternalError for magnitudes.
std::vector<LowRank> joined(const ModelGraph& graph, std::span<const std::vector<LowRank>> adapters);

}  // namespace weft::llm
