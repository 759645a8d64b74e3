#include "graph/recurrence.hpp"

#include <fmt/format.h>

#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft::graph {
namespace {

constexpr RecurrentCell kRnn = RecurrentCell::rnn, kGru = RecurrentCell::gru, kLstm = RecurrentCell::lstm;

// Takes inputs one after another, for a list whose length depends on the attributes.
class OperandReader {
 public:
  explicit OperandReader(const Call& call) : call_(call) {}
  Tensor next(bool given = true) {
    if (!given) return {};
    if (at_ >= call_.inputs().size()) call_.usage_error("an input is missing");
    return call_.input(at_++);
  }
  void end() const {
    if (at_ != call_.inputs().size()) call_.usage_error("there are too many inputs");
  }

 private:
  const Call& call_;
  std::size_t at_ = 0;
};

Tensors given_of(std::initializer_list<Tensor> list) {
  Tensors inputs;
  for (const Tensor& x : list)
    if (x.defined()) inputs.push_back(x);
  return inputs;
}

std::vector<AttributeSpec> recurrence_attributes() {
  return {field("cell", &RecurrenceAttributes::cell, "the cell", {.choices = {"rnn", "relu_rnn", "gru", "lstm"}}),
          field("reverse", &RecurrenceAttributes::reverse, "from the last step to the first"),
          field("bias", &RecurrenceAttributes::bias, "whether a GRU's bias of the products with h is given"),
          field("lengths", &RecurrenceAttributes::lengths, "whether the steps of each sequence are given"),
          field("d_c", &RecurrenceAttributes::d_c, "backward: whether a gradient of c is given")};
}

void check_operand_shape(const Call& c, const Tensor& x, const Shape& shape, const char* name) {
  if (x.defined() && x.shape() != shape)
    c.shape_error(fmt::format("{} is {}, not {}", name, x.shape().to_string(), shape.to_string()));
}
void check_operand_types(const Call& c, std::initializer_list<Tensor> floats, const Tensor& lengths) {
  for (const Tensor& x : floats)
    if (x.defined() && (!is_float(x.dtype()) || x.dtype() != c.input(0).dtype()))
      c.dtype_error("floats of one dtype are needed; cast them");
  if (lengths.defined() && lengths.dtype() != DType::i32) c.dtype_error("lengths are not i32; cast them");
}

// Steps in the order in which states pass through them.
std::vector<Extent> steps_of(Extent count, bool reverse) {
  std::vector<Extent> steps;
  for (Extent i = 0; i < count; ++i) steps.push_back(reverse ? count - 1 - i : i);
  return steps;
}

// Whether each sequence has step t, [N, 1]; undefined if all have.
Tensor has_step(const Tensor& lengths, Extent t) {
  return lengths.defined() ? weft::unsqueeze(lengths, -1) > static_cast<double>(t) : Tensor();
}
Tensor if_step(const Tensor& has, const Tensor& then, const Tensor& otherwise) {
  return has.defined() ? elementwise("where", {has, then, otherwise}) : then;
}

Tensors split_gates(const Tensor& x, Extent count) {
  const Extent width = x.dim(-1) / count;
  Tensors parts;
  for (Extent i = 0; i < count; ++i) parts.push_back(weft::narrow(x, -1, i * width, width));
  return parts;
}

Tensors recurrence_parts(const Call& call) {
  const auto a = call.attributes<RecurrenceAttributes>();
  const Recurrence r = recurrence_of(call);
  const Extent count = r.gates.dim(0);
  Tensors all_h(static_cast<std::size_t>(count)), all_c = all_h, all_saved = all_h;
  Tensor h = r.h, c = r.c;
  for (const Extent t : steps_of(count, a.reverse)) {
    const auto at = static_cast<std::size_t>(t);
    const Tensor x = weft::select(r.gates, 0, t), product = weft::linear(h, r.weight, r.bias);
    const Tensor has = has_step(r.lengths, t);
    Tensor next, saved;
    if (a.cell == kGru) {
      const Tensors from_x = split_gates(x, 3), from_h = split_gates(product, 3);
      const Tensor reset = elementwise("sigmoid", {from_x[0] + from_h[0]}),
                   update = elementwise("sigmoid", {from_x[1] + from_h[1]}),
                   made = elementwise("tanh", {from_x[2] + reset * from_h[2]});
      next = made + update * (h - made);
      saved = weft::concat(Tensors{reset, update, made, from_h[2]}, -1);
    } else if (a.cell == kLstm) {
      const Tensors sums = split_gates(x + product, 4);
      const Tensor i = elementwise("sigmoid", {sums[0]}), f = elementwise("sigmoid", {sums[1]}),
                   g = elementwise("tanh", {sums[2]}), o = elementwise("sigmoid", {sums[3]});
      const Tensor kept = f * c + i * g;
      next = o * elementwise("tanh", {kept});
      c = if_step(has, kept, c);
      saved = weft::concat(Tensors{i, f, g, o}, -1);
    } else {
      next = elementwise(a.cell == kRnn ? "tanh" : "relu", {x + product});
    }
    h = if_step(has, next, h);
    all_h[at] = h;
    all_c[at] = c;
    if (saved.defined()) all_saved[at] = if_step(has, saved, zeros_like(saved));
  }
  Tensors results{weft::stack(all_h, 0)};
  if (a.cell == kLstm) results.push_back(weft::stack(all_c, 0));
  if (a.cell == kLstm || a.cell == kGru) results.push_back(weft::stack(all_saved, 0));
  return results;
}

Tensors recurrence_backward_parts(const Call& call) {
  const auto a = call.attributes<RecurrenceAttributes>();
  const RecurrenceBackward r = recurrence_backward_of(call);
  const Extent count = r.all_h.dim(0);
  std::vector<Extent> steps = steps_of(count, a.reverse);
  Tensors d_gates(static_cast<std::size_t>(count)), d_products = d_gates;
  Tensor carry = zeros_like(r.h), carry_c = a.cell == kLstm ? zeros_like(r.c) : Tensor();
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Extent t = steps[i];
    const auto at = static_cast<std::size_t>(t);
    const auto before = [&](const Tensor& all, const Tensor& first) {
      return i > 0 ? weft::select(all, 0, steps[i - 1]) : first;
    };
    const Tensor has = has_step(r.lengths, t), d_h = weft::select(r.d_h, 0, t) + carry;
    Tensor d_gate, d_product, direct, d_c;
    if (a.cell == kGru) {
      const Tensors s = split_gates(weft::select(r.saved, 0, t), 4);
      const Tensor d_made = d_h * (1.0 - s[1]) * (1.0 - s[2] * s[2]),
                   d_update = d_h * (before(r.all_h, r.h) - s[2]) * s[1] * (1.0 - s[1]),
                   d_reset = d_made * s[3] * s[0] * (1.0 - s[0]);
      d_gate = weft::concat(Tensors{d_reset, d_update, d_made}, -1);
      d_product = weft::concat(Tensors{d_reset, d_update, d_made * s[0]}, -1);
      direct = d_h * s[1];
    } else if (a.cell == kLstm) {
      const Tensors s = split_gates(weft::select(r.saved, 0, t), 4);
      const Tensor squashed = elementwise("tanh", {weft::select(r.all_c, 0, t)});
      if (r.d_c.defined()) carry_c = carry_c + weft::select(r.d_c, 0, t);
      d_c = carry_c + d_h * s[3] * (1.0 - squashed * squashed);
      d_gate = weft::concat(Tensors{d_c * s[2] * s[0] * (1.0 - s[0]), d_c * before(r.all_c, r.c) * s[1] * (1.0 - s[1]),
                                    d_c * s[0] * (1.0 - s[2] * s[2]), d_h * squashed * s[3] * (1.0 - s[3])},
                            -1);
      carry_c = if_step(has, d_c * s[1], carry_c);
    } else {
      const Tensor h = weft::select(r.all_h, 0, t);
      d_gate = a.cell == kRnn ? d_h * (1.0 - h * h) : elementwise("where", {h > 0.0, d_h, zeros_like(d_h)});
    }
    if (!d_product.defined()) d_product = d_gate;
    d_gate = if_step(has, d_gate, zeros_like(d_gate));
    d_product = if_step(has, d_product, zeros_like(d_product));
    const Tensor through = weft::matmul(d_product, r.weight);
    carry = if_step(has, direct.defined() ? direct + through : through, d_h);
    d_gates[at] = d_gate;
    d_products[at] = d_product;
  }
  Tensors results{weft::stack(d_gates, 0), carry};
  if (a.cell == kGru) results.push_back(weft::stack(d_products, 0));
  if (a.cell == kLstm) results.push_back(carry_c);
  return results;
}

