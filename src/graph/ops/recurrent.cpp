// Recurrent layers: a product with x for all steps, and a recurrence.
#include "weft/ops/recurrent.hpp"

#include <fmt/format.h>

#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/recurrence.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct RnnAttributes {
  bool relu = false, reverse = false;
};
struct CellAttributes {
  bool reverse = false;
};

// Inputs of a call: x, its first states, then the weights.
struct Operands {
  Operands(const Call& c, std::size_t states)
      : x(c.input(0)),
        h(c.input(1)),
        c(states > 1 ? c.input(2) : Tensor()),
        input(c.input(1 + states)),
        hidden(c.input(2 + states)),
        input_bias(c.input(3 + states)),
        hidden_bias(c.input(4 + states)),
        lengths(c.input(5 + states)) {}
  Tensor x, h, c, input, hidden, input_bias, hidden_bias, lengths;
};

void check(const Call& c, std::size_t states, Extent gates) {
  const Operands o(c, states);
  for (const Tensor& t : c.inputs())
    if (t.defined() && t.dtype() != c.input(0).dtype() && t.node() != o.lengths.node())
      c.dtype_error("the dtypes differ; cast them");
  if (o.x.rank() != 3 || o.x.dim(0) < 1) c.shape_error("x is not [steps, batch, inputs] with at least one step");
  if (o.h.rank() != 2 || o.h.dim(0) != o.x.dim(1)) c.shape_error("h is not [batch, width]");
  if (o.c.defined() && o.c.shape() != o.h.shape()) c.shape_error("the shapes of h and c differ");
  const Extent width = o.h.dim(1);
  if (o.input.shape() != Shape{gates * width, o.x.dim(2)})
    c.shape_error(fmt::format("weight_ih is not [{} * {}, {}]", gates, width, o.x.dim(2)));
  if (o.hidden.shape() != Shape{gates * width, width})
    c.shape_error(fmt::format("weight_hh is not [{} * {}, {}]", gates, width, width));
  if (o.input_bias.defined() != o.hidden_bias.defined()) c.usage_error("give both biases or neither");
  for (const Tensor& bias : {o.input_bias, o.hidden_bias})
    if (bias.defined() && bias.shape() != Shape{gates * width})
      c.shape_error(fmt::format("a bias is not [{} * {}]", gates, width));
  if (o.lengths.defined() && o.lengths.shape() != Shape{o.x.dim(1)})
    c.shape_error("lengths are not [batch], the number of steps of each sequence");
}

std::vector<Result> results(const Call& c, std::size_t states) {
  const Tensor &x = c.input(0), &h = c.input(1);
  std::vector<Result> list{{x.dtype(), {x.dim(0), x.dim(1), h.dim(1)}}, like(h)};
  if (states > 1) list.push_back(like(h));
  return list;
}

// The outputs, and the last states. A sequence that is shorter than the others gives zeros after its last step; its state
// stays, so the step that is computed last has every sequence's last state.
Tensors layer(const Call& call, std::size_t states, RecurrentCell cell, bool reverse) {
  const Operands o(call, states);
  const bool is_gru = cell == RecurrentCell::gru;
  // A GRU multiplies what comes from h, bias included, before it adds.
  Tensor bias = o.input_bias;
  if (bias.defined() && !is_gru) bias = bias + o.hidden_bias;
  const Tensor lengths = o.lengths.defined() ? weft::cast(o.lengths, DType::i32) : Tensor();
  const bool has_bias = is_gru && o.hidden_bias.defined();
  // States of narrow floats are not rounded between the steps.
  const auto wide = [&](const Tensor& t) { return weft::cast(t, compute_type(o.x.dtype())); };
  Tensors operands{wide(weft::linear(o.x, o.input, bias, call.where())), wide(o.h)};
  if (states > 1) operands.push_back(wide(o.c));
  operands.push_back(wide(o.hidden));
  if (has_bias) operands.push_back(wide(o.hidden_bias));
  if (lengths.defined()) operands.push_back(lengths);
  const RecurrenceAttributes attributes{
      .cell = cell, .reverse = reverse, .bias = has_bias, .lengths = lengths.defined()};
  const std::vector<NodeRef> made = call_nodes(recurrence_row(), std::move(operands),
                                               words_of(recurrence_row().attributes, attributes), call.where());
  const auto narrow = [&](const NodeRef& node) { return weft::cast(Tensor(node), o.x.dtype()); };
  const Tensor all = narrow(made[0]);
  const Extent last = reverse ? 0 : all.dim(0) - 1;
  Tensors list{all, weft::select(all, 0, last)};
  if (states > 1) list.push_back(weft::select(narrow(made[1]), 0, last));
  if (lengths.defined()) {
    const Tensor step(iota({all.dim(0), all.dim(1), 1}, 0, DType::i32, all.device()));
    list[0] = elementwise("where", {step < weft::unsqueeze(lengths, -1), all, zeros_like(all)}, {}, call.where());
  }
  return list;
}

