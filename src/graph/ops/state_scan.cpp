#include "graph/state_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/op_families.hpp"
#include "graph/state_operands.hpp"
#include "weft/ops.hpp"
#include "weft/ops/scans.hpp"

namespace weft::graph {
namespace {

struct ScanExtents {
  Extent batch, steps, heads, width, groups, states;
  bool shares_rate;
  Extent each() const { return heads / groups; }  // heads of a group
};
template <class Operands>
ScanExtents extents_of(const Operands& s) {
  return {s.x.dim(0), s.x.dim(1), s.x.dim(2), s.x.dim(3), s.b.dim(2), s.b.dim(3), s.a.dim(1) == 1};
}

/// The extents of a scan, from operands that fit one another.
template <class Operands>
ScanExtents checked(const Call& c, const Operands& s) {
  if (s.x.rank() != 4 || s.x.dim(1) < 1) c.shape_error("x is not [B, T, H, P] with at least one step");
  if (s.b.rank() != 4 || s.b.dim(2) < 1 || s.x.dim(2) % s.b.dim(2) != 0)
    c.shape_error("b is not [B, T, G, N] with groups that divide the heads");
  if (s.a.rank() != 2) c.shape_error("a is not [H, N] or [H, 1]");
  const ScanExtents e = extents_of(s);
  require_shape(c, s.dt, {e.batch, e.steps, e.heads}, "dt");
  require_shape(c, s.a, {e.heads, e.shares_rate ? 1 : e.states}, "a");
  require_shape(c, s.b, {e.batch, e.steps, e.groups, e.states}, "b");
  require_shape(c, s.c, {e.batch, e.steps, e.groups, e.states}, "c");
  return e;
}

/// b or c for every head, [B, T, H, N].
Tensor for_heads(const Tensor& b, const ScanExtents& e) {
  const Shape all{e.batch, e.steps, e.groups, e.each(), e.states};
  return weft::reshape(weft::expand(weft::unsqueeze(b, 3), all), {e.batch, e.steps, e.heads, e.states});
}
/// The share of each state that a step keeps, [B, T, H, 1, N].
Tensor kept_of(const Tensor& dt, const Tensor& a, const ScanExtents& e) {
  const Tensor kept = exp(weft::unsqueeze(dt, -1) * a);
  return weft::expand(weft::unsqueeze(kept, 3), {e.batch, e.steps, e.heads, 1, e.states});
}

/// The states after every step, [B, T, H, P, N].
Tensor all_states(const Tensor& kept, Tensor added, const Tensor& first) {
  const Extent steps = added.dim(1);
  const Tensor start = weft::narrow(added, 1, 0, 1) + weft::narrow(kept, 1, 0, 1) * weft::unsqueeze(first, 1);
  if (steps == 1) return start;
  added = weft::concat(Tensors{start, weft::narrow(added, 1, 1, steps - 1)}, 1);
  return linear_recurrence(weft::expand(kept, added.shape()), added, 1);
}

/// By the states of all steps.
Tensors scan_of_states(const StateScan& s, const Tensor& first, const ScanExtents& e) {
  const Tensor moved = weft::unsqueeze(s.x * weft::unsqueeze(s.dt, -1), -1);
  const Tensor all = all_states(kept_of(s.dt, s.a, e), moved * weft::unsqueeze(for_heads(s.b, e), 3), first);
  return {weft::select(all, 1, e.steps - 1), weft::sum(all * weft::unsqueeze(for_heads(s.c, e), 3), {-1})};
}

/// By products within chunks, for heads whose states share a rate.
Tensors scan_of_chunks(const StateScan& s, const Tensor& first_state, const ScanExtents& e, Extent chunk) {
  const Extent batch = e.batch, heads = e.heads, width = e.width, groups = e.groups, states = e.states, each = e.each();
  // Q steps a chunk, K chunks; the steps that fill the last chunk have dt = 0, so they change no state.
  const Extent q = std::min(chunk, e.steps), k = (e.steps + q - 1) / q;
  const auto chunked = [&](const Tensor& t, const Shape& rest, const std::vector<int>& order) {
    Shape shape{batch, k, q};
    for (const Extent extent : rest) shape.push_back(extent);
    return weft::permute(weft::reshape(with_steps(t, k * q), shape), order);
  };
  const Tensor dts = chunked(s.dt, {groups, each}, {0, 1, 3, 4, 2});                      // [B, K, G, R, Q]
  const Tensor xs = chunked(s.x, {groups, each, width}, {0, 1, 3, 4, 2, 5});              // [B, K, G, R, Q, P]
  const Tensor bs = weft::unsqueeze(chunked(s.b, {groups, states}, {0, 1, 3, 2, 4}), 3);  // [B, K, G, 1, Q, N]
  const Tensor cs = weft::unsqueeze(chunked(s.c, {groups, states}, {0, 1, 3, 2, 4}), 3);  // [B, K, G, 1, Q, N]
  // The logarithm of the part that is kept from the start of the chunk.
  const Tensor decay = cumsum(dts * weft::reshape(s.a, {groups, each, 1}), -1);
  const Tensor moved = xs * weft::unsqueeze(dts, -1);

  // Within a chunk: step i sees step j <= i through exp(decay_i - decay_j).
  const Tensor difference = weft::unsqueeze(decay, -1) - weft::unsqueeze(decay, -2);
  const Tensor row = arange(q, DType::i32, s.x.device());
  const Tensor sees = ge(weft::unsqueeze(row, 1), weft::unsqueeze(row, 0));
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor weights = exp(weft::where(sees, difference, scalar_like(none, difference)));
  Tensor output = weft::matmul(weft::matmul(cs, weft::transpose(bs)) * weights, moved);  // [B, K, G, R, Q, P]

  // Between chunks: what each adds to the state, and what it keeps.
  const Tensor last = weft::narrow(decay, -1, q - 1, 1);  // [B, K, G, R, 1]
  const Tensor added =
      weft::matmul(weft::transpose(moved * weft::unsqueeze(exp(last - decay), -1)), bs);  // [B, K, G, R, P, N]
  const Tensor kept = weft::unsqueeze(exp(last), -1);
  const Tensor first = weft::reshape(first_state, {batch, 1, groups, each, width, states});
  const Tensor start = weft::narrow(added, 1, 0, 1) + weft::narrow(kept, 1, 0, 1) * first;
  Tensor before = first, after = start;
  if (k > 1) {
    const Tensor parts = weft::concat(Tensors{start, weft::narrow(added, 1, 1, k - 1)}, 1);
    const Tensor all = linear_recurrence(weft::expand(kept, parts.shape()), parts, 1);
    before = weft::concat(Tensors{first, weft::narrow(all, 1, 0, k - 1)}, 1);
    after = weft::narrow(all, 1, k - 1, 1);
  }
  output = output + weft::matmul(cs, weft::transpose(before)) * weft::unsqueeze(exp(decay), -1);
  output = weft::reshape(weft::permute(output, {0, 1, 4, 2, 3, 5}), {batch, k * q, heads, width});
  return {weft::reshape(after, {batch, heads, width, states}), weft::narrow(output, 1, 0, e.steps)};
}

Tensors state_scan_parts(const Call& c) {
  const auto a = c.attributes<StateScanAttributes>();
  const StateScan s = state_scan_of(c);
  const ScanExtents e = extents_of(s);
  const Tensor first =
      a.cached ? weft::reshape(rows_before(s.state, s.sequence, s.is_first), {e.batch, e.heads, e.width, e.states})
               : s.state;
  Tensors results = e.shares_rate ? scan_of_chunks(s, first, e, a.chunk) : scan_of_states(s, first, e);
  if (a.cached) results[0] = with_rows(s.state, weft::reshape(results[0], {e.batch, s.state.dim(1)}), s.sequence);
  return results;
}

/// With all states in memory. G_t, the gradient of the states after step t, is c_t dy_t and what step t + 1 keeps of G_{t+1}.
Tensors state_scan_backward_parts(const Call& call) {
  const StateScanBackward s = state_scan_backward_of(call);
  const ScanExtents e = extents_of(s);
  const Shape all_shape{e.batch, e.steps, e.heads, e.width, e.states};
  const Tensor kept = kept_of(s.dt, s.a, e), dt = weft::unsqueeze(s.dt, -1), moved = s.x * dt,
               b = weft::unsqueeze(for_heads(s.b, e), 3), c = weft::unsqueeze(for_heads(s.c, e), 3),
               d_y = weft::unsqueeze(s.d_y, -1);
  const Tensor all = all_states(kept, weft::unsqueeze(moved, -1) * b, s.state);
  const Tensor first = weft::unsqueeze(s.state, 1);
  const Tensor before = e.steps == 1 ? first : weft::concat(Tensors{first, weft::narrow(all, 1, 0, e.steps - 1)}, 1);
  // The last step gets the gradient of the last states, and keeps all of it.
  Tensor flow = weft::expand(d_y * c, all_shape);
  const Tensor end = weft::narrow(flow, 1, e.steps - 1, 1) + weft::unsqueeze(s.d_state, 1);
  flow = e.steps == 1 ? end : weft::concat(Tensors{weft::narrow(flow, 1, 0, e.steps - 1), end}, 1);
  const Tensor next =
      e.steps == 1 ? kept
                   : weft::concat(Tensors{weft::narrow(kept, 1, 1, e.steps - 1), weft::narrow(kept, 1, 0, 1)}, 1);
  const Tensor g = linear_recurrence(weft::expand(next, all_shape), flow, 1, true);
  const auto by_group = [&](const Tensor& t) {  // [B, T, H, P, N] -> [B, T, G, N]
    return weft::sum(weft::reshape(t, {e.batch, e.steps, e.groups, e.each() * e.width, e.states}), {3});
  };
  const Tensor d_moved = weft::sum(g * b, {-1});            // [B, T, H, P]
  const Tensor d_rate = weft::sum(g * before * kept, {3});  // [B, T, H, N], of dt a
  const Tensor d_dt = weft::sum(d_moved * s.x, {-1}) + weft::sum(d_rate * s.a, {-1});
  const Tensor d_a = weft::sum(d_rate * dt, {0, 1});
  return {d_moved * dt,
          d_dt,
          e.shares_rate ? weft::sum(d_a, {-1}, {.keepdims = true}) : d_a,
          by_group(g * weft::unsqueeze(moved, -1)),
          by_group(weft::expand(d_y * all, all_shape)),
          weft::select(g * kept, 1, 0)};
}

Tensors state_scan_gradients(const GradientCall& g) {
  if (g.call.attributes<StateScanAttributes>().cached) return {};
  // Where states share a rate, a GPU takes the products within chunks and their gradients in less time than a kernel that goes from
  // step to step.
  if (g.call.input(0).device().kind != Device::Kind::cpu && g.call.input(2).dim(1) == 1) return {};
  Tensors inputs(g.call.inputs());
  for (std::size_t i = 0; i < 2; ++i)
    inputs.push_back(g.gradients[i].defined() ? g.gradients[i] : zeros_like(g.results[i]));
  Tensors gradients;
  for (const NodeRef& node : call_nodes(state_scan_backward_row(), inputs, {}, g.call.where()))
    gradients.emplace_back(node);
  return gradients;
}

double scan_flops(const Tensor& x, const Tensor& b, double each) {
  return each * static_cast<double>(x.numel()) * static_cast<double>(b.dim(-1));
}

std::vector<OpCase> scan_cases(bool is_backward) {
  const auto inputs = [&](Extent steps, Extent heads, Extent width, Extent groups, Extent states, bool shares) {
    std::vector<CaseInput> list{{{2, steps, heads, width}, -1, 1},        {{2, steps, heads}, 0.1, 1},
                                {{heads, shares ? 1 : states}, -2, -0.1}, {{2, steps, groups, states}, -1, 1},
                                {{2, steps, groups, states}, -1, 1},      {{2, heads, width, states}, -1, 1}};
    if (is_backward) {
      list.push_back({{2, heads, width, states}, -1, 1});
      list.push_back({{2, steps, heads, width}, -1, 1});
    }
    return list;
  };
  std::vector<OpCase> cases = {{"channels", inputs(5, 6, 1, 1, 3, false)},
                               {"heads", inputs(5, 4, 3, 2, 5, true)},
                               {"one step", inputs(1, 2, 5, 1, 9, true)},
                               {"heads with rates of each state", inputs(4, 2, 3, 1, 8, false)}};
  if (!is_backward) cases[1].attributes = {{"chunk", Extent{2}}};
  return cases;
}

Tensors convolution_parts(const Call& call) {
  const StateConvolution s = state_convolution_of(call);
  const bool cached = call.attributes<StateConvolutionAttributes>().cached;
  const Extent batch = s.x.dim(0), steps = s.x.dim(1), width = s.x.dim(2), kernel = s.weight.dim(1);
  const Tensor before =
      cached ? weft::reshape(rows_before(s.state, s.sequence, s.is_first), {batch, kernel - 1, width}) : s.state;
  const Tensor all = weft::concat(Tensors{before, s.x}, 1);
  Tensor y;
  for (Extent k = 0; k < kernel; ++k) {
    const Tensor part = weft::narrow(all, 1, k, steps) * weft::select(s.weight, 1, k);
    y = y.defined() ? y + part : part;
  }
  y = y + s.bias;
  if (!cached) return {weft::narrow(all, 1, steps, kernel - 1), y};
  // Those before the padding.
  const Tensor at = s.count + arange(kernel - 1, DType::i32, s.x.device());
  const Tensor last = embedding(weft::reshape(weft::permute(all, {1, 0, 2}), {steps + kernel - 1, batch * width}), at);
  const Tensor rows = weft::permute(weft::reshape(last, {kernel - 1, batch, width}), {1, 0, 2});
  return {with_rows(s.state, weft::reshape(rows, {batch, (kernel - 1) * width}), s.sequence), y};
}

}  // namespace

StateScan state_scan_of(const Call& c) {
  StateScan s{c.input(0), c.input(1), c.input(2), c.input(3), c.input(4), c.input(5), {}, {}};
  if (c.attributes<StateScanAttributes>().cached) s.sequence = c.input(6), s.is_first = c.input(7);
  return s;
}
StateScanBackward state_scan_backward_of(const Call& c) {
  return {c.input(0), c.input(1), c.input(2), c.input(3), c.input(4), c.input(5), c.input(6), c.input(7)};
}
StateConvolution state_convolution_of(const Call& c) {
  StateConvolution s{c.input(0), c.input(1), c.input(2), c.input(3), {}, {}, {}};
  if (c.attributes<StateConvolutionAttributes>().cached)
    s.sequence = c.input(4), s.is_first = c.input(5), s.count = c.input(6);
  return s;
}

const OpRow& state_scan_row() {
  static const OpRow row{
      .name = "state_scan",
      .family = "scan",
      .inputs = {{.name = "operands", .repeated = true}},
      .attributes = {field("chunk", &StateScanAttributes::chunk,
                           "steps that the decomposition computes at once, with one rate a head"),
                     field("cached", &StateScanAttributes::cached, "whether the states are rows of a cache")},
      .several_outputs = true,
      .doc =
          "Linear recurrences of the states of channels, from x [B, T, H, P], dt, rates, b, c and the first states. "
          "What "
          "selective_scan and state_space_scan are made of.",
      .formula = "s_t = exp(dt_t a) s_{t-1} + dt_t x_t b_t; y_t = s_t . c_t",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<StateScanAttributes>();
            require_count(c, a.cached ? 8 : 6);
            require_floats(c, 6);
            if (a.chunk < 1) c.usage_error(fmt::format("a chunk of {} steps; give at least 1", a.chunk));
            const StateScan s = state_scan_of(c);
            const ScanExtents e = checked(c, s);
            if (a.cached) {
              require_cache(c, s.state, s.sequence, s.is_first, e.batch, e.heads * e.width * e.states);
            } else {
              require_shape(c, s.state, {e.batch, e.heads, e.width, e.states}, "state");
            }
            return std::vector<Result>{like(s.state), like(s.x)};
          },
      .decompose = state_scan_parts,
      .gradient = state_scan_gradients,
      .form = KernelForm::routine,
      .in_place = 5,
      .flops = [](const Call& c) { return scan_flops(c.input(0), c.input(3), 6); },
      .cases = scan_cases(false),
      .errors = {{"b of other steps",
                  {{{2, 3, 4, 1}}, {{2, 3, 4}}, {{4, 3}}, {{2, 2, 1, 3}}, {{2, 3, 1, 3}}, {{2, 4, 1, 3}}},
                  {},
                  "b is [2, 2, 1, 3], not [2, 3, 1, 3]"},
                 {"no state", {{{2, 3, 4, 1}}, {{2, 3, 4}}}, {}, "there are 2 inputs; 6 are needed"}}};
  return row;
}