// Gradients of the inputs of a forward call, in their order.
Tensors recurrence_gradients(const GradientCall& g) {
  const auto a = g.call.attributes<RecurrenceAttributes>();
  if (a.cell != kRnn && a.cell != RecurrentCell::relu_rnn && g.gradients.back().defined())
    return {};  // of gates: use the decomposition
  const Recurrence r = recurrence_of(g.call);
  const Tensor& all_h = g.results[0];
  const bool is_lstm = a.cell == kLstm, saves = is_lstm || a.cell == kGru;
  const Tensor d_h = g.gradients[0].defined() ? g.gradients[0] : zeros_like(all_h);
  RecurrenceAttributes back = a;
  back.d_c = is_lstm && g.gradients[1].defined();
  const std::vector<NodeRef> made =
      call_nodes(recurrence_backward_row(),
                 given_of({all_h, is_lstm ? g.results[1] : Tensor(), saves ? g.results.back() : Tensor(), r.h, r.c,
                           r.weight, r.lengths, d_h, back.d_c ? g.gradients[1] : Tensor()}),
                 words_of(recurrence_backward_row().attributes, back), g.call.where());
  const Tensor d_gates(made[0]), d_products(a.cell == kGru ? made[2] : made[0]);
  // All steps' products with h at once.
  const Extent steps = all_h.dim(0), rows = all_h.dim(0) * all_h.dim(1);
  const Tensor first = weft::unsqueeze(r.h, 0);
  const Tensor before = steps == 1  ? first
                        : a.reverse ? weft::concat(Tensors{weft::narrow(all_h, 0, 1, steps - 1), first}, 0)
                                    : weft::concat(Tensors{first, weft::narrow(all_h, 0, 0, steps - 1)}, 0);
  const Tensor flat = weft::reshape(d_products, {rows, d_products.dim(2)});
  const Tensor d_weight = weft::matmul(weft::transpose(flat), weft::reshape(before, {rows, before.dim(2)}));
  Tensors gradients{d_gates, Tensor(made[1])};
  if (is_lstm) gradients.emplace_back(made[2]);
  gradients.push_back(d_weight);
  if (a.bias) gradients.push_back(weft::sum(flat, {0}));
  if (a.lengths) gradients.emplace_back();
  return gradients;
}