std::vector<InputSpec> inputs(std::size_t states) {
  std::vector<InputSpec> list{{"x", ops::DTypes::floats}, {"h", ops::DTypes::floats}};
  if (states > 1) list.push_back({"c", ops::DTypes::floats});
  list.push_back({"weight_ih", ops::DTypes::floats});
  list.push_back({"weight_hh", ops::DTypes::floats});
  list.push_back({.name = "bias_ih", .dtypes = ops::DTypes::floats, .optional = true});
  list.push_back({.name = "bias_hh", .dtypes = ops::DTypes::floats, .optional = true});
  list.push_back({.name = "lengths", .dtypes = ops::DTypes::integers, .optional = true});
  return list;
}

std::vector<OpCase> cases(std::size_t states, Extent gates) {
  const auto operands = [&](Extent steps, bool bias) {
    std::vector<CaseInput> list{{{steps, 2, 3}}, {{2, 4}}};
    if (states > 1) list.push_back({{2, 4}});
    list.push_back({{gates * 4, 3}, -1, 1});
    list.push_back({{gates * 4, 4}, -1, 1});
    for (int i = 0; i < 2; ++i) list.push_back(bias ? CaseInput{{gates * 4}, -1, 1} : CaseInput{.absent = true});
    return list;
  };
  return {{"steps", operands(4, true)},
          {"from the end", operands(3, true), {{"reverse", true}}},
          {"one step without biases", operands(1, false)}};
}
std::vector<ErrorCase> errors(std::size_t states, Extent gates) {
  std::vector<CaseInput> narrow{{{4, 2, 3}}, {{2, 4}}}, none{{{0, 2, 3}}, {{2, 4}}}, one = narrow;
  for (auto* list : {&narrow, &none, &one})
    if (states > 1) list->push_back({{2, 4}});
  narrow.push_back({{gates * 4, 5}});
  for (auto* list : {&none, &one}) list->push_back({{gates * 4, 3}});
  for (auto* list : {&narrow, &none, &one}) list->push_back({{gates * 4, 4}});
  one.push_back({{gates * 4}});
  return {{"weights of another input", narrow, {}, fmt::format("weight_ih is not [{} * 4, 3]", gates)},
          {"no steps", none, {}, "with at least one step"},
          {"one bias", one, {}, "both biases or neither"}};
}

// The expression in PyTorch, with weights, and with biases if given.
std::string torch_of(const char* kind, const char* states) {
  return fmt::format(
      "(lambda y: (y[0].flip(0) if reverse else y[0], *[s[0] for s in y[1:]]))(torch._VF.{}(x.flip(0) if reverse else "
      "x, {}, "
      "[w for w in (weight_ih, weight_hh, bias_ih, bias_hh) if w is not None], bias_ih is not None, 1, 0.0, False, "
      "False, False))",
      kind, states);
}

