// Construction of nodes with shape and dtype rules. Folds only what gives the same node anyway. Gradients are identified by
// nodes, so a value that a user holds must stay in the graph. The compiler does the folding.
#include <cmath>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/hash.hpp"
#include "graph/map_row.hpp"
#include "graph/node.hpp"
#include "graph/op.hpp"
#include "ops/table.hpp"
#include "tensor/element.hpp"

namespace weft::graph {
namespace {

void check(bool condition, const char* what) {
  if (!condition) throw InternalError(std::string("graph: ") + what);
}

NodeRef view(Kind kind, const NodeRef& x, Shape shape, std::vector<Extent> ints = {}) {
  return make_node({.kind = kind,
                    .type = x->type,
                    .shape = std::move(shape),
                    .device = x->device,
                    .inputs = {x},
                    .ints = std::move(ints)});
}

// Typed expressions are interned, so that equal ones are one pointer and nodes compare by it. They are freed when nobody holds
// them.
std::shared_ptr<const scalar::Expression> intern(scalar::Expression expression) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_multimap<std::uint64_t, std::weak_ptr<const scalar::Expression>>;
  static std::size_t sweep_at = 1024;
  Hasher h;
  h.add(static_cast<std::uint64_t>(expression.inputs));
  for (const auto& i : expression.code) {
    h.add(static_cast<std::uint64_t>(i.op) | static_cast<std::uint64_t>(i.type) << 8);
    h.add(static_cast<std::uint64_t>(i.a + 1) | static_cast<std::uint64_t>(i.b + 1) << 20 |
          static_cast<std::uint64_t>(i.c + 1) << 40);
    h.add(static_cast<std::uint64_t>(i.slot + 1));
    h.add_double(i.value);
  }
  std::lock_guard lock(mutex);
  auto [first, last] = known.equal_range(h.digest());
  auto bits_equal = [&](const scalar::Expression& e) {
    if (!(e.inputs == expression.inputs && e.code.size() == expression.code.size())) return false;
    for (std::size_t i = 0; i < e.code.size(); ++i) {
      auto x = e.code[i], y = expression.code[i];
      if (std::bit_cast<std::uint64_t>(x.value) != std::bit_cast<std::uint64_t>(y.value)) return false;
      x.value = y.value = 0;  // NaN constants compare by bits
      if (!(x == y)) return false;
    }
    return true;
  };
  auto gone = known.end();  // an entry whose expression is freed; it is reused
  for (auto it = first; it != last; ++it)
    if (auto found = it->second.lock(); !found)
      gone = it;
    else if (bits_equal(*found))
      return found;
  auto made = std::make_shared<const scalar::Expression>(std::move(expression));
  if (gone != known.end()) {
    gone->second = made;
    return made;
  }
  if (known.size() >= sweep_at) {
    std::erase_if(known, [](const auto& each) { return each.second.expired(); });
    sweep_at = std::max<std::size_t>(1024, known.size() * 2);
  }
  known.emplace(h.digest(), made);
  return made;
}

}  // namespace

NodeRef constant(double value, DType type, const Shape& shape, Device device) {
  value = rounded_to(type, value);
  if (!is_float(type)) value += 0.0;  // no -0
  return make_node({.kind = Kind::constant, .type = type, .shape = shape, .device = device, .value = value});
}

NodeRef iota(const Shape& shape, int axis, DType type, Device device) {
  if (type != DType::i32 && type != DType::u32) return cast(iota(shape, axis, DType::i32, device), type);
  return make_node({.kind = Kind::iota, .type = type, .shape = shape, .device = device, .ints = {axis}});
}

NodeRef reshape(const NodeRef& x, const Shape& shape) {
  check(x->shape.numel() == shape.numel(), "reshape changes the number of elements");
  if (x->shape == shape) return x;
  return view(Kind::reshape, x, shape);
}

NodeRef permute(const NodeRef& x, const std::vector<Extent>& order) {
  check(order.size() == x->shape.size(), "permute order has another rank");
  bool identity = true;
  Shape shape;
  for (std::size_t i = 0; i < order.size(); ++i) {
    identity &= order[i] == static_cast<Extent>(i);
    shape.push_back(x->shape[static_cast<int>(order[i])]);
  }
  if (identity) return x;
  return view(Kind::permute, x, shape, order);
}

NodeRef expand(const NodeRef& x, const Shape& shape) {
  if (x->shape == shape) return x;
  check(x->shape.rank() <= shape.rank(), "expand to a lower rank");
  NodeRef from = x;
  if (x->shape.rank() < shape.rank()) {
    Shape padded;
    for (int i = 0; i < shape.rank() - x->shape.rank(); ++i) padded.push_back(1);
    for (Extent e : x->shape) padded.push_back(e);
    from = reshape(x, padded);
    if (padded == shape) return from;
  }
  for (int i = 0; i < shape.rank(); ++i)
    check(from->shape[i] == shape[i] || from->shape[i] == 1, "expand of an extent that is not 1");
  return view(Kind::expand, from, shape);
}

