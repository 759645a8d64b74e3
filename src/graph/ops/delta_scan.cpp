#include "graph/delta_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/state_operands.hpp"
#include "weft/ops.hpp"
#include "weft/ops/scans.hpp"

namespace weft::graph {
namespace {

struct DeltaExtents {
  Extent batch, steps, groups, keys, heads, width;
  Extent each() const { return heads / groups; }  // heads of a group
};

DeltaExtents checked_delta(const Call& c, const DeltaScan& s) {
  if (s.q.rank() != 4 || s.q.dim(1) < 1 || s.q.dim(2) < 1)
    c.shape_error("q is not [B, T, G, K] with at least one step");
  if (s.v.rank() != 4 || s.v.dim(2) % s.q.dim(2) != 0)
    c.shape_error("v is not [B, T, H, V] with heads that the groups divide");
  const DeltaExtents e{s.q.dim(0), s.q.dim(1), s.q.dim(2), s.q.dim(3), s.v.dim(2), s.v.dim(3)};
  require_shape(c, s.k, s.q.shape(), "k");
  require_shape(c, s.v, {e.batch, e.steps, e.heads, e.width}, "v");
  require_shape(c, s.decay, {e.batch, e.steps, e.heads}, "decay");
  require_shape(c, s.beta, {e.batch, e.steps, e.heads}, "beta");
  return e;
}

/// 1 / (1 + a) for matrices [..., Q, Q] of which only what lies below the diagonal counts. Inverses of blocks on the diagonal are
/// joined in pairs, so nothing grows that substitution would keep small.
Tensor unit_lower_inverse(const Tensor& a, Extent size) {
  const Tensor place = cast(arange(size, DType::i32, a.device()), a.dtype());
  const auto block_of = [&](Extent width) { return elementwise("floor", {place / static_cast<double>(width)}); };
  const auto all = [&](const Tensor& row, bool columns) { return weft::unsqueeze(row, columns ? 0 : 1); };
  Tensor inverse = cast(elementwise("eq", {all(place, false), all(place, true)}), a.dtype());
  for (Extent width = 1; width < size; width *= 2) {
    const Tensor block = block_of(width), pair = block_of(2 * width);
    const Tensor joins = elementwise("eq", {all(pair, false), all(pair, true)}) &
                         elementwise("gt", {all(block, false), all(block, true)});
    const Tensor between = weft::where(joins, a, zeros_like(a));
    inverse = inverse - (width == 1 ? between : weft::matmul(weft::matmul(inverse, between), inverse));
  }
  return inverse;
}

/// Within a chunk of Q steps, what the steps add to the state follows from a triangular system; between chunks only states are
/// carried. A step that fills the last chunk has decay 0 and beta 0, so it changes no state.
Tensors delta_of_chunks(const DeltaScan& s, const Tensor& first, const DeltaExtents& e, Extent chunk) {
  const Extent q = std::min(chunk, e.steps), count = (e.steps + q - 1) / q, each = e.each();
  const auto chunked = [&](const Tensor& t, const Shape& rest, const std::vector<int>& order) {
    Shape shape{e.batch, count, q};
    for (const Extent extent : rest) shape.push_back(extent);
    return weft::permute(weft::reshape(with_steps(t, count * q), shape), order);
  };
  const Tensor qs = weft::unsqueeze(chunked(s.q, {e.groups, e.keys}, {1, 0, 3, 2, 4}), 3),  // [N, B, G, 1, Q, K]
      ks = weft::unsqueeze(chunked(s.k, {e.groups, e.keys}, {1, 0, 3, 2, 4}), 3);
  const Tensor vs = chunked(s.v, {e.groups, each, e.width}, {1, 0, 3, 4, 2, 5});  // [N, B, G, R, Q, V]
  const Tensor beta = weft::unsqueeze(chunked(s.beta, {e.groups, each}, {1, 0, 3, 4, 2}), -1);
  const Tensor decay = cumsum(chunked(s.decay, {e.groups, each}, {1, 0, 3, 4, 2}), -1);  // [N, B, G, R, Q]

  // Step i sees step j through exp(decay_i - decay_j).
  const Tensor difference = weft::unsqueeze(decay, -1) - weft::unsqueeze(decay, -2);
  const Tensor row = arange(q, DType::i32, s.q.device());
  const Tensor sees = elementwise("ge", {weft::unsqueeze(row, 1), weft::unsqueeze(row, 0)});
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor weights = exp(weft::where(sees, difference, scalar_like(none, difference)));
  const Tensor kept = weft::unsqueeze(exp(decay), -1);
  const Tensor solved = unit_lower_inverse(weft::matmul(ks, weft::transpose(ks)) * weights * beta, q);
  const Tensor added = weft::matmul(solved, vs * beta),  // as if the state were zero
      seen = weft::matmul(solved, ks * (beta * kept));   // what the state takes from that
  const Tensor scores = weft::matmul(qs, weft::transpose(ks)) * weights, asked = qs * kept;
  const Tensor last = weft::narrow(decay, -1, q - 1, 1);  // [N, B, G, R, 1]
  const Tensor carried = weft::transpose(ks * weft::unsqueeze(exp(last - decay), -1)),
               left = weft::unsqueeze(exp(last), -1);

  Tensor state = weft::reshape(first, {e.batch, e.groups, each, e.keys, e.width});
  Tensors outputs;
  for (Extent n = 0; n < count; ++n) {
    const auto of_chunk = [&](const Tensor& t) { return weft::select(t, 0, n); };
    const Tensor u = of_chunk(added) - weft::matmul(of_chunk(seen), state);
    outputs.push_back(weft::matmul(of_chunk(asked), state) + weft::matmul(of_chunk(scores), u));  // [B, G, R, Q, V]
    state = state * of_chunk(left) + weft::matmul(of_chunk(carried), u);
  }
  Tensor y = count == 1 ? outputs[0] : weft::concat(outputs, 3);
  y = weft::reshape(weft::permute(y, {0, 3, 1, 2, 4}), {e.batch, count * q, e.heads, e.width});
  return {weft::reshape(state, {e.batch, e.heads, e.keys, e.width}), weft::narrow(y, 1, 0, e.steps)};
}

Tensors delta_scan_parts(const Call& c) {
  const auto a = c.attributes<DeltaScanAttributes>();
  const DeltaScan s = delta_scan_of(c);
  const DeltaExtents e = checked_delta(c, s);
  if (!a.cached) return delta_of_chunks(s, s.state, e, a.chunk);
  const Tensor first = weft::reshape(rows_before(s.state, s.sequence, s.is_first), {e.batch, e.heads, e.keys, e.width});
  Tensors results = delta_of_chunks(s, first, e, a.chunk);
  results[0] = with_rows(s.state, weft::reshape(results[0], {e.batch, s.state.dim(1)}), s.sequence);
  return results;
}

std::vector<OpCase> delta_cases() {
  const auto inputs = [](Extent steps, Extent groups, Extent keys, Extent heads, Extent width) {
    return std::vector<CaseInput>{{{2, steps, groups, keys}, -1, 1}, {{2, steps, groups, keys}, -1, 1},
                                  {{2, steps, heads, width}, -1, 1}, {{2, steps, heads}, -1, -0.05},
                                  {{2, steps, heads}, 0.1, 0.9},     {{2, heads, keys, width}, -1, 1}};
  };
  return {{"one chunk", inputs(6, 2, 3, 4, 5)},
          {"chunks", inputs(7, 1, 4, 2, 3), {{"chunk", Extent{3}}}},
          {"one step", inputs(1, 2, 5, 2, 9)}};
}

}  // namespace

DeltaScan delta_scan_of(const Call& c) {
  DeltaScan s{c.input(0), c.input(1), c.input(2), c.input(3), c.input(4), c.input(5), {}, {}};
  if (c.attributes<DeltaScanAttributes>().cached) s.sequence = c.input(6), s.is_first = c.input(7);
  return s;
}

const OpRow& delta_scan_row() {
  static const OpRow row{
      .name = "delta_scan",
      .family = "scan",
      .inputs = {{.name = "operands", .repeated = true}},
      .attributes = {field("chunk", &DeltaScanAttributes::chunk, "steps that the decomposition computes at once"),
                     field("cached", &DeltaScanAttributes::cached, "whether the states are rows of a cache")},
      .several_outputs = true,
      .doc =
          "Recurrences of the states of heads by the gated delta rule, from q and k [B, T, G, K], v [B, T, H, V], "
          "decay, "
          "beta and the first states. What gated_delta_rule is made of.",
      .formula = "u_t = beta_t (v_t - exp(g_t) s_{t-1}^T k_t); s_t = exp(g_t) s_{t-1} + k_t u_t^T; y_t = s_t^T q_t",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<DeltaScanAttributes>();
            require_count(c, a.cached ? 8 : 6);
            require_floats(c, 6);
            if (a.chunk < 1) c.usage_error(fmt::format("a chunk of {} steps; give at least 1", a.chunk));
            const DeltaScan s = delta_scan_of(c);
            const DeltaExtents e = checked_delta(c, s);
            if (a.cached)
              require_cache(c, s.state, s.sequence, s.is_first, e.batch, e.heads * e.keys * e.width);
            else
              require_shape(c, s.state, {e.batch, e.heads, e.keys, e.width}, "state");
            return std::vector<Result>{like(s.state), like(s.v)};
          },
      .decompose = delta_scan_parts,
      .form = KernelForm::routine,
      .in_place = 5,
      .flops =
          [](const Call& c) {
            return 7.0 * static_cast<double>(c.input(2).numel()) * static_cast<double>(c.input(0).dim(3));
          },
      .cases = delta_cases(),
      .errors = {{"beta of other steps",
                  {{{2, 3, 1, 4}}, {{2, 3, 1, 4}}, {{2, 3, 2, 5}}, {{2, 3, 2}}, {{2, 2, 2}}, {{2, 2, 4, 5}}},
                  {},
                  "beta is [2, 2, 2], not [2, 3, 2]"},
                 {"heads that the groups do not divide",
                  {{{2, 3, 2, 4}}, {{2, 3, 2, 4}}, {{2, 3, 3, 5}}, {{2, 3, 3}}, {{2, 3, 3}}, {{2, 3, 4, 5}}},
                  {},
                  "with heads that the groups divide"},
                 {"no state", {{{2, 3, 1, 4}}, {{2, 3, 1, 4}}}, {}, "there are 2 inputs; 6 are needed"}}};
  return row;
}

}  // namespace weft::graph
