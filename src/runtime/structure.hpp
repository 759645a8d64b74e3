// The structure of a graph: everything that a plan depends on. Of leaves only type and shape matter. Numbers of the program and
// starts of slices are kept separately, because they may change from run to run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/node.hpp"

namespace weft::runtime {

struct Structure {
  /// Equal programs have equal keys, whatever the identities of their leaves and the values of their holes.
  std::vector<std::uint64_t> key;
  std::uint64_t hash = 0;
  /// In the order of a depth-first walk from the outputs. A node that was already computed is a leaf.
  std::vector<const graph::Node*> nodes, leaves;
  std::vector<char> is_leaf;  // for each node
  /// A number that a node reads (`at` is the input, a constant or views of one), or the start of a slice of a leaf (`at` is the
  /// axis). Each reader has its own hole, so numbers that happen to be equal do not change the structure.
  struct Hole {
    const graph::Node* reader;
    int at;
    bool is_start;
    std::uint64_t value;
  };
  std::vector<Hole> holes;
  /// Concats with so many parts that they are first computed in pieces.
  std::vector<const graph::Node*> wide_concats;
};
constexpr std::size_t kWideConcat = 64;

/// Empties `result` and fills it. `settings`: everything else that the plan depends on, as one word.
void structure_of(std::span<const graph::NodeRef> outputs, std::uint64_t settings, Structure& result);

/// A copy of the graph, made of nodes that nobody else knows: each leaf is a data node without elements, and some holes are
/// filled from operands. Other threads may go on computing nodes of the original.
struct Blueprint {
  std::vector<graph::NodeRef> outputs;
  std::vector<graph::NodeRef> leaves;  // for each leaf of the structure
  /// Values of all holes of one type: a data node [n], and the holes in its order.
  struct Operand {
    DType type;
    std::vector<std::size_t> holes;
    graph::NodeRef node;
  };
  std::vector<Operand> operands;
};
/// `is_operand` says for each hole whether its value comes from an operand. Nodes go into the current table.
Blueprint blueprint_of(std::span<const graph::NodeRef> outputs, const Structure& structure,
                       const std::vector<bool>& is_operand);
/// How a hole may be filled. The choice must not change the bits of a result.
enum class Filling : std::uint8_t {
  value,    // the exponent of a power that becomes another operation: x^2 is x * x
  either,   // the value, or an operand
  operand,  // functions of numbers alone, such as exp(0.3): the compiler rounds them better than a device
};
std::vector<Filling> fillings_of(const Structure& structure);
/// Elements of an operand in host form.
std::vector<std::byte> operand_bytes(const Blueprint::Operand& operand, const Structure& structure);

}  // namespace weft::runtime