NodeRef slice(const NodeRef& x, const std::vector<Extent>& starts, const std::vector<Extent>& steps,
              const Shape& shape) {
  std::vector<Extent> ints;
  bool identity = x->shape == shape;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    ints.push_back(starts[i]);
    ints.push_back(steps[i]);
    identity &= starts[i] == 0 && (steps[i] == 1 || shape[static_cast<int>(i)] <= 1);
  }
  return identity ? x : view(Kind::slice, x, shape, ints);
}

NodeRef pad(const NodeRef& x, const std::vector<Extent>& before_after) {
  Shape shape = x->shape;
  bool identity = true;
  for (int i = 0; i < shape.rank(); ++i) {
    const Extent before = before_after[static_cast<std::size_t>(2 * i)],
                 after = before_after[static_cast<std::size_t>(2 * i + 1)];
    shape[i] = checked_add<ShapeError>(shape[i], checked_add<ShapeError>(before, after, "pad"), "pad");
    identity &= before == 0 && after == 0;
  }
  return identity ? x : view(Kind::pad, x, shape, before_after);
}

NodeRef window(const NodeRef& x, int axis, Extent size, Extent step, Extent dilation) {
  Shape shape = x->shape;
  check(size > 0 && step > 0 && dilation > 0, "window without a size, a step or a dilation");
  const Extent span =
      checked_add<ShapeError>(checked_multiply<ShapeError>(size - 1, dilation, "window"), Extent{1}, "window");
  check(span <= shape[axis], "window that is longer than its axis");
  shape[axis] = (shape[axis] - span) / step + 1;
  shape.push_back(size);
  return view(Kind::window, x, shape, {axis, step, dilation});
}

NodeRef detach(const NodeRef& x) {
  if (x->kind == Kind::detach || !is_float(x->type) || x->packed) return x;
  return view(Kind::detach, x, x->shape);
}

NodeRef map(const scalar::Expression& expression, std::vector<NodeRef> inputs, std::string_view name,
            const ops::ElementwiseRow* row, Where where) {
  check(static_cast<int>(inputs.size()) == expression.inputs, "map with another number of inputs than its expression");
  std::vector<DType> types;
  for (const NodeRef& input : inputs) types.push_back(input->type);
  return map_typed(scalar::typed(expression, types), std::move(inputs), name, row, where);
}

namespace {

NodeRef map_interned(std::shared_ptr<const scalar::Expression> typed, std::vector<NodeRef> inputs,
                     std::string_view name, const ops::ElementwiseRow* row, Where where) {
  Shape shape = inputs.empty() ? Shape{} : inputs[0]->shape;
  for (const NodeRef& input : inputs) {
    if (input->shape == shape) continue;
    Shape joined;
    check(broadcast_shapes(shape, input->shape, joined), "map of shapes that do not broadcast");
    shape = std::move(joined);
  }
  const DType type = typed->code.back().type;
  const Device device = inputs.empty() ? Device{} : inputs[0]->device;
  for (NodeRef& input : inputs)
    if (input->shape != shape) input = expand(input, shape);
  // The identity makes no node. (A copy does, because it needs its own memory.)
  if (const auto& result = typed->code.back(); result.op == scalar::Op::input && name != "copy")
    return inputs[static_cast<std::size_t>(result.slot)];
  return make_node({.kind = Kind::map,
                    .type = type,
                    .shape = std::move(shape),
                    .device = device,
                    .inputs = std::move(inputs),
                    .expression = std::move(typed),
                    .row = row,
                    .name = std::string(name)},
                   where);
}

}  // namespace

NodeRef map_typed(scalar::Expression expression, std::vector<NodeRef> inputs, std::string_view name,
                  const ops::ElementwiseRow* row, Where where) {
  return map_interned(intern(std::move(expression)), std::move(inputs), name, row, where);
}

NodeRef map_row(const ops::ElementwiseRow& row, const scalar::Expression& typed, std::vector<NodeRef> inputs,
                Where where) {
  // The row's expressions are never freed, so each is interned once and found by its address.
  static std::shared_mutex mutex;
  static auto& known = *new std::unordered_map<const scalar::Expression*, std::shared_ptr<const scalar::Expression>>;
  std::shared_ptr<const scalar::Expression> interned;
  {
    const std::shared_lock lock(mutex);
    if (const auto it = known.find(&typed); it != known.end()) interned = it->second;
  }
  if (!interned) {
    interned = intern(typed);
    const std::lock_guard lock(mutex);
    known.emplace(&typed, interned);
  }
  return map_interned(std::move(interned), std::move(inputs), row.name, &row, where);
}