const OpRow& state_scan_backward_row() {
  static const OpRow row{
      .name = "state_scan_backward",
      .family = "scan",
      .inputs = {{.name = "operands", .repeated = true}},
      .several_outputs = true,
      .doc = "Gradients of state_scan to its six operands, from them and the gradients of its results.",
      .infer =
          [](const Call& c) {
            require_count(c, 8);
            require_floats(c, 8);
            const StateScanBackward s = state_scan_backward_of(c);
            const ScanExtents e = checked(c, s);
            const Shape states{e.batch, e.heads, e.width, e.states};
            require_shape(c, s.state, states, "state");
            require_shape(c, s.d_state, states, "the gradient of the states");
            require_shape(c, s.d_y, s.x.shape(), "the gradient of y");
            return std::vector<Result>{like(s.x), like(s.dt), like(s.a), like(s.b), like(s.c), like(s.state)};
          },
      .decompose = state_scan_backward_parts,
      .form = KernelForm::routine,
      .flops = [](const Call& c) { return scan_flops(c.input(0), c.input(3), 20); },
      .cases = scan_cases(true)};
  return row;
}

const OpRow& state_convolution_row() {
  static const OpRow row{
      .name = "state_convolution",
      .family = "scan",
      .inputs = {{.name = "operands", .repeated = true}},
      .attributes = {field("cached", &StateConvolutionAttributes::cached, "whether the states are rows of a cache")},
      .several_outputs = true,
      .doc =
          "Each channel's convolution with its last inputs, from x [B, T, W], weight [W, K], bias and the inputs "
          "before. "
          "What short_convolution is made of.",
      .formula = "y_t = sum_k w_k x_{t-K+1+k} + bias",
      .infer =
          [](const Call& c) {
            const bool cached = c.attributes<StateConvolutionAttributes>().cached;
            require_count(c, cached ? 7 : 4);
            require_floats(c, 4);
            const StateConvolution s = state_convolution_of(c);
            if (s.x.rank() != 3 || s.x.dim(1) < 1) c.shape_error("x is not [B, T, W] with at least one step");
            if (s.weight.rank() != 2 || s.weight.dim(1) < 1) c.shape_error("weight is not [W, K]");
            const Extent batch = s.x.dim(0), width = s.x.dim(2), before = s.weight.dim(1) - 1;
            require_shape(c, s.weight, {width, before + 1}, "weight");
            require_shape(c, s.bias, {width}, "bias");
            if (cached) {
              require_cache(c, s.state, s.sequence, s.is_first, batch, before * width);
              require_indices(c, {s.count});
              require_shape(c, s.count, {1}, "count");
            } else {
              require_shape(c, s.state, {batch, before, width}, "state");
            }
            return std::vector<Result>{like(s.state), like(s.x)};
          },
      .decompose = convolution_parts,
      .form = KernelForm::routine,
      .in_place = 3,
      .flops =
          [](const Call& c) {
            return 2.0 * static_cast<double>(c.input(0).numel()) * static_cast<double>(c.input(1).dim(1));
          },
      .cases = {{"steps", {{{2, 6, 5}}, {{5, 4}, -1, 1}, {{5}}, {{2, 3, 5}}}},
                {"one step", {{{2, 1, 9}}, {{9, 4}, -1, 1}, {{9}}, {{2, 3, 9}}}},
                {"steps that are less than the kernel", {{{1, 2, 3}}, {{3, 5}, -1, 1}, {{3}}, {{1, 4, 3}}}}},
      .errors = {{"a state of other steps",
                  {{{2, 6, 5}}, {{5, 4}}, {{5}}, {{2, 4, 5}}},
                  {},
                  "state is [2, 4, 5], not [2, 3, 5]"}}};
  return row;
}

}  // namespace weft::graph