const OpRow& rnn_row() {
  static const OpRow row{
      .name = "rnn",
      .family = "recurrent",
      .inputs = inputs(1),
      .attributes = {field("relu", &RnnAttributes::relu, "max(., 0) in place of tanh"),
                     field("reverse", &RnnAttributes::reverse, "from the last step to the first")},
      .several_outputs = true,
      .doc = "h = tanh(Wi x + bi + Wh h + bh) for each step of x [T, N, I]: h of each step [T, N, H], then the last.",
      .torch = torch_of("rnn_tanh", "h[None]"),
      .infer =
          [](const Call& c) {
            check(c, 1, 1);
            return results(c, 1);
          },
      .decompose =
          [](const Call& c) {
            const auto [relu, reverse] = c.attributes<RnnAttributes>();
            return layer(c, 1, relu ? RecurrentCell::relu_rnn : RecurrentCell::rnn, reverse);
          },
      .cases = cases(1, 1),
      .errors = errors(1, 1)};
  return row;
}

const OpRow& gru_row() {
  static const OpRow row{
      .name = "gru",
      .family = "recurrent",
      .inputs = inputs(1),
      .attributes = {field("reverse", &CellAttributes::reverse, "from the last step to the first")},
      .several_outputs = true,
      .doc =
          "A gated recurrent unit for each step of x [T, N, I], gates r, z, n: h of each step [T, N, H], then the "
          "last.",
      .formula = "h = (1 - z) n + z h, n = tanh(Win x + bin + r (Whn h + bhn))",
      .torch = torch_of("gru", "h[None]"),
      .onnx = "GRU",
      .infer =
          [](const Call& c) {
            check(c, 1, 3);
            return results(c, 1);
          },
      .decompose =
          [](const Call& c) { return layer(c, 1, RecurrentCell::gru, c.attributes<CellAttributes>().reverse); },
      .cases = cases(1, 3),
      .errors = errors(1, 3)};
  return row;
}

const OpRow& lstm_row() {
  static const OpRow row{
      .name = "lstm",
      .family = "recurrent",
      .inputs = inputs(2),
      .attributes = {field("reverse", &CellAttributes::reverse, "from the last step to the first")},
      .several_outputs = true,
      .doc =
          "A long short-term memory for each step of x [T, N, I], gates i, f, g, o: h of each step [T, N, H], then the "
          "last h and c.",
      .formula = "c = f c + i g, h = o tanh(c)",
      .torch = torch_of("lstm", "(h[None], c[None])"),
      .onnx = "LSTM",
      .infer =
          [](const Call& c) {
            check(c, 2, 4);
            return results(c, 2);
          },
      .decompose =
          [](const Call& c) { return layer(c, 2, RecurrentCell::lstm, c.attributes<CellAttributes>().reverse); },
      .cases = cases(2, 4),
      .errors = errors(2, 4)};
  return row;
}

RecurrentStates states_of(const std::vector<NodeRef>& nodes) {
  return {wrap(nodes[0]), wrap(nodes[1]), nodes.size() > 2 ? wrap(nodes[2]) : Tensor()};
}

}  // namespace

OpRows recurrent_rows() { return {&rnn_row(), &gru_row(), &lstm_row(), &recurrence_row(), &recurrence_backward_row()}; }

}  // namespace graph

RecurrentStates rnn(const Tensor& x, const Tensor& h, const RecurrentWeights& w, bool relu, bool reverse, Where where) {
  const graph::OpRow& row = graph::rnn_row();
  return graph::states_of(graph::call_nodes(row, {x, h, w.input, w.hidden, w.input_bias, w.hidden_bias, w.lengths},
                                            graph::words_of(row.attributes, graph::RnnAttributes{relu, reverse}),
                                            where));
}
RecurrentStates gru(const Tensor& x, const Tensor& h, const RecurrentWeights& w, bool reverse, Where where) {
  const graph::OpRow& row = graph::gru_row();
  return graph::states_of(graph::call_nodes(row, {x, h, w.input, w.hidden, w.input_bias, w.hidden_bias, w.lengths},
                                            graph::words_of(row.attributes, graph::CellAttributes{reverse}), where));
}
RecurrentStates lstm(const Tensor& x, const Tensor& h, const Tensor& c, const RecurrentWeights& w, bool reverse,
                     Where where) {
  const graph::OpRow& row = graph::lstm_row();
  return graph::states_of(graph::call_nodes(row, {x, h, c, w.input, w.hidden, w.input_bias, w.hidden_bias, w.lengths},
                                            graph::words_of(row.attributes, graph::CellAttributes{reverse}), where));
}

}  // namespace weft