double recurrence_flops(const Tensor& all_h, const Tensor& weight) {
  return 2.0 * static_cast<double>(all_h.dim(0) * all_h.dim(1)) * static_cast<double>(weight.numel());
}

std::vector<OpCase> recurrence_cases() {
  const CaseInput lengths{.shape = {3}, .type = DType::i32, .values = {4, 1, 2}};
  const auto inputs = [&](Extent gates, bool has_c, bool bias, bool has_lengths) {
    std::vector<CaseInput> list{{{4, 3, gates * 5}}, {{3, 5}}};
    if (has_c) list.push_back({{3, 5}});
    list.push_back({{gates * 5, 5}, -1, 1});
    if (bias) list.push_back({{gates * 5}, -1, 1});
    if (has_lengths) list.push_back(lengths);
    return list;
  };
  const auto of = [](const char* cell, bool reverse, bool bias, bool has_lengths) {
    return CaseAttributes{{"cell", std::string(cell)}, {"reverse", reverse}, {"bias", bias}, {"lengths", has_lengths}};
  };
  return {{"lstm", inputs(4, true, false, false), of("lstm", false, false, false)},
          {"lstm from the end with lengths", inputs(4, true, false, true), of("lstm", true, false, true)},
          {"gru with lengths", inputs(3, false, true, true), of("gru", false, true, true)},
          {"gru from the end", inputs(3, false, false, false), of("gru", true, false, false)},
          {"rnn", inputs(1, false, false, false), of("rnn", false, false, false)},
          {"relu rnn from the end with lengths", inputs(1, false, false, true), of("relu_rnn", true, false, true)}};
}

}  // namespace

Recurrence recurrence_of(const Call& call) {
  const auto a = call.attributes<RecurrenceAttributes>();
  OperandReader in(call);
  Recurrence r;
  r.gates = in.next();
  r.h = in.next();
  r.c = in.next(a.cell == kLstm);
  r.weight = in.next();
  r.bias = in.next(a.bias);
  r.lengths = in.next(a.lengths);
  in.end();
  return r;
}

RecurrenceBackward recurrence_backward_of(const Call& call) {
  const auto a = call.attributes<RecurrenceAttributes>();
  OperandReader in(call);
  RecurrenceBackward r;
  r.all_h = in.next();
  r.all_c = in.next(a.cell == kLstm);
  r.saved = in.next(a.cell == kLstm || a.cell == kGru);
  r.h = in.next();
  r.c = in.next(a.cell == kLstm);
  r.weight = in.next();
  r.lengths = in.next(a.lengths);
  r.d_h = in.next();
  r.d_c = in.next(a.d_c);
  in.end();
  return r;
}

