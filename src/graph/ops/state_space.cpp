// Selective state spaces: short convolutions, the scans of Mamba and Mamba-2, which are shapes of one, and the gated delta rule.
#include "weft/ops/state_space.hpp"

#include <fmt/format.h>

#include "graph/delta_scan.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/state_scan.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

/// The operands of a scan, by name, for checks and their errors.
class ScanOperands {
 public:
  ScanOperands(std::string_view op, std::vector<std::pair<std::string, Tensor>> operands, Where where)
      : op_(op), operands_(std::move(operands)), where_(where) {
    for (const auto& [name, tensor] : operands_) {
      if (!tensor.defined() && name != "state" && name != "bias")
        throw UsageError(fmt::format("{}: {} has no value", op_, name));
      if (tensor.defined() && (!is_float(tensor.dtype()) || tensor.dtype() != operands_[0].second.dtype()))
        throw DTypeError(describe(op_, "the operands are not floats of one dtype; cast them", given(), where_));
    }
  }
  void require(bool fits, const std::string& fact) const {
    if (!fits) throw ShapeError(describe(op_, fact, given(), where_));
  }
  void require_shape(std::string_view name, const Shape& shape) const {
    for (const auto& [each, tensor] : operands_)
      if (each == name && tensor.defined())
        require(tensor.shape() == shape, fmt::format("{} is not {}", name, shape.to_string()));
  }

 private:
  std::vector<std::pair<std::string, Tensor>> given() const {
    std::vector<std::pair<std::string, Tensor>> list;
    for (const auto& each : operands_)
      if (each.second.defined()) list.push_back(each);
    return list;
  }
  std::string_view op_;
  std::vector<std::pair<std::string, Tensor>> operands_;
  Where where_;
};

Tensors results_of(const std::vector<NodeRef>& nodes) { return {Tensor(nodes[0]), Tensor(nodes[1])}; }
Tensor or_zeros(const Tensor& x, const Shape& shape, const Tensor& like) {
  return x.defined() ? x : zeros(shape, like.dtype(), like.device());
}

}  // namespace
}  // namespace graph

ShortConvolution short_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& state,
                                   Where where) {
  const graph::ScanOperands operands("short_convolution",
                                     {{"x", x}, {"weight", weight}, {"bias", bias}, {"state", state}}, where);
  operands.require(x.rank() == 3 && x.dim(1) > 0, "x is not [batch, steps, channels] with at least one step");
  operands.require(weight.rank() == 2 && weight.dim(0) == x.dim(2) && weight.dim(1) > 0,
                   "weight is not [channels of x, kernel]");
  const Extent width = x.dim(2);
  const Shape before{x.dim(0), weight.dim(1) - 1, width};
  operands.require_shape("bias", {width});
  operands.require_shape("state", before);
  const auto results = graph::results_of(graph::call_nodes(
      graph::state_convolution_row(), {x, weight, graph::or_zeros(bias, {width}, x), graph::or_zeros(state, before, x)},
      graph::words_of(graph::state_convolution_row().attributes, graph::StateConvolutionAttributes{}), where));
  return {results[1], results[0]};
}

StateSpaceScan selective_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c,
                              const Tensor& state, Where where) {
  const graph::ScanOperands operands("selective_scan",
                                     {{"x", x}, {"dt", dt}, {"a", a}, {"b", b}, {"c", c}, {"state", state}}, where);
  operands.require(x.rank() == 3 && x.dim(1) > 0, "x is not [batch, steps, channels] with at least one step");
  operands.require(a.rank() == 2 && a.dim(0) == x.dim(2), "a is not [channels of x, states]");
  const Extent batch = x.dim(0), steps = x.dim(1), channels = x.dim(2), states = a.dim(1);
  operands.require_shape("dt", x.shape());
  operands.require_shape("b", {batch, steps, states});
  operands.require_shape("c", {batch, steps, states});
  operands.require_shape("state", {batch, channels, states});

  const auto by_channel = [&](const Tensor& t, Extent count) { return reshape(t, {batch, steps, count, t.dim(-1)}); };
  const Tensor first = graph::or_zeros(state, {batch, channels, states}, x);
  const auto results = graph::results_of(graph::call_nodes(
      graph::state_scan_row(),
      {reshape(x, {batch, steps, channels, 1}), dt, a, by_channel(b, 1), by_channel(c, 1), unsqueeze(first, 2)},
      graph::words_of(graph::state_scan_row().attributes, graph::StateScanAttributes{}), where));
  return {reshape(results[1], x.shape()), reshape(results[0], {batch, channels, states})};
}

