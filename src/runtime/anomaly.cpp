#include "weft/anomaly.hpp"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/scope_depth.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "runtime/anomaly.hpp"
#include "runtime/evaluate.hpp"
#include "runtime/op_cases.hpp"

namespace weft {

DetectAnomaly::DetectAnomaly() { ++scope_depth<DetectAnomaly>(); }
DetectAnomaly::~DetectAnomaly() { --scope_depth<DetectAnomaly>(); }
bool anomaly_detection_enabled() { return scope_depth<DetectAnomaly>() > 0; }

namespace runtime {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;

class Pause {
 public:
  Pause() : depth_(std::exchange(scope_depth<DetectAnomaly>(), 0)) {}
  ~Pause() { scope_depth<DetectAnomaly>() = depth_; }
  Pause(const Pause&) = delete;

 private:
  int depth_;
};

bool has_values(const Node& node) {
  if (!is_float(node.type) || is_block(node.type) || node.packed) return false;
  return !(node.kind == Kind::call && graph::has_several_results(node)) && node.kind != Kind::input;
}

// The position of the first NaN, or -1.
Extent first_nan(const NodeRef& node) {
  if (!has_values(*node)) return -1;
  const std::vector<double> numbers = numbers_of(Tensor(node));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (std::isnan(numbers[i])) return static_cast<Extent>(i);
  return -1;
}

std::string name_of_op(const Node& node) {
  const Node& maker = node.kind == Kind::project ? *node.inputs[0] : node;
  if (maker.within.op) {
    const std::string part = maker.name.empty() ? std::string(graph::name_of(maker.kind)) : maker.name;
    return maker.within.op->name == part ? part : fmt::format("{} ({})", maker.within.op->name, part);
  }
  if (maker.kind == Kind::call) return maker.op->name;
  return maker.name.empty() ? std::string(graph::name_of(maker.kind)) : maker.name;
}

// The values that a value was computed from.
std::vector<NodeRef> operands_of(const Node& node) {
  return node.kind == Kind::project ? graph::made_of(*node.inputs[0]) : graph::made_of(node);
}

[[noreturn]] void report(const Node& node, Extent position) {
  std::string fact;
  std::vector<std::pair<std::string, Tensor>> operands;
  if (node.inputs.empty()) {
    fact = fmt::format("a given value has a NaN, element {}", position);
    operands.emplace_back("value", Tensor(node.shared_from_this()));
  } else {
    fact = fmt::format("made the first NaN, element {} of its result, from operands without one", position);
    if (node.within.gradient) fact += "; it is part of a gradient, and the line is that of the op whose gradient it is";
    const std::vector<NodeRef>& inputs = node.kind == Kind::project ? node.inputs[0]->inputs : node.inputs;
    for (const NodeRef& input : inputs)
      operands.emplace_back(fmt::format("operand {}", operands.size()), Tensor(input));
    operands.emplace_back("result", Tensor(node.shared_from_this()));
  }
  throw AnomalyError(graph::describe(name_of_op(node), fact, operands, node.where));
}

void search(const NodeRef& root) {
  const NodeRef roots[] = {root};
  const std::vector<const Node*> order =
      graph::topological_order_along(roots, [](const Node& node) { return operands_of(node); });
  std::vector<NodeRef> missing;  // computed together, each to memory of its own
  for (const Node* node : order)
    if (has_values(*node) && !node->storage && node->kind != Kind::constant)
      missing.push_back(node->shared_from_this());
  evaluate(missing);
  for (const Node* node : order)
    if (const Extent position = first_nan(node->shared_from_this()); position >= 0) report(*node, position);
}

}  // namespace

void check_for_anomalies(std::span<const NodeRef> evaluated) {
  const Pause without_checks;
  for (const NodeRef& node : evaluated)
    if (first_nan(node) >= 0) search(node);
}

}  // namespace runtime
}  // namespace weft
