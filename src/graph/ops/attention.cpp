// Attention and other parts of a transformer: rotary positions, gated units.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/attention.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {

using graph::NodeRef;

namespace graph {
namespace {

// Scores and weights of attention, [B, H, T, S].
struct Scores {
  Tensor q, k, v;  // [B, H, T, D]
  Tensor weights, logsumexp;
};

Scores scores_of(const Call& call) {
  auto heads_first = [](const Tensor& x) { return Tensor(permute(x.node(), {0, 2, 1, 3})); };
  Scores s{heads_first(call.input(0)), heads_first(call.input(1)), heads_first(call.input(2)), {}, {}};
  const auto mask = call.attributes<AttentionAttributes>();
  Tensor scores = weft::matmul(s.q, weft::transpose(s.k)) * mask.scale;
  const Extent keys = scores.dim(-1), surplus = std::max<Extent>(scores.dim(-2) - keys, 0);
  if (mask.causal || mask.window > 0) {
    const Shape grid{scores.dim(-2), keys};
    const Tensor position =
        Tensor(iota(grid, 0, DType::i32, scores.device())) + static_cast<double>(keys - scores.dim(-2));
    const Tensor column(iota(grid, 1, DType::i32, scores.device()));
    const auto hide = [&](const Tensor& seen) {
      scores = elementwise("where", {seen, scores, scalar_like(-std::numeric_limits<double>::infinity(), scores)});
    };
    const auto window = static_cast<double>(mask.window);
    if (mask.causal) hide(column <= position);
    if (mask.window > 0) hide(position < column + window);
    if (mask.window > 0 && !mask.causal) hide(column < position + window);
  }
  // Number of first queries that see no key.
  const Extent blind = mask.causal || keys == 0 ? surplus
                       : mask.window > 0        ? std::max<Extent>(surplus - mask.window + 1, 0)
                                                : 0;
  // The sum of no elements is 0, but their maximum does not exist.
  Tensor top =
      weft::detach(keys == 0 ? weft::sum(scores, {-1}, {.keepdims = true}) : amax(scores, {-1}, {.keepdims = true}));
  Tensor sees;
  if (blind > 0) {  // their weights are 0, not 0 / 0
    const Tensor query(iota(top.shape(), 2, DType::i32, top.device()));
    sees = scalar_like(static_cast<double>(blind), query) <= query;
    top = elementwise("where", {sees, top, scalar_like(0, top)});
  }
  const Tensor e = elementwise("exp", {scores - top});
  const Tensor total = weft::sum(e, {-1}, {.keepdims = true});
  const Tensor divisor = blind > 0 ? elementwise("where", {sees, total, scalar_like(1, total)}) : total;
  Tensor logsumexp = elementwise("log", {divisor}) + top;
  if (blind > 0)
    logsumexp =
        elementwise("where", {sees, logsumexp, scalar_like(-std::numeric_limits<double>::infinity(), logsumexp)});
  s.weights = e / divisor;
  s.logsumexp = weft::reshape(logsumexp, {scores.dim(0), scores.dim(1), scores.dim(2)});
  return s;
}

Tensor heads_last(const Tensor& x) { return Tensor(permute(x.node(), {0, 2, 1, 3})); }

std::vector<AttributeSpec> mask_and_scale() {
  return {
      field("causal", &AttentionAttributes::causal, "whether query i sees keys j <= i + (keys - queries) only",
            {.aliases = {"is_causal"}}),
      field("scale", &AttentionAttributes::scale, "factor of the scores; 0: 1/sqrt(D)"),
      field("window", &AttentionAttributes::window, "keys that a query sees to either side, its own included; 0: all")};
}

// The multiplications of two products for each pair of a query and a key that it sees.
double attention_flops(const Call& c, double products) {
  const Shape &q = c.input(0).shape(), &k = c.input(1).shape();
  const double pairs =
      static_cast<double>(q[1]) * static_cast<double>(k[1]) * (c.attributes<AttentionAttributes>().causal ? 0.5 : 1.0);
  return 2 * products * static_cast<double>(q[0] * q[2] * q[3]) * pairs;
}

}  // namespace

const OpRow& attention_row() {
  static const OpRow row{.name = "fused_attention",
                         .family = "attention",
                         .inputs = {{"q", ops::DTypes::floats}, {"k", ops::DTypes::floats}, {"v", ops::DTypes::floats}},
                         .attributes = mask_and_scale(),
                         .result = "that of q",
                         .several_outputs = true,
                         .doc =
                             "softmax(scale q k^T) v with heads behind positions, q [B, T, H, D], k and v [B, S, H, "
                             "D]; then the logsumexp "
                             "of each row of scores [B, H, T].",
                         .infer =
                             [](const Call& c) {
                               const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2);
                               if (k.dtype() != q.dtype() || v.dtype() != q.dtype())
                                 c.dtype_error("the dtypes differ; cast them");
                               if (q.rank() != 4 || k.rank() != 4 || v.shape() != k.shape() || k.dim(0) != q.dim(0) ||
                                   k.dim(2) != q.dim(2) || k.dim(3) != q.dim(3))
                                 c.shape_error("not q [B, T, H, D] with k and v [B, S, H, D]");
                               return std::vector<Result>{like(q), {q.dtype(), Shape{q.dim(0), q.dim(2), q.dim(1)}}};
                             },
                         .decompose =
                             [](const Call& c) {
                               const Scores s = scores_of(c);
                               return Tensors{heads_last(weft::matmul(s.weights, s.v)), s.logsumexp};
                             },
                         .gradient = [](const GradientCall& g) -> Tensors {
                           if (!g.gradients[0].defined() || g.gradients[1].defined())
                             return {};  // a gradient through logsumexp: use the decomposition
                           Tensors inputs = g.call.inputs();
                           inputs.insert(inputs.end(), {g.results[0], g.results[1], g.gradients[0]});
                           Tensors back;
                           for (const NodeRef& node :
                                call_nodes(attention_backward_row(), std::move(inputs), g.call.words(), g.call.where()))
                             back.emplace_back(node);
                           return back;
                         },
                         .form = KernelForm::attention,
                         .flops = [](const Call& c) { return attention_flops(c, 2); },
                         .cases = {{"causal", {{{2, 17, 3, 8}}, {{2, 17, 3, 8}}, {{2, 17, 3, 8}}}},
                                   {"more keys, a window",
                                    {{{1, 5, 2, 16}}, {{1, 33, 2, 16}}, {{1, 33, 2, 16}}},
                                    {{"window", Extent{7}}}}},
                         .errors = {{"two axes", {{{2, 3}}, {{2, 3}}, {{2, 3}}}, {}, "not q [B, T, H, D]"}}};
  return row;
}