StateSpaceScan state_space_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b, const Tensor& c,
                                const Tensor& state, Extent chunk, Where where) {
  const graph::ScanOperands operands("state_space_scan",
                                     {{"x", x}, {"dt", dt}, {"a", a}, {"b", b}, {"c", c}, {"state", state}}, where);
  if (chunk < 1) throw UsageError(fmt::format("state_space_scan: a chunk of {} steps; give at least 1", chunk));
  operands.require(x.rank() == 4 && x.dim(1) > 0, "x is not [batch, steps, heads, channels] with at least one step");
  operands.require(b.rank() == 4 && b.dim(2) > 0 && x.dim(2) % b.dim(2) == 0,
                   "b is not [batch, steps, groups, states] with groups that divide the heads");
  const Extent batch = x.dim(0), steps = x.dim(1), heads = x.dim(2), width = x.dim(3), groups = b.dim(2),
               states = b.dim(3);
  operands.require_shape("dt", {batch, steps, heads});
  operands.require_shape("a", {heads});
  operands.require_shape("b", {batch, steps, groups, states});
  operands.require_shape("c", {batch, steps, groups, states});
  operands.require_shape("state", {batch, heads, width, states});

  const auto results = graph::results_of(graph::call_nodes(
      graph::state_scan_row(),
      {x, dt, unsqueeze(a, -1), b, c, graph::or_zeros(state, {batch, heads, width, states}, x)},
      graph::words_of(graph::state_scan_row().attributes, graph::StateScanAttributes{.chunk = chunk}), where));
  return {results[1], results[0]};
}

StateSpaceScan gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& decay,
                                const Tensor& beta, const Tensor& state, Extent chunk, Where where) {
  const graph::ScanOperands operands(
      "gated_delta_rule", {{"q", q}, {"k", k}, {"v", v}, {"decay", decay}, {"beta", beta}, {"state", state}}, where);
  if (chunk < 1) throw UsageError(fmt::format("gated_delta_rule: a chunk of {} steps; give at least 1", chunk));
  operands.require(q.rank() == 4 && q.dim(1) > 0 && q.dim(2) > 0,
                   "q is not [batch, steps, groups, keys] with at least one step");
  operands.require(v.rank() == 4 && v.dim(2) % q.dim(2) == 0,
                   "v is not [batch, steps, heads, columns] with heads that the groups divide");
  const Extent batch = q.dim(0), steps = q.dim(1), heads = v.dim(2);
  const Shape states{batch, heads, q.dim(3), v.dim(3)};
  operands.require_shape("k", q.shape());
  operands.require_shape("v", {batch, steps, heads, v.dim(3)});
  operands.require_shape("decay", {batch, steps, heads});
  operands.require_shape("beta", {batch, steps, heads});
  operands.require_shape("state", states);
  const auto results = graph::results_of(graph::call_nodes(
      graph::delta_scan_row(), {q, k, v, decay, beta, graph::or_zeros(state, states, q)},
      graph::words_of(graph::delta_scan_row().attributes, graph::DeltaScanAttributes{.chunk = chunk}), where));
  return {results[1], results[0]};
}

