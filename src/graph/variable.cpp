#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/graph_state.hpp"
#include "graph/node.hpp"
#include "weft/ops.hpp"
#include "weft/tensor.hpp"

namespace weft {
namespace {

graph::Cell& cell_of(const Variable& variable, Where where = {}) {
  if (!variable.defined()) throw UsageError(graph::describe("variable", "used before it was given a value", {}, where));
  return *variable.cell();
}

std::string title_of(const graph::Cell& cell) {
  return cell.name.empty() ? "a variable without a name" : fmt::format("variable \"{}\"", cell.name);
}

// Checks that the Variable belongs to this session.
void check_session(const graph::Cell& cell, std::string_view op) {
  if (cell.session.get() != &SessionState::current())
    throw UsageError(
        fmt::format("{}: {} belongs to another session; use it where that session is entered, or give a copy "
                    "of its value to this one with Session::copy",
                    op, title_of(cell)));
}

}  // namespace

Variable::Variable(const Tensor& initial, std::string_view name, bool requires_grad) {
  if (!initial.defined()) throw UsageError(fmt::format("variable {}: the initial tensor has no value", name));
  cell_ = graph::make_cell();
  cell_->name = name;
  cell_->requires_grad = requires_grad && is_float(initial.dtype());
  cell_->type = initial.dtype();
  cell_->shape = initial.shape();
  cell_->device = initial.device();
  if (const graph::Storage* storage = initial.node()->storage.get()) {
    // The value is already in memory: nothing to run. A separate node, since gradients are identified by nodes.
    cell_->committed = graph::make_node(
        {.kind = graph::Kind::data, .type = cell_->type, .shape = cell_->shape, .device = cell_->device});
    cell_->committed->storage.set(storage->shared());
  } else {
    graph::set_pending(cell_, initial.node());
  }
  graph::make_known(cell_);
}

Tensor Variable::value(Where where) const {
  check_session(cell_of(*this, where), "variable");
  return Tensor(graph::value_of(cell_));
}
const Shape& Variable::shape(Where where) const { return cell_of(*this, where).shape; }
DType Variable::dtype(Where where) const { return cell_of(*this, where).type; }
Device Variable::device(Where where) const { return cell_of(*this, where).device; }
const std::string& Variable::name(Where where) const { return cell_of(*this, where).name; }
void Variable::set_name(std::string_view name) { cell_of(*this).name = name; }
bool Variable::requires_grad() const { return cell_of(*this).requires_grad; }
void Variable::set_requires_grad(bool value) { cell_of(*this).requires_grad = value && is_float(dtype()); }
const Tensor& Variable::grad() const {
  cell_of(*this);
  return graph::gradient_of(cell_);
}
void Variable::set_grad(const Tensor& grad) {
  const graph::Cell& cell = cell_of(*this);
  if (grad.defined() && (grad.shape() != cell.shape || grad.dtype() != cell.type || grad.device() != cell.device)) {
    const std::string text = graph::describe(fmt::format("the gradient of {}", title_of(cell)),
                                             "its shape, dtype or device is not that of the variable",
                                             {{"variable", value()}, {"gradient", grad}}, {});
    if (grad.shape() != cell.shape) throw ShapeError(text);
    if (grad.dtype() != cell.type) throw DTypeError(text);
    throw DeviceError(text);
  }
  graph::gradient_of(cell_) = grad;
}
void Variable::clear_grad() { set_grad(Tensor()); }

void Variable::assign(const Tensor& next, Where where) {
  graph::Cell& cell = cell_of(*this, where);
  check_session(cell, "assign");
  const auto text = [&](std::string_view fact) {
    return graph::describe(fmt::format("assign to {}", title_of(cell)), fact, {{"variable", value()}, {"value", next}},
                           where);
  };
  if (next.shape() != cell.shape) throw ShapeError(text("the shapes differ"));
  if (next.dtype() != cell.type) throw DTypeError(text("the dtypes differ; cast the value"));
  if (next.device() != cell.device) throw DeviceError(text("the devices differ; move the value with .to(device)"));
  graph::evaluate_if_much_waits(cell);
  graph::set_pending(cell_, next.node());
}

Variable flatten_together(std::span<const Variable> variables, std::string_view name) {
  if (variables.empty()) throw UsageError(fmt::format("flatten_together {}: no variables", name));
  const auto& first = variables[0].cell();
  Extent total = 0;
  bool all_slices = first->shared != nullptr;
  for (const Variable& v : variables) {
    if (v.dtype() != first->type || v.device() != first->device)
      throw UsageError(fmt::format("flatten_together {}: \"{}\" has another dtype or device than \"{}\"", name,
                                   v.name(), first->name));
    all_slices &= v.cell()->shared == first->shared && v.cell()->offset == total;
    total += v.numel();
  }
  if (all_slices && first->shared->shape[0] == total) {
    Variable flat(zeros({1}));
    const_cast<std::shared_ptr<graph::Cell>&>(flat.cell()) = first->shared;
    return flat;
  }
  std::vector<Tensor> parts;
  for (const Variable& v : variables) {
    if (v.cell()->shared)
      throw UsageError(fmt::format("flatten_together {}: \"{}\" already is a slice of \"{}\"", name, v.name(),
                                   v.cell()->shared->name));
    parts.push_back(reshape(v.value(), {v.numel()}));
  }
  Variable flat(concat(parts, 0), name, false);
  Extent offset = 0;
  for (const Variable& v : variables) {
    graph::make_slice(v.cell(), flat.cell(), offset);
    offset += v.numel();
  }
  return flat;
}

}  // namespace weft
