// A loop kernel as its compiler sees it: steps with explicit types over a rectangle, pairs of them joined.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "backend/cpu/access.hpp"
#include "backend/cpu/loop/chain.hpp"
#include "backend/cpu/loop/loop.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// A step with explicit types, or two of them joined.
struct LoopNode {
  kernel::StepKind kind = kernel::StepKind::constant;
  DType type = DType::f32;
  scalar::Op op = scalar::Op::input;
  Joined joined = Joined::none;
  scalar::Reduction reduction = scalar::Reduction::sum;
  int squares_around = -1;  // a sum of squared differences of the operand from its mean: the node of its sum
  std::vector<int> args;
  int operand = -1;
  Access access;
  Extent axis_stride = 0, axis_extent = 0;
  double value = 0;
  bool slow = false, fast = false, outer = true;
  int phase = 0;
  int uses = 0;
  bool copied = false;  // a load that is copied once, for the later phases
};

struct StoreNode {
  int value;
  int output;
  Access access;
  bool outer;
  int phase = 0;
};

struct LoopNodes {
  const kernel::LoopKernel& kernel;
  DType product_type;
  int product_output;         // -1: none
  bool flat = false;          // elementwise: the rectangle is cut from the one space of the kernel
  bool part_by_part = false;  // an epilogue, which runs on parts of a product
  bool columns = false;       // the inner axis is the slow one
  Extent outer = 1, inner = 1;
  Extent run = 0;       // blocks do not cross its multiples along outer
  Extent fast_run = 0;  // tiles do not cross its multiples along inner
  std::vector<LoopNode> nodes = {};
  std::vector<StoreNode> stores = {};
  int phases = 1;

  LoopNode& operator[](int index) { return nodes[static_cast<std::size_t>(index)]; }
  const LoopNode& operator[](int index) const { return nodes[static_cast<std::size_t>(index)]; }
  int count() const { return static_cast<int>(nodes.size()); }
  /// Whether the output's elements are also an input's (input -1: the product).
  bool overlaps(int output, int input) const;
  /// Loads that ops read in place: one stride on the slow axis, 1 (or 0) on the fast one.
  bool is_memory(int node) const;
  Extent copied_columns = 0;  // together, where loads are copied
};

/// The same work in an order in which memory is read in longer runs, if there is one; for kernels that are not epilogues.
std::optional<kernel::LoopKernel> reordered(const kernel::LoopKernel& kernel);
/// Arguments as LoopProgram's. The kernel must outlive the result.
LoopNodes read_nodes(const kernel::LoopKernel& kernel, Extent columns, DType product_type, int product_output);
/// a * b + c and similar pairs, and a comparison that is only a condition, become one node.
void join_pairs(LoopNodes& nodes);

/// What a map node is in a chain, if it can be part of one: an op on floats, or a cast between floats and a narrow type.
inline std::optional<ChainOp> chain_op_of(const LoopNodes& nodes, int index) {
  const LoopNode& node = nodes[index];
  if (node.kind != kernel::StepKind::map) return {};
  if (node.op == scalar::Op::cast && node.joined == Joined::none) {
    const DType from = nodes[node.args.at(0)].type;
    const bool widens = node.type == DType::f32 && is_chain_type(from);
    const bool narrows = from == DType::f32 && is_chain_type(node.type);
    const ChainOp cast{.op = node.op, .to = node.type};
    return widens != narrows && is_chain_op(cast) ? std::optional(cast) : std::nullopt;
  }
  bool floats = node.type == DType::f32;
  for (const int arg : node.args) floats = floats && nodes[arg].type == DType::f32;
  const ChainOp op{.op = node.op, .joined = node.joined};
  return floats && is_chain_op(op) ? std::optional(op) : std::nullopt;
}

inline bool is_comparison(scalar::Op op) { return op >= scalar::Op::eq && op <= scalar::Op::ge; }

}  // namespace weft::cpu
