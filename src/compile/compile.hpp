// From a graph to a plan: rewrites, copies where views cannot be read, fusion, kernels, order, memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/kernel.hpp"
#include "graph/node.hpp"

namespace weft::compiler {

/// What the compiler must know of a device.
struct Target {
  std::string name;
  std::function<std::size_t(DType)> storage_bytes;
  std::vector<DType> dtypes;
  std::size_t buffer_bytes_max = 0, binding_bytes_max = 0, offset_alignment = 64;
  bool prefers_separate_buffers = false;
  int operands_max = 64;
  Extent launch_points = 4096;   // independent kernels over no more points than this become one
  int kernels_side_by_side = 0;  // neighbours in the plan that the device may run at one time
  bool has_attention = true;     // fused attention kernels
  int attention_width_max = 128;
  Extent attention_keys_fused = 0;  // as in backend::Description
  std::size_t attention_score_bytes_max = 0;
  std::function<bool(ops::Routine)> has_routine;  // empty: none
  bool packed_products = false;                   // products with weights in blocks
  Extent computed_rows_max = 0;                   // rows of such a product that may be computed as they are read
};

struct Settings {
  bool fusion = true;
  bool fused_composites = true;
  std::vector<std::string> disabled_rewrites;
};

struct Request {
  std::vector<graph::NodeRef> outputs;
  /// For each output the leaf whose buffer it may take over (the old value of the Variable that it updates), or null.
  std::vector<const graph::Node*> may_overwrite;
};

struct Compiled {
  kernel::Plan plan;
  std::vector<graph::NodeRef> leaves;  // external buffers 0 .. leaves-1
  /// External ordinal of each output: a leaf's for an update in place, else one after the leaves.
  std::vector<int> output_external;
  int external_count = 0;
};

Compiled compile(const Request& request, const Target& target, const Settings& settings);

}  // namespace weft::compiler
