#include "compile/forms.hpp"

#include <fmt/format.h>

#include "compile/strided.hpp"
#include "graph/attention.hpp"
#include "graph/packed.hpp"

namespace weft::compiler {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using kernel::Operand;

/// The operand. It exists, because copies.hpp made a copy where views prevented it.
template <class Found>
Found found(std::optional<Found> operand, const Node& node, const Node& input, std::string_view needs) {
  if (!operand)
    throw InternalError(fmt::format("compile: {} of {} needs {} in memory", title(input), title(node), needs));
  return *operand;
}

PlaceOf places_of(const Placement& placement) {
  return [&placement](const Node* node) { return placement.of(node); };
}

}  // namespace

DraftKernel draft_of_product(const Node& product, BuiltLoop loop, const Placement& placement) {
  const PlaceOf place = places_of(placement);
  const Node &a = *product.inputs[0], &b = *product.inputs[1];
  DraftKernel draft;
  draft.writes = std::move(loop.outputs);
  if (a.shape[2] == 0) {
    for (kernel::Step& step : loop.kernel.steps)
      if (step.kind == kernel::StepKind::accumulator) step = {.kind = kernel::StepKind::constant, .type = step.type};
    draft.kernel = std::move(loop.kernel);
    draft.reads = std::move(loop.inputs);
    return draft;
  }
  constexpr std::string_view kNeeds = "rows and columns with strides";
  if (graph::is_call_of(product, graph::packed_matmul_row())) {
    const MatmulOperand rows = found(matmul_operand(&a, place), product, a, kNeeds);
    draft.reads.push_back(rows.owner);
    const auto attributes = graph::attributes_of<graph::PackedMatmul>(product);
    kernel::PackedMatmulKernel k{.name = loop.kernel.name};
    k.m = product.shape[1];
    k.n = product.shape[2];
    k.k = a.shape[2];
    k.block_type = b.type;
    k.exact = attributes.exact;
    k.a = {.type = product.type, .offset = rows.offset};
    k.a_row = rows.row;
    const ContiguousOperand weights = found(contiguous_operand(&b, place), product, b, "contiguous elements");
    k.weights = {.type = b.type, .offset = weights.offset};
    draft.reads.push_back(weights.owner);
    k.epilogue = std::move(loop.kernel);
    draft.reads.insert(draft.reads.end(), loop.inputs.begin(), loop.inputs.end());
    if (product.inputs.size() > 2) {
      const Node& input = *product.inputs[2];
      const ContiguousOperand experts = found(contiguous_operand(&input, place), product, input, "contiguous elements");
      k.experts = {{.type = DType::i32, .offset = experts.offset}, b.shape[0], k.m / std::max<Extent>(1, a.shape[1])};
      draft.reads.push_back(experts.owner);
    }
    draft.kernel = std::move(k);
    return draft;
  }
  kernel::MatmulKernel k{.name = loop.kernel.name};
  k.batch = product.shape[0];
  k.m = product.shape[1];
  k.n = product.shape[2];
  k.k = a.shape[2];
  const auto read = [&](Operand& operand, kernel::MatrixView& view, const Node& input) {
    MatrixOperand at = found(matrix_operand(&input, place), product, input, kNeeds);
    operand = {.type = input.type, .offset = at.offset};
    view = std::move(at.view);
    draft.reads.push_back(at.owner);
  };
  read(k.a, k.a_view, a);
  read(k.b, k.b_view, b);
  k.epilogue = std::move(loop.kernel);
  draft.reads.insert(draft.reads.end(), loop.inputs.begin(), loop.inputs.end());
  draft.kernel = std::move(k);
  return draft;
}

DraftKernel draft_of_scatter(const Node& node, const Placement& placement) {
  const PlaceOf place = places_of(placement);
  const Node &indices = *node.inputs[0], &updates = *node.inputs[1];
  DraftKernel draft;
  kernel::ScatterAddKernel k;
  k.name = "scatter_add";
  k.count = indices.shape[0];
  k.rows = node.shape[0];
  k.columns = node.shape[1];
  k.indices.type = indices.type;
  k.updates.type = updates.type;
  if (k.count > 0) {
    const auto read = [&](Operand& operand, const Node& input) {
      const ContiguousOperand at = found(contiguous_operand(&input, place), node, input, "contiguous elements");
      operand.offset = at.offset;
      draft.reads.push_back(at.owner);
    };
    read(k.indices, indices);
    read(k.updates, updates);
  }
  const Place out = placement.of(&node);
  k.out = {.type = node.type, .offset = out.offset};
  draft.kernel = std::move(k);
  draft.writes = {out.owner};
  return draft;
}