NodeRef cast(const NodeRef& x, DType type) {
  if (x->type == type) return x;
  scalar::Expression e{
      1, {{.op = scalar::Op::input, .type = x->type, .slot = 0}, {.op = scalar::Op::cast, .type = type, .a = 0}}};
  return map_typed(std::move(e), {x}, "cast");
}

NodeRef reduce(scalar::Reduction reduction, const NodeRef& x, std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  Shape shape;
  std::vector<Extent> ints(axes.begin(), axes.end());
  for (int i = 0; i < x->shape.rank(); ++i)
    if (!std::binary_search(axes.begin(), axes.end(), i)) shape.push_back(x->shape[i]);
  if (axes.empty()) return x;
  const bool position = reduction == scalar::Reduction::argmax || reduction == scalar::Reduction::argmin;
  if (is_narrow(x->type)) {
    const NodeRef wide = reduce(reduction, cast(x, compute_type(x->type)), std::move(axes));
    return position ? wide : cast(wide, x->type);
  }
  check(!position || axes.size() == 1, "argmax over several axes");
  if (!position && x->shape.numel() == shape.numel()) return reshape(x, shape);  // only extents of 1 are reduced
  const DType type = position ? DType::i32 : x->type;
  return make_node({.kind = Kind::reduce,
                    .type = type,
                    .shape = shape,
                    .device = x->device,
                    .inputs = {x},
                    .ints = ints,
                    .reduction = reduction});
}

NodeRef matmul(const NodeRef& a, const NodeRef& b) {
  check(a->shape.rank() == 3 && b->shape.rank() == 3 && a->shape[0] == b->shape[0] && a->shape[2] == b->shape[1] &&
            a->type == b->type,
        "matmul of operands that do not fit");
  if (is_narrow(a->type)) {
    const DType computed = compute_type(a->type);
    return cast(matmul(cast(a, computed), cast(b, computed)), a->type);
  }
  return make_node({.kind = Kind::matmul,
                    .type = a->type,
                    .shape = {a->shape[0], a->shape[1], b->shape[2]},
                    .device = a->device,
                    .inputs = {a, b}});
}

NodeRef index_type(const NodeRef& indices) {
  if (element(indices->type).bits < 64) {
    const bool as_is = indices->type == DType::i32 || indices->type == DType::u32;
    return as_is ? indices : cast(indices, DType::i32);
  }
  using scalar::Op;
  const double least = element(indices->type).is_signed ? -1 : 0;
  const DType type = indices->type;
  scalar::Expression e{1,
                       {{.op = Op::input, .type = type, .slot = 0},
                        {.op = Op::constant, .type = type, .value = least},
                        {.op = Op::max, .type = type, .a = 0, .b = 1},
                        {.op = Op::constant, .type = type, .value = 0x1p31 - 1},
                        {.op = Op::min, .type = type, .a = 2, .b = 3},
                        {.op = Op::cast, .type = DType::i32, .a = 4}}};
  return map_typed(std::move(e), {indices}, "index");
}

NodeRef gather(const NodeRef& x, const NodeRef& given, int axis) {
  check(x->shape.rank() == given->shape.rank() && is_integer(given->type), "gather indices do not fit");
  const NodeRef indices = index_type(given);
  return make_node({.kind = Kind::gather,
                    .type = x->type,
                    .shape = indices->shape,
                    .device = x->device,
                    .inputs = {x, indices},
                    .ints = {axis}});
}

NodeRef concat(std::vector<NodeRef> parts, int axis) {
  check(!parts.empty(), "concat of nothing");
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0]->shape;
  for (std::size_t i = 1; i < parts.size(); ++i)
    shape[axis] = checked_add<ShapeError>(shape[axis], parts[i]->shape[axis], "concat");
  const DType type = parts[0]->type;
  const Device device = parts[0]->device;
  return make_node({.kind = Kind::concat,
                    .type = type,
                    .shape = shape,
                    .device = device,
                    .inputs = std::move(parts),
                    .ints = {axis}});
}

NodeRef project(const NodeRef& call, int index) {
  check(call->kind == Kind::call, "result of a node that is not a call");
  const Result result = call->op->infer(Call(*call)).at(static_cast<std::size_t>(index));
  return make_node({.kind = Kind::project,
                    .type = result.type,
                    .shape = result.shape,
                    .device = call->device,
                    .inputs = {call},
                    .ints = {index}});
}

bool broadcast_shapes(const Shape& a, const Shape& b, Shape& out) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<Extent> extents(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const Extent x = i < rank - a.rank() ? 1 : a[i - (rank - a.rank())];
    const Extent y = i < rank - b.rank() ? 1 : b[i - (rank - b.rank())];
    if (x != y && x != 1 && y != 1) return false;
    extents[static_cast<std::size_t>(i)] = x == 1 ? y : x;
  }
  out = Shape(std::move(extents));
  return true;
}

}  // namespace weft::graph