const OpRow& attention_backward_row() {
  static const OpRow row{
      .name = "fused_attention_backward",
      .family = "attention",
      .inputs = {{"q", ops::DTypes::floats},
                 {"k", ops::DTypes::floats},
                 {"v", ops::DTypes::floats},
                 {"o", ops::DTypes::floats},
                 {"logsumexp", ops::DTypes::floats},
                 {"d_o", ops::DTypes::floats}},
      .attributes = mask_and_scale(),
      .result = "that of q",
      .several_outputs = true,
      .doc = "Gradients of fused_attention to q, k and v, from its results and the gradient of the first.",
      .infer =
          [](const Call& c) {
            return std::vector<Result>{like(c.input(0)), like(c.input(1)), like(c.input(2))};
          },
      .decompose =
          [](const Call& c) {
            const Scores s = scores_of(c);
            const Tensor d_o(permute(c.input(5).node(), {0, 2, 1, 3}));
            const Tensor d_weights = weft::matmul(d_o, weft::transpose(s.v));
            const Tensor d_scores = s.weights *
                                    (d_weights - weft::sum(d_weights * s.weights, {-1}, {.keepdims = true})) *
                                    c.attributes<AttentionAttributes>().scale;
            return Tensors{heads_last(weft::matmul(d_scores, s.k)),
                           heads_last(weft::matmul(weft::transpose(d_scores), s.q)),
                           heads_last(weft::matmul(weft::transpose(s.weights), d_o))};
          },
      .form = KernelForm::attention,
      .flops = [](const Call& c) { return attention_flops(c, 5); }};
  return row;
}