const OpRow& recurrence_row() {
  static const OpRow row{
      .name = "recurrence",
      .family = "recurrent",
      .inputs = {{.name = "operands", .repeated = true}},
      .attributes = recurrence_attributes(),
      .several_outputs = true,
      .doc =
          "Recurrent cells step by step, from the products with x: gates [T, N, gates H], h, (c of an LSTM), weight "
          "[gates H, H], (bias), (lengths). What rnn, gru and lstm are made of.",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<RecurrenceAttributes>();
            const Recurrence r = recurrence_of(c);
            check_operand_types(c, {r.gates, r.h, r.c, r.weight, r.bias}, r.lengths);
            if (a.bias && a.cell != kGru) c.usage_error("only a GRU has a bias apart from its gates");
            if (r.gates.rank() != 3 || r.h.rank() != 2) c.shape_error("gates are not [T, N, gates H] with h [N, H]");
            const Extent n = r.h.dim(0), width = r.h.dim(1), rows = gates_of(a.cell) * width;
            check_operand_shape(c, r.gates, {r.gates.dim(0), n, rows}, "gates");
            check_operand_shape(c, r.c, r.h.shape(), "c");
            check_operand_shape(c, r.weight, {rows, width}, "weight");
            check_operand_shape(c, r.bias, {rows}, "bias");
            check_operand_shape(c, r.lengths, {n}, "lengths");
            if (r.gates.dim(0) < 1) c.shape_error("there are no steps");
            const Result states{r.h.dtype(), {r.gates.dim(0), n, width}};
            const Result saved{r.h.dtype(), {r.gates.dim(0), n, 4 * width}};
            if (a.cell == kLstm) return std::vector<Result>{states, states, saved};
            if (a.cell == kGru) return std::vector<Result>{states, saved};
            return std::vector<Result>{states};
          },
      .decompose = recurrence_parts,
      .gradient = recurrence_gradients,
      .form = KernelForm::routine,
      .flops =
          [](const Call& c) {
            const Recurrence r = recurrence_of(c);
            return recurrence_flops(r.gates, r.weight);
          },
      .cases = recurrence_cases(),
      .errors = {{"a weight of another width", {{{4, 3, 20}}, {{3, 5}}, {{3, 5}}, {{20, 4}}}, {}, "weight is [20, 4]"},
                 {"no weight", {{{4, 3, 20}}, {{3, 5}}, {{3, 5}}}, {}, "an input is missing"},
                 {"lengths of floats",
                  {{{4, 3, 20}}, {{3, 5}}, {{3, 5}}, {{20, 5}}, {{3}}},
                  {{"lengths", true}},
                  "lengths are not i32"}}};
  return row;
}

const OpRow& recurrence_backward_row() {
  static const OpRow row{
      .name = "recurrence_backward",
      .family = "recurrent",
      .inputs = {{.name = "operands", .repeated = true}},
      .attributes = recurrence_attributes(),
      .several_outputs = true,
      .doc = "Gradients of recurrence to its gates and first states, from its results and their gradients.",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<RecurrenceAttributes>();
            const RecurrenceBackward r = recurrence_backward_of(c);
            check_operand_types(c, {r.all_h, r.all_c, r.saved, r.h, r.c, r.weight, r.d_h, r.d_c}, r.lengths);
            if (r.all_h.rank() != 3) c.shape_error("h is not [T, N, H]");
            const Extent t = r.all_h.dim(0), n = r.all_h.dim(1), width = r.all_h.dim(2),
                         rows = gates_of(a.cell) * width;
            check_operand_shape(c, r.all_c, r.all_h.shape(), "c");
            check_operand_shape(c, r.saved, {t, n, 4 * width}, "the gates");
            check_operand_shape(c, r.h, {n, width}, "the first h");
            check_operand_shape(c, r.c, {n, width}, "the first c");
            check_operand_shape(c, r.weight, {rows, width}, "weight");
            check_operand_shape(c, r.lengths, {n}, "lengths");
            check_operand_shape(c, r.d_h, r.all_h.shape(), "the gradient of h");
            check_operand_shape(c, r.d_c, r.all_h.shape(), "the gradient of c");
            std::vector<Result> results{{r.h.dtype(), {t, n, rows}}, like(r.h)};
            if (a.cell == kGru) results.push_back({r.h.dtype(), {t, n, rows}});
            if (a.cell == kLstm) results.push_back(like(r.c));
            return results;
          },
      .decompose = recurrence_backward_parts,
      .form = KernelForm::routine,
      .flops =
          [](const Call& c) {
            const RecurrenceBackward r = recurrence_backward_of(c);
            return recurrence_flops(r.all_h, r.weight);
          }};
  return row;
}

}  // namespace weft::graph