DraftKernel draft_of_call(const Node& node, const Placement& placement, std::vector<NodeRef>& results) {
  const PlaceOf place = places_of(placement);
  DraftKernel draft;
  const graph::Call call(node);
  kernel::CallKernel k{.name = node.name, .op = node.op, .attributes = call.words()};
  if (call.inputs().size() > node.inputs.size())
    for (const Tensor& input : call.inputs()) k.given.push_back(input.defined());
  for (const NodeRef& input : node.inputs) {
    const ContiguousOperand at = found(contiguous_operand(input.get(), place), node, *input, "contiguous elements");
    k.reads.push_back({.type = input->type, .offset = at.offset});
    k.shapes.push_back(input->shape);
    k.types.push_back(input->type);
    draft.reads.push_back(at.owner);
  }
  auto write = [&](const Node& result) {
    k.outs.push_back({.type = result.type});
    k.out_shapes.push_back(result.shape);
    k.out_types.push_back(result.type);
    draft.writes.push_back(&result);
  };
  if (graph::has_several_results(node)) {
    const std::size_t count = node.op->infer(call).size();
    for (std::size_t i = 0; i < count; ++i) {
      results.push_back(graph::project(node.shared_from_this(), static_cast<int>(i)));
      write(*results.back());
    }
  } else {
    write(node);
  }
  double elements = 0;
  for (const Shape& shape : k.out_shapes) elements += static_cast<double>(shape.numel());
  k.flops = node.op->flops ? node.op->flops(call) : elements;
  draft.kernel = std::move(k);
  return draft;
}

DraftKernel draft_of_attention(const Node& node, const Placement& placement, std::vector<NodeRef>& results) {
  const PlaceOf place = places_of(placement);
  const Shape &q = node.inputs[0]->shape, &keys = node.inputs[1]->shape;
  DraftKernel draft;
  kernel::AttentionKernel k;
  k.backward = graph::is_call_of(node, graph::attention_backward_row());
  k.name = k.backward ? "attention_backward" : "attention";
  k.batch = q[0];
  k.queries = q[1];
  k.heads = q[2];
  k.kv_heads = keys[2];
  k.width = q[3];
  k.keys = keys[1];
  const auto attributes = graph::attributes_of<graph::AttentionAttributes>(node);
  k.scale = attributes.scale;
  k.causal = attributes.causal;
  k.window = attributes.window;
  k.shift = attributes.shift;
  k.dropped = attributes.dropped;
  auto read = [&](kernel::AttentionKernel::Tensor& tensor, std::size_t i) {
    const Node& input = *node.inputs[i];
    const AttentionOperand at = found(attention_operand(&input, place), node, input, "one stride an axis");
    tensor = {{.type = input.type, .offset = at.offset}, at.batch, at.head, at.row};
    draft.reads.push_back(at.owner);
  };
  // The op's own rules do not expect inputs of narrow types, so the results take the types of the call, or those that
  // narrow_results.hpp gave them.
  auto type_of = [&](int index) {
    const auto given = placement.result_types.find({&node, index});
    return given == placement.result_types.end() ? node.type : given->second;
  };
  auto result = [&](int index, const Shape& shape) {
    results.push_back(graph::make_node({.kind = Kind::project,
                                        .type = type_of(index),
                                        .shape = shape,
                                        .device = node.device,
                                        .inputs = {node.shared_from_this()},
                                        .ints = {index}}));
    return placement.of(results.back().get());
  };
  auto write = [&](kernel::AttentionKernel::Tensor& tensor, int index) {
    const Place at = result(index, index == 0 ? q : keys);
    tensor = {{.type = type_of(index), .offset = at.offset}, at.strides[0], at.strides[2], at.strides[1]};
    draft.writes.push_back(at.owner);
  };
  const auto whole = [&](const Node& input) -> kernel::Operand {
    const ContiguousOperand at = found(contiguous_operand(&input, place), node, input, "contiguous elements");
    draft.reads.push_back(at.owner);
    return {.type = input.type, .offset = at.offset, .count = input.shape.numel()};
  };
  const graph::Call call(node);
  const graph::AttentionInputs extra(call);
  read(k.q, 0);
  read(k.k, 1);
  read(k.v, 2);
  if (extra.mask.defined()) {
    const Shape& shape = extra.mask.shape();
    const auto strides = contiguous_strides(shape);
    const auto stride = [&](int axis) { return shape[axis] == 1 ? 0 : strides[static_cast<std::size_t>(axis)]; };
    k.mask = {whole(*extra.mask.node()), stride(0), stride(1), stride(2), stride(3)};
  }
  if (extra.key_spans.defined()) k.key_spans = whole(*extra.key_spans.node());
  if (extra.seed.defined()) k.seed = whole(*extra.seed.node());
  k.logsumexp.type = node.type;
  if (k.backward) {
    read(k.o, 3);
    k.logsumexp = whole(*node.inputs[4]);
    read(k.d_o, 5);
    if (extra.query_spans.defined()) k.query_spans = whole(*extra.query_spans.node());
    write(k.d_q, 0);
    write(k.d_k, 1);
    write(k.d_v, 2);
  } else {
    write(k.o, 0);
    draft.writes.push_back(result(1, {q[0], q[2], q[1]}).owner);
  }
  draft.kernel = std::move(k);
  return draft;
}

}  // namespace weft::compiler