namespace {

const OpRow& public_attention_row() {
  static const OpRow row{
      .name = "attention",
      .family = "attention",
      .inputs = {{"q", ops::DTypes::floats}, {"k", ops::DTypes::floats}, {"v", ops::DTypes::floats}},
      .attributes = mask_and_scale(),
      .result = "that of q",
      .doc = "softmax(scale q k^T) v; q [B, H, T, D], k and v [B, Hkv, S, D] where Hkv divides H.",
      .formula = "softmax(scale q k^T + mask) v",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2);
            if (k.dtype() != q.dtype() || v.dtype() != q.dtype()) c.dtype_error("the dtypes differ; cast them");
            if (q.rank() != 4 || k.rank() != 4 || v.shape() != k.shape() || k.dim(0) != q.dim(0) ||
                k.dim(3) != q.dim(3) || k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0)
              c.shape_error("not q [B, H, T, D] with k and v [B, Hkv, S, D] where Hkv divides H");
            if (const Extent window = c.attributes<AttentionAttributes>().window; window < 0)
              c.usage_error(fmt::format("the window is {}; give 0 for none", window));
            return std::vector<Result>{like(q)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2);
            auto attributes = c.attributes<AttentionAttributes>();
            auto positions_first =
                [&](const Tensor& x) {  // [B, H, T, D] -> [B, T, H, D], key heads repeated for groups
                  NodeRef n = x.node();
                  const Extent group = q.dim(1) / x.dim(1);
                  if (group > 1) {
                    n = reshape(n, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)});
                    n = expand(n, {x.dim(0), x.dim(1), group, x.dim(2), x.dim(3)});
                    n = reshape(n, {x.dim(0), q.dim(1), x.dim(2), x.dim(3)});
                  }
                  return Tensor(permute(n, {0, 2, 1, 3}));
                };
            if (attributes.scale == 0) attributes.scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
            // A window that covers everything is dropped, because only attention without a window has kernels.
            if (attributes.window >= std::max(q.dim(2), k.dim(2))) attributes.window = 0;
            const Tensors inputs{positions_first(q), positions_first(k), positions_first(v)};
            const std::vector<NodeRef> fused =
                call_nodes(attention_row(), inputs, words_of(attention_row().attributes, attributes), c.where());
            return Tensors{Tensor(permute(fused[0], {0, 2, 1, 3}))};
          },
      .cases = {{"causal", {{{2, 3, 17, 8}}, {{2, 3, 17, 8}}, {{2, 3, 17, 8}}}},
                {"groups of heads", {{{1, 4, 64, 32}}, {{1, 2, 64, 32}}, {{1, 2, 64, 32}}}},
                {"all keys seen", {{{2, 2, 65, 64}}, {{2, 2, 65, 64}}, {{2, 2, 65, 64}}}, {{"causal", false}}},
                {"one head of keys, more keys", {{{1, 4, 5, 16}}, {{1, 1, 33, 16}}, {{1, 1, 33, 16}}}},
                {"one position", {{{1, 1, 1, 4}}, {{1, 1, 1, 4}}, {{1, 1, 1, 4}}}},
                {"fewer keys", {{{1, 2, 130, 24}}, {{1, 2, 70, 24}}, {{1, 2, 70, 24}}}, {{"causal", false}}},
                {"a window", {{{1, 2, 20, 8}}, {{1, 2, 20, 8}}, {{1, 2, 20, 8}}}, {{"window", Extent{4}}}}},
      .errors =
          {{"three axes", {{{2, 3, 4}}, {{2, 3, 4}}, {{2, 3, 4}}}, {}, "not q [B, H, T, D]"},
           {"heads that do not divide", {{{1, 3, 2, 4}}, {{1, 2, 2, 4}}, {{1, 2, 2, 4}}}, {}, "where Hkv divides H"},
           {"negative window",
            {{{1, 1, 2, 4}}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}},
            {{"window", Extent{-1}}},
            "the window is -1"},
           {"integers", {{{1, 1, 2, 4}, 0, 3, DType::i32}, {{1, 1, 2, 4}}, {{1, 1, 2, 4}}}, {}, "q takes floats"}}};
  return row;
}

struct RopeAttributes {
  double base = 10000;
  Extent offset = 0;
};

