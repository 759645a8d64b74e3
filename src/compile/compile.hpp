// Turns a graph into a plan: rewrites, copies where views cannot be read, fusion, kernels, order, memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/capabilities.hpp"
#include "compile/kernel.hpp"
#include "graph/node.hpp"
#include "weft/product_precision.hpp"

namespace weft::compiler {

/// What the compiler must know of a device: its capabilities, and the size of values in its buffers.
struct Target : Capabilities {
  std::function<int(DType)> storage_bits;
  /// Bytes of a matrix [n, k] in the layout of `graph::has_packed_layout`.
  std::function<std::size_t(DType, Extent n, Extent k)> packed_bytes;
  /// At most SIZE_MAX, which no device holds: where addresses have 32 bits, shapes may have more elements.
  std::size_t storage_bytes(DType type, Extent count) const {
    const int bits = storage_bits(type);
    if (static_cast<std::uint64_t>(count) > SIZE_MAX / static_cast<std::size_t>((bits + 7) / 8)) return SIZE_MAX;
    return bytes_of_bits(bits, static_cast<std::size_t>(count));
  }
  std::size_t storage_bytes(const graph::Node& node) const {
    if (graph::has_packed_layout(node))
      return packed_bytes(node.type, graph::rows_of(node.shape), graph::columns_of(node.shape));
    return storage_bytes(node.type, node.shape.numel());
  }
};

struct Settings {
  bool fusion = true;
  bool fused_composites = true;
  std::vector<std::string> disabled_rewrites;
  ProductPrecision products = ProductPrecision::exact;
};

struct Request {
  std::vector<graph::NodeRef> outputs;
  /// For each output the leaf whose buffer it may overwrite (the old value of the Variable that it updates), or null.
  std::vector<const graph::Node*> may_overwrite;
};

struct Compiled {
  kernel::Plan plan;
  std::vector<graph::NodeRef> leaves;  // external buffers 0 .. leaves-1
  /// External ordinal of each output: a leaf's for an update in place, else an ordinal after the leaves.
  std::vector<int> output_external;
  int external_count = 0;
};

Compiled compile(const Request& request, const Target& target, const Settings& settings);

}  // namespace weft::compiler