namespace graph {
namespace {

// What the two scans mean, in PyTorch: every step against every earlier one.
constexpr const char* kSelectiveTorch =
    "(lambda s, k: (torch.einsum('btdn,btn->btd', s, c), s[:, -1]))(*(lambda kept, added: (torch.einsum("
    "'btjdn,bjdn->btdn', torch.exp(torch.where(torch.ones(x.shape[1], x.shape[1]).tril().bool()[None, :, :, None, "
    "None], "
    "kept[:, :, None] - kept[:, None], torch.tensor(-torch.inf, dtype=x.dtype))), added) + (0 if state is None else "
    "torch.exp(kept) * state[:, None]), 0))(torch.cumsum(dt[..., None] * a, 1), (dt * x)[..., None] * b[:, :, None]))";
constexpr const char* kStateSpaceTorch =
    "(lambda l, e, B, C: (torch.einsum('bihn,bjhn,bijh,bjhp->bihp', C, B, e, x * dt[..., None]) + (0 if state is None "
    "else "
    "torch.einsum('bihn,bhpn,bih->bihp', C, state, torch.exp(l))), torch.einsum('bjhn,bjh,bjhp->bhpn', B, e[:, -1], "
    "x * dt[..., None]) + (0 if state is None else torch.exp(l[:, -1])[..., None, None] * state)))(*(lambda l: (l, "
    "torch.exp(torch.where(torch.ones(x.shape[1], x.shape[1]).tril().bool()[None, :, :, None], l[:, :, None] - l[:, "
    "None], "
    "torch.tensor(-torch.inf, dtype=x.dtype)))))(torch.cumsum(dt * a, 1)), *(t.repeat_interleave(x.shape[2] // "
    "t.shape[2], "
    "2) for t in (b, c)))";

// The whole text as one chunk, with a triangular system.
constexpr const char* kDeltaTorch =
    "(lambda q, k, v, l, w, s: (lambda e: (lambda u: ((torch.exp(l)[..., None] * (q @ s) + (q @ k.mT * e) @ u)."
    "transpose(1, 2), torch.exp(l[..., -1])[..., None, None] * s + (k * torch.exp(l[..., -1:] - l)[..., None]).mT @ "
    "u))(torch.linalg.solve_triangular((k @ k.mT) * e * w, w * (v - torch.exp(l)[..., None] * (k @ s)), upper=False, "
    "unitriangular=True)))(torch.exp(torch.where(torch.ones(l.shape[-1], l.shape[-1]).tril().bool(), l[..., None] - "
    "l[..., None, :], torch.tensor(-torch.inf, dtype=l.dtype)))))(*(t.repeat_interleave(v.shape[2] // t.shape[2], 2)."
    "transpose(1, 2) for t in (q, k, v)), torch.cumsum(decay, 1).transpose(1, 2), beta.transpose(1, 2)[..., None], "
    "v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state)";

std::vector<InputSpec> scan_inputs() {
  std::vector<InputSpec> list;
  for (const char* name : {"x", "dt", "a", "b", "c"}) list.push_back({name, ops::DTypes::floats});
  list.push_back({.name = "state", .dtypes = ops::DTypes::floats, .optional = true});
  return list;
}

OpRow delta_rule_row() {
  const auto inputs = [](Extent steps, Extent groups, bool with_state) {
    return std::vector<CaseInput>{
        {{2, steps, groups, 3}, -1, 1}, {{2, steps, groups, 3}, -1, 1},
        {{2, steps, 4, 5}, -1, 1},      {{2, steps, 4}, -1, -0.05},
        {{2, steps, 4}, 0.1, 0.9},      with_state ? CaseInput{{2, 4, 3, 5}, -1, 1} : CaseInput{.absent = true}};
  };
  std::vector<InputSpec> specs;
  for (const char* name : {"q", "k", "v", "decay", "beta"}) specs.push_back({name, ops::DTypes::floats});
  specs.push_back({.name = "state", .dtypes = ops::DTypes::floats, .optional = true});
  return {.name = "gated_delta_rule",
          .family = "scan",
          .inputs = std::move(specs),
          .attributes = {{.name = "chunk",
                          .type = AttributeType::integer,
                          .default_value = Extent{64},
                          .doc = "how many steps are computed at once"}},
          .several_outputs = true,
          .doc = "The gated delta rule: a recurrence of the state of each head, in chunks of products.",
          .formula = "s_t = exp(g_t) s_{t-1} + k_t u_t^T, u_t = beta_t (v_t - exp(g_t) s_{t-1}^T k_t); y_t = s_t^T q_t",
          .torch = kDeltaTorch,
          .cases = {{"one chunk", inputs(6, 2, false)},
                    {"chunks", inputs(7, 1, false), {{"chunk", Extent{3}}}},
                    {"chunks from a state", inputs(6, 4, true), {{"chunk", Extent{4}}}},
                    {"one step", inputs(1, 2, true)}},
          .errors = {{"heads that the groups do not divide", inputs(3, 3, false), {}, "heads that the groups divide"},
                     {"no chunk", inputs(3, 2, false), {{"chunk", Extent{0}}}, "a chunk of 0 steps; give at least 1"},
                     {"no steps", inputs(0, 2, false), {}, "with at least one step"}},
          .apply = [](const Arguments& i) {
            const auto [y, s] = weft::gated_delta_rule(i.input(0), i.input(1), i.input(2), i.input(3), i.input(4),
                                                       i.input(5), i.integer("chunk"));
            return Tensors{y, s};
          }};
}

std::vector<OpRow> rows_of_state_spaces() {
  const CaseInput absent{.absent = true};
  const auto selective = [&](Extent steps, bool with_state) {
    return std::vector<CaseInput>{{{2, steps, 5}, -1, 1}, {{2, steps, 5}, 0.1, 1},
                                  {{5, 3}, -2, -0.1},     {{2, steps, 3}, -1, 1},
                                  {{2, steps, 3}, -1, 1}, with_state ? CaseInput{{2, 5, 3}, -1, 1} : absent};
  };
  const auto by_heads = [&](Extent steps, bool with_state) {
    return std::vector<CaseInput>{{{2, steps, 4, 3}, -1, 1}, {{2, steps, 4}, 0.1, 1},
                                  {{4}, -2, -0.1},           {{2, steps, 2, 5}, -1, 1},
                                  {{2, steps, 2, 5}, -1, 1}, with_state ? CaseInput{{2, 4, 3, 5}, -1, 1} : absent};
  };
  auto unfit = by_heads(3, false);
  unfit[3] = {{2, 3, 3, 5}};
  unfit[4] = {{2, 3, 3, 5}};
  auto short_b = selective(3, false);
  short_b[3] = {{2, 2, 3}};
  const auto convolved = [&](Extent steps, bool with_state) {
    return std::vector<CaseInput>{{{2, steps, 5}, -1, 1},
                                  {{5, 4}, -1, 1},
                                  with_state ? CaseInput{{5}, -1, 1} : absent,
                                  with_state ? CaseInput{{2, 3, 5}, -1, 1} : absent};
  };
  auto other_state = convolved(3, true);
  other_state[3] = {{2, 4, 5}};
  return {
      {.name = "short_convolution",
       .family = "scan",
       .inputs = {{"x", ops::DTypes::floats},
                  {"weight", ops::DTypes::floats},
                  {.name = "bias", .dtypes = ops::DTypes::floats, .optional = true},
                  {.name = "state", .dtypes = ops::DTypes::floats, .optional = true}},
       .several_outputs = true,
       .doc = "Each channel's convolution with its last inputs, and those inputs for the next steps.",
       .formula = "y_t = sum_k w_k x_{t-K+1+k} + bias",
       .torch =
           "(lambda p: (F.conv1d(p.mT, weight[:, None], bias, groups=x.shape[2]).mT, p[:, x.shape[1]:]))(torch.cat(["
           "x.new_zeros(x.shape[0], weight.shape[1] - 1, x.shape[2]) if state is None else state, x], 1))",
       .cases = {{"steps", convolved(6, false)},
                 {"from a state", convolved(4, true)},
                 {"one step", convolved(1, true)}},
       .errors = {{"a state of other steps", other_state, {}, "state is not [2, 3, 5]"},
                  {"no steps", convolved(0, false), {}, "with at least one step"}},
       .apply =
           [](const Arguments& i) {
             const auto [y, s] = weft::short_convolution(i.input(0), i.input(1), i.input(2), i.input(3));
             return Tensors{y, s};
           }},
      {.name = "selective_scan",
       .family = "scan",
       .inputs = scan_inputs(),
       .several_outputs = true,
       .doc = "Mamba's scan: a recurrence of the states of each channel, with coefficients from the input.",
       .formula = "s_t = exp(dt_t a) s_{t-1} + dt_t x_t b_t; y_t = s_t . c_t",
       .torch = kSelectiveTorch,
       .cases = {{"steps", selective(6, false)},
                 {"from a state", selective(4, true)},
                 {"one step", selective(1, true)}},
       .errors = {{"b of other steps", short_b, {}, "b is not [2, 3, 3]"},
                  {"no steps", selective(0, false), {}, "with at least one step"}},
       .apply =
           [](const Arguments& i) {
             const auto [y, s] =
                 weft::selective_scan(i.input(0), i.input(1), i.input(2), i.input(3), i.input(4), i.input(5));
             return Tensors{y, s};
           }},
      {.name = "state_space_scan",
       .family = "scan",
       .inputs = scan_inputs(),
       .attributes = {{.name = "chunk",
                       .type = AttributeType::integer,
                       .default_value = Extent{256},
                       .doc = "how many steps are computed at once"}},
       .several_outputs = true,
       .doc = "Mamba-2's scan: a recurrence of the states of each head, in chunks of products.",
       .formula = "s_t = exp(dt_t a) s_{t-1} + dt_t x_t b_t^T; y_t = s_t c_t",
       .torch = kStateSpaceTorch,
       .cases = {{"one chunk", by_heads(6, false)},
                 {"chunks", by_heads(7, false), {{"chunk", Extent{3}}}},
                 {"chunks from a state", by_heads(6, true), {{"chunk", Extent{2}}}},
                 {"one step", by_heads(1, true)}},
       .errors = {{"groups that do not divide the heads", unfit, {}, "groups that divide the heads"},
                  {"no chunk", by_heads(3, false), {{"chunk", Extent{0}}}, "a chunk of 0 steps; give at least 1"},
                  {"no steps", by_heads(0, false), {}, "with at least one step"}},
       .apply =
           [](const Arguments& i) {
             const auto [y, s] = weft::state_space_scan(i.input(0), i.input(1), i.input(2), i.input(3), i.input(4),
                                                        i.input(5), i.integer("chunk"));
             return Tensors{y, s};
           }},
  };
}

}  // namespace

OpRows state_space_rows() {
  static const std::vector<OpRow> list = rows_of_state_spaces();
  static const OpRow delta_rule = delta_rule_row();
  OpRows rows = {&state_scan_row(), &state_scan_backward_row(), &state_convolution_row(), &delta_scan_row(),
                 &delta_rule};
  for (const OpRow& row : list) rows.push_back(&row);
  return rows;
}

}  // namespace graph
}  // namespace weft