const OpRow& rope_row() {
  static const OpRow row{
      .name = "rope",
      .family = "attention",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("base", &RopeAttributes::base, "of the angles"),
                     field("offset", &RopeAttributes::offset, "position of the first row")},
      .doc =
          "Rotary positions, rotate-half form, x [..., T, D]: the pair (x[d], x[d + D/2]) at position p turns by p "
          "base^(-2d/D).",
      .formula = "y[d] = x[d] cos a - x[d+D/2] sin a, y[d+D/2] = x[d+D/2] cos a + x[d] sin a, a = p base^(-2d/D)",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.rank() < 2 || x.dim(-1) % 2 != 0)
              c.shape_error("x is not [..., positions, channels] with an even number of channels");
            return std::vector<Result>{like(x)};
          },
      .decompose =
          [](const Call& call) {
            const Tensor& x = call.input(0);
            const auto [base, offset] = call.attributes<RopeAttributes>();
            const Extent positions = x.dim(-2), half = x.dim(-1) / 2;
            const Tensor position = cast(Tensor(iota({positions, half}, 0, DType::i32, x.device())), x.dtype()) +
                                    static_cast<double>(offset);
            const Tensor pair = cast(Tensor(iota({positions, half}, 1, DType::i32, x.device())), x.dtype());
            const Tensor angle = position * elementwise("exp", {pair * (-std::log(base) / static_cast<double>(half))});
            const Tensor c = elementwise("cos", {angle}), s = elementwise("sin", {angle});
            const Tensor low = weft::slice(x, -1, 0, half), high = weft::slice(x, -1, half);
            const Tensor parts[] = {low * c - high * s, high * c + low * s};
            return Tensors{weft::concat(parts, -1, call.where())};
          },
      .cases = {{"from position 3", {{{6, 9, 50}, -4, 4}}, {{"offset", Extent{3}}}},
                {"another base", {{{2, 5, 8}, -4, 4}}, {{"base", 500.0}}}},
      .errors = {{"odd channels", {{{2, 3}}}, {}, "an even number of channels"},
                 {"one axis", {{{4}}}, {}, "x is not"}}};
  return row;
}

const OpRow& swiglu_row() {
  static const OpRow row{
      .name = "swiglu",
      .family = "attention",
      .inputs = {{"gate", ops::DTypes::floats}, {"up", ops::DTypes::floats}},
      .result = "that of the inputs",
      .doc = "silu(gate) up.",
      .formula = "y = gate / (1 + exp(-gate)) * up",
      .torch = "F.silu(gate) * up",
      .infer =
          [](const Call& c) {
            Shape shape;
            if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), shape))
              c.shape_error("gate and up do not broadcast");
            return std::vector<Result>{{promote(c.input(0).dtype(), c.input(1).dtype()), shape}};
          },
      .decompose =
          [](const Call& c) {
            return Tensors{
                elementwise("mul", {elementwise("silu", {c.input(0)}, {}, c.where()), c.input(1)}, {}, c.where())};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}, {{6, 9, 50}}}}},
      .errors = {{"shapes that differ", {{{2, 3}}, {{2, 4}}}, {}, "gate and up do not broadcast"}}};
  return row;
}

}  // namespace

bool fits_tiles(const Call& attention, Extent width_max) {
  const Tensor &q = attention.input(0), &k = attention.input(1);
  return q.dtype() == DType::f32 && attention.attributes<AttentionAttributes>().window == 0 && q.dim(3) <= width_max &&
         q.numel() > 0 && k.numel() > 0;
}

OpRows attention_rows() {
  return {&attention_row(), &attention_backward_row(), &public_attention_row(), &rope_row(), &swiglu_row()};
}

}  // namespace graph

Tensor rope(const Tensor& x, double base, Extent offset, Where where) {
  return graph::call(graph::rope_row(), {x}, graph::RopeAttributes{base, offset}, where);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale, Extent window,
                 Where where) {
  return graph::call(graph::public_attention_row(), {q, k, v}, graph::AttentionAttributes{causal, scale, window},
                     where);
}

Tensor swiglu(const Tensor& gate, const Tensor& up, Where where) {
  return graph::call(graph::swiglu_row(), {gate, up}, graph::Words{}, where);
}

}  // namespace weft
