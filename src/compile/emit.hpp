// Turns nodes into one loop kernel: the steps that compute some stored values over a frame.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compile/access.hpp"
#include "compile/kernel.hpp"
#include "compile/sources.hpp"
#include "graph/node.hpp"

namespace weft::compiler {

using NodeSet = std::unordered_set<const graph::Node*>;

/// The place of a value inside the memory of its owner (itself, or the concat that it is a part of).
struct Place {
  const graph::Node* owner = nullptr;
  Extent offset = 0;
  std::vector<Extent> strides;
};
using PlaceOf = std::function<Place(const graph::Node*)>;

/// A kernel whose operands are still nodes: inputs[i] and outputs[i] own the memory of the kernel's operand i.
struct BuiltLoop {
  kernel::LoopKernel kernel;
  std::vector<const graph::Node*> inputs, outputs;
};

/// Nodes that are computed wherever they are read, instead of being loaded: members of the kernel being built, constants,
/// iotas, and nodes in `inlined`.
struct EmitContext {
  const NodeSet* members = nullptr;
  const NodeSet* inlined = nullptr;
  const graph::Node* product = nullptr;  // the matrix product, for epilogues
  PlaceOf place;
};

class Emitter {
 public:
  Emitter(Frame frame, const EmitContext& context) : frame_(std::move(frame)), context_(context) {
    built_.kernel.steps.reserve(8);  // most kernels have fewer, and many are emitted only for their cost
    hashes_.reserve(8);
  }

  /// Emits the node and returns the step with its value at that access. Throws MustMaterialize or SplitFrame.
  int emit(const graph::Node* node, const Access& access);
  /// Emits the node and stores it in its place.
  void store(const graph::Node* node, const Access& access);
  /// True when some member was computed at two different accesses.
  bool recomputes() const { return recomputes_; }
  BuiltLoop finish(std::string name);

 private:
  int add(kernel::Step step);
  bool in_memory(const graph::Node* node) const;
  int emit_load(const graph::Node* node, const Access& access, const Place& place);
  int emit_map(const graph::Node* node, const Access& access);
  int emit_reduce(const graph::Node* node, const Access& access);
  int emit_gather(const graph::Node* node, const Access& access);
  int raised(int value);
  kernel::Level level_of(const Access& access) const;
  kernel::View view_of(const Access& access, const Place& place, kernel::Level level, const graph::Node* blame) const;
  int input_operand(const graph::Node* owner);

  Frame frame_;
  const EmitContext& context_;
  BuiltLoop built_;
  std::map<std::pair<const graph::Node*, std::vector<Extent>>, int> memo_;
  std::unordered_map<const graph::Node*, std::vector<Extent>> access_of_member_;
  std::vector<std::uint64_t> hashes_;  // of the kernel's steps
  std::unordered_map<const graph::Node*, int> operands_;
  bool recomputes_ = false;
};

/// The type, shape and name of a node for messages: "layer_norm f32 [2, 3]" or the label.
std::string title(const graph::Node& node);

}  // namespace weft::compiler
