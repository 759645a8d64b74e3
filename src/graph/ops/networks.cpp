// Parts of networks: gated units, attention with a mask, bags of embeddings, comparison of tensors.
#include "weft/ops/networks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

const OpRow& prelu_row() {
  static const OpRow row{
      .name = "prelu",
      .family = "network",
      .inputs = {{"x", ops::DTypes::floats}, {"weight", ops::DTypes::floats}},
      .doc = "max(x, 0) + weight min(x, 0), with a weight for each channel of x [N, C, ...] or one for all.",
      .torch = "F.prelu(x, weight)",
      .onnx = "PRelu",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &weight = c.input(1);
            if (weight.rank() != 1 || (weight.dim(0) != 1 && (x.rank() < 2 || weight.dim(0) != x.dim(1))))
              c.shape_error("weight is neither [1] nor a number for each channel of x [images, channels, ...]");
            if (promote(weight.dtype(), x.dtype()) != x.dtype())
              c.dtype_error("weight has a wider dtype than x; cast one");
            return std::vector<Result>{like(x)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            Tensor weight = c.input(1);
            if (weight.dim(0) != 1) {
              Shape shape{1, weight.dim(0)};
              for (int i = 2; i < x.rank(); ++i) shape.push_back(1);
              weight = weft::reshape(weight, shape);
            } else {
              weight = weft::reshape(weight, Shape{});
            }
            return Tensors{
                elementwise("where", {x > scalar_like(0, x), x, elementwise("mul", {weight, x}, {}, c.where())})};
          },
      .cases = {{"each channel", {{{3, 4, 5}}, {{4}}}}, {"one for all", {{{7}}, {{1}}}}},
      .errors = {{"another number", {{{3, 4, 5}}, {{5}}}, {}, "weight is neither [1] nor"}}};
  return row;
}

struct GluAttributes {
  Extent axis = -1;
};

const OpRow& glu_row() {
  static const OpRow row{
      .name = "glu",
      .family = "network",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("axis", &GluAttributes::axis, "axis that is halved", {.aliases = {"dim"}})},
      .doc = "a sigmoid(b), with a and b the halves of x along an axis.",
      .torch = "F.glu(x, axis)",
      .infer =
          [](const Call& c) {
            const int axis = c.axis(c.attributes<GluAttributes>().axis);
            Shape shape = c.input(0).shape();
            if (shape[axis] % 2 != 0) c.shape_error(fmt::format("axis {} has an odd extent, {}", axis, shape[axis]));
            shape[axis] /= 2;
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const int axis = c.axis(c.attributes<GluAttributes>().axis);
            const Tensor& x = c.input(0);
            const Extent half = x.dim(axis) / 2;
            return Tensors{weft::narrow(x, axis, 0, half) *
                           elementwise("sigmoid", {weft::narrow(x, axis, half, half)})};
          },
      .cases = {{"rows", {{{5, 8}}}}, {"over axis 1", {{{2, 6, 3}}}, {{"axis", Extent{1}}}}},
      .errors = {{"an odd extent", {{{5, 7}}}, {}, "axis 1 has an odd extent, 7"}}};
  return row;
}

struct CloseAttributes {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};

const OpRow& allclose_row() {
  static const OpRow row{
      .name = "allclose",
      .family = "network",
      .inputs = {{"x", ops::DTypes::floats}, {"y", ops::DTypes::floats}},
      .attributes = {field("rtol", &CloseAttributes::rtol, "allowed difference relative to |y|"),
                     field("atol", &CloseAttributes::atol, "allowed difference"),
                     field("equal_nan", &CloseAttributes::equal_nan, "whether two NaNs are close")},
      .result = "bool",
      .differentiable = false,
      .doc = "Whether |x - y| <= atol + rtol |y| for all elements.",
      .torch = "torch.isclose(x, y, rtol, atol, equal_nan).all()",
      .numpy = "np.allclose(x, y, rtol, atol, equal_nan)",
      .infer =
          [](const Call& c) {
            Shape shape;
            if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), shape))
              c.shape_error("x and y do not broadcast");
            return std::vector<Result>{{DType::boolean, Shape{}}};
          },
      .decompose =
          [](const Call& c) {
            const auto [rtol, atol, equal_nan] = c.attributes<CloseAttributes>();
            return Tensors{
                weft::all(elementwise("isclose", {c.input(0), c.input(1)}, {rtol, atol, equal_nan ? 1.0 : 0.0}))};
          },
      .cases = {{"far", {{{5, 8}}, {{5, 8}}}, {}, false}, {"close", {{{5, 8}}, {{5, 8}}}, {{"atol", 5.0}}, false}},
      .errors = {{"shapes", {{{5}}, {{4}}}, {}, "x and y do not broadcast"}}};
  return row;
}

// ---- Attention -----------------------------------------------------------------------------------------------------------

struct MaskedAttributes {
  bool causal = false;
  double scale = 0;
};

Shape batch_of(const Tensor& x, int inner) {
  return Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - inner));
}

// Repeats each head of keys for its heads of queries.
Tensor repeated(const Tensor& x, Extent heads) {
  if (x.rank() < 3 || x.dim(-3) == heads) return x;
  Shape one = batch_of(x, 2), many = one, result = batch_of(x, 3);
  one.push_back(1);
  many.push_back(heads / x.dim(-3));
  result.push_back(heads);
  for (Shape* shape : {&one, &many, &result}) shape->push_back(x.dim(-2)), shape->push_back(x.dim(-1));
  return weft::reshape(weft::expand(weft::reshape(x, one), many), result);
}

Tensor masked_attention(const Call& c) {
  const auto [causal, given_scale] = c.attributes<MaskedAttributes>();
  const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2), &mask = c.input(3);
  const double scale = given_scale != 0 ? given_scale : 1 / std::sqrt(static_cast<double>(q.dim(-1)));
  const Extent queries = q.dim(-2), keys = k.dim(-2);
  if (!mask.defined() && (!causal || queries == keys) && k.shape() == v.shape() && q.rank() >= 3 && q.numel() > 0 &&
      keys > 0) {
    const auto four = [](const Tensor& x) {
      Extent batch = 1;
      for (int i = 0; i + 3 < x.rank(); ++i) batch *= x.shape()[i];
      return weft::reshape(x, {batch, x.dim(-3), x.dim(-2), x.dim(-1)});
    };
    return weft::reshape(weft::attention(four(q), four(k), four(v), causal, scale, 0, c.where()), q.shape());
  }
  const Extent heads = q.rank() >= 3 ? q.dim(-3) : 1;
  Tensor scores = weft::matmul(q, weft::transpose(repeated(k, heads)), c.where()) * scale;
  Tensor sees;
  if (causal) {
    const Tensor row = weft::reshape(arange(queries, DType::i32, q.device()), {queries, 1});
    sees = weft::reshape(arange(keys, DType::i32, q.device()), {1, keys}) <= row;
  }
  if (mask.defined() && mask.dtype() == DType::boolean)
    sees = sees.defined() ? elementwise("logical_and", {sees, mask}) : mask;
  if (mask.defined() && mask.dtype() != DType::boolean) scores = elementwise("add", {scores, mask});
  const double infinity = std::numeric_limits<double>::infinity();
  if (sees.defined()) scores = elementwise("where", {sees, scores, scalar_like(-infinity, scores)});
  if (keys == 0) return weft::matmul(scores, repeated(v, heads));
  // A row without keys has -inf as its largest score; its weights must be 0, not 0 / 0.
  const Tensor greatest = weft::detach(amax(scores, {-1}, {.keepdims = true}));
  const Tensor top = elementwise(
      "where", {elementwise("eq", {greatest, scalar_like(-infinity, greatest)}), scalar_like(0, greatest), greatest});
  const Tensor e = elementwise("exp", {scores - top}), total = weft::sum(e, {-1}, {.keepdims = true});
  const Tensor weights = e / elementwise("where", {total > scalar_like(0, total), total, scalar_like(1, total)});
  return weft::matmul(weights, repeated(v, heads));
}

const OpRow& masked_attention_row() {
  static const OpRow row{
      .name = "scaled_dot_product_attention",
      .family = "attention",
      .inputs = {{"q", ops::DTypes::floats},
                 {"k", ops::DTypes::floats},
                 {"v", ops::DTypes::floats},
                 {.name = "mask", .optional = true}},
      .attributes = {field("causal", &MaskedAttributes::causal, "whether query i sees keys j <= i only",
                           {.aliases = {"is_causal"}}),
                     field("scale", &MaskedAttributes::scale, "factor of the scores; 0: 1/sqrt(D)")},
      .result = "that of q",
      .doc = "softmax(scale q k^T + mask) v; a mask of bools says which keys are seen, one of floats is added.",
      .formula = "softmax(scale q k^T + mask) v",
      .torch =
          "(lambda s: torch.softmax((s if mask is None else s.masked_fill(~mask, -float('inf')) if mask.dtype == "
          "torch.bool else s + mask)"
          ".masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1) & causal, -float('inf')), -1)"
          ".nan_to_num(0) @ v.repeat_interleave(q.shape[-3] // v.shape[-3] if q.dim() > 2 else 1, -3 if q.dim() > 2 "
          "else 0))"
          "(q @ k.repeat_interleave(q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1, -3 if q.dim() > 2 else "
          "0).transpose(-1, -2)"
          " * (scale or q.shape[-1] ** -0.5))",
      .infer =
          [](const Call& c) {
            const Tensor &q = c.input(0), &k = c.input(1), &v = c.input(2), &mask = c.input(3);
            if (k.dtype() != q.dtype() || v.dtype() != q.dtype()) c.dtype_error("the dtypes differ; cast them");
            if (q.rank() < 2 || k.rank() != q.rank() || v.rank() != q.rank() || k.dim(-1) != q.dim(-1) ||
                v.dim(-2) != k.dim(-2))
              c.shape_error("not q [..., T, D], k [..., S, D] and v [..., S, E]");
            const int rank = q.rank();
            for (int i = 0; i + 2 < rank; ++i) {
              const bool is_heads = i + 3 == rank;
              const Extent of_q = q.shape()[i], of_k = k.shape()[i];
              if (v.shape()[i] != of_k || (is_heads ? of_k == 0 || of_q % of_k != 0 : of_q != of_k))
                c.shape_error("the batch of q, k and v differs, or the number of key heads does not divide that of q");
            }
            Shape scores = q.shape();
            scores[rank - 1] = k.dim(-2);
            if (mask.defined()) {
              if (mask.dtype() != DType::boolean &&
                  (!is_float(mask.dtype()) || promote(mask.dtype(), q.dtype()) != q.dtype()))
                c.dtype_error("mask is neither bool nor a float as narrow as q; cast it");
              Shape joined;
              if (!broadcast_shapes(scores, mask.shape(), joined) || joined != scores)
                c.shape_error(fmt::format("mask does not broadcast to the scores {}", scores.to_string()));
            }
            Shape shape = q.shape();
            shape[rank - 1] = v.dim(-1);
            return std::vector<Result>{{q.dtype(), shape}};
          },
      .decompose = [](const Call& c) { return Tensors{masked_attention(c)}; },
      .cases = {{"a mask that is added", {{{2, 3, 5, 8}}, {{2, 3, 7, 8}}, {{2, 3, 7, 8}}, {{5, 7}}}},
                {"plain", {{{2, 3, 5, 8}}, {{2, 3, 7, 8}}, {{2, 3, 7, 8}}, {.absent = true}}},
                {"bools, a query that sees nothing",
                 {{{1, 1, 3, 4}},
                  {{1, 1, 4, 4}},
                  {{1, 1, 4, 4}},
                  {.shape = {3, 4}, .type = DType::boolean, .values = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1}}}},
                {"causal, more keys",
                 {{{2, 2, 4, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 8}}, {.absent = true}},
                 {{"causal", true}}},
                {"causal, as many",
                 {{{2, 4, 6, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 8}}, {.absent = true}},
                 {{"causal", true}, {"scale", 0.3}}},
                {"groups of heads and a mask", {{{2, 4, 3, 8}}, {{2, 2, 6, 8}}, {{2, 2, 6, 5}}, {{2, 1, 3, 6}}}},
                {"no heads", {{{3, 8}}, {{6, 8}}, {{6, 5}}, {{6}, -1, 1}}}},
      .errors =
          {{"keys of another width", {{{2, 3, 5, 8}}, {{2, 3, 7, 4}}, {{2, 3, 7, 4}}}, {}, "not q [..., T, D]"},
           {"a wide mask",
            {{{5, 8}}, {{7, 8}}, {{7, 8}}, {{5, 6}}},
            {},
            "mask does not broadcast to the scores [5, 7]"},
           {"a mask of integers",
            {{{5, 8}}, {{7, 8}}, {{7, 8}}, {{5, 7}, 0, 1, DType::i32}},
            {},
            "mask is neither bool nor"},
           {"heads that do not divide", {{{3, 5, 8}}, {{2, 7, 8}}, {{2, 7, 8}}}, {}, "does not divide that of q"}}};
  return row;
}

// ---- Bags ----------------------------------------------------------------------------------------------------------------

struct BagAttributes {
  BagMode mode = BagMode::sum;
};

Tensor bags(const Call& c) {
  const BagMode mode = c.attributes<BagAttributes>().mode;
  const Tensor &table = c.input(0), &indices = c.input(1), &offsets = c.input(2), &weights = c.input(3);
  Tensor rows = weft::embedding(table, indices, c.where());
  if (weights.defined()) rows = rows * weft::unsqueeze(weights, -1);
  if (!offsets.defined()) {
    if (mode == BagMode::max) return amax(rows, {1});
    return mode == BagMode::sum ? weft::sum(rows, {1}) : weft::mean(rows, {1});
  }
  // The bag of row i is the number of bags that begin at or before i, minus one.
  const Extent n = indices.dim(0), count = offsets.dim(0);
  const Tensor place = weft::reshape(arange(n, offsets.dtype(), table.device()), {n, 1});
  const Tensor bag = weft::sum(weft::cast(weft::reshape(offsets, {1, count}) <= place, DType::i32), {1}) - 1.0;
  const Tensor total = weft::scatter_add(bag, rows, count, c.where());
  if (mode == BagMode::sum) return total;
  const Tensor number = weft::scatter_add(bag, full({n, 1}, 1, rows.dtype(), table.device()), count);
  return total / elementwise("maximum", {number, scalar_like(1, number)});
}

const OpRow& embedding_bag_row() {
  static const OpRow row{
      .name = "embedding_bag",
      .family = "gather",
      .inputs = {{"table", ops::DTypes::floats},
                 {"indices", ops::DTypes::integers},
                 {.name = "offsets", .dtypes = ops::DTypes::integers, .optional = true},
                 {.name = "weights", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {field("mode", &BagAttributes::mode, "how the rows of a bag are combined",
                           {.choices = {"sum", "mean", "max"}})},
      .result = "that of table",
      .doc = "Rows of a table added up by bags: indices [B, L], or [n] with the offset of each bag.",
      .torch =
          "F.embedding_bag(indices.long(), table, None if offsets is None else offsets.long(), mode=mode, "
          "per_sample_weights=weights)",
      .infer =
          [](const Call& c) {
            const Tensor &table = c.input(0), &indices = c.input(1), &offsets = c.input(2), &weights = c.input(3);
            const BagMode mode = c.attributes<BagAttributes>().mode;
            if (table.rank() != 2) c.shape_error("table is not [rows, columns]");
            if (offsets.defined() ? indices.rank() != 1 || offsets.rank() != 1 : indices.rank() != 2)
              c.shape_error("indices are not [bags, length], or [n] with offsets [bags]");
            if (weights.defined() && weights.shape() != indices.shape())
              c.shape_error("the shapes of weights and indices differ");
            if (weights.defined() && weights.dtype() != table.dtype())
              c.dtype_error("the dtypes of weights and table differ; cast one");
            if (weights.defined() && mode != BagMode::sum) c.usage_error("weights are for sums");
            if (mode == BagMode::max && (offsets.defined() || indices.dim(-1) == 0))
              c.usage_error("a max takes bags of one length that is not 0; give indices [bags, length]");
            return std::vector<Result>{
                {table.dtype(), {offsets.defined() ? offsets.dim(0) : indices.dim(0), table.dim(1)}}};
          },
      .decompose = [](const Call& c) { return Tensors{bags(c)}; },
      .cases =
          {{"sums", {{{9, 5}}, {{3, 4}, 0, 8, DType::i32}, {.absent = true}, {.absent = true}}},
           {"weighted", {{{9, 5}}, {{3, 4}, 0, 8, DType::i32}, {.absent = true}, {{3, 4}}}},
           {"means",
            {{{9, 5}}, {{3, 4}, 0, 8, DType::i32}, {.absent = true}, {.absent = true}},
            {{"mode", std::string("mean")}}},
           {"the greatest",
            {{{9, 5}},
             {.shape = {2, 3}, .type = DType::i32, .values = {0, 1, 2, 4, 7, 8}},
             {.absent = true},
             {.absent = true}},
            {{"mode", std::string("max")}}},
           {"offsets",
            {{{9, 5}}, {{7}, 0, 8, DType::i32}, {.shape = {4}, .type = DType::i32, .values = {0, 2, 2, 5}}, {{7}}}},
           {"means by offsets",
            {{{9, 5}},
             {{7}, 0, 8, DType::i32},
             {.shape = {4}, .type = DType::i32, .values = {0, 2, 2, 5}},
             {.absent = true}},
            {{"mode", std::string("mean")}}}},
      .errors =
          {{"weights of a mean",
            {{{9, 5}}, {{3, 4}, 0, 8, DType::i32}, {.absent = true}, {{3, 4}}},
            {{"mode", std::string("mean")}},
            "weights are for sums"},
           {"one axis without offsets", {{{9, 5}}, {{3}, 0, 8, DType::i32}}, {}, "indices are not [bags, length]"},
           {"a max by offsets",
            {{{9, 5}}, {{7}, 0, 8, DType::i32}, {{2}, 0, 0, DType::i32}},
            {{"mode", std::string("max")}},
            "a max takes bags of one length"}}};
  return row;
}

}  // namespace

OpRows network_rows() {
  return {&prelu_row(), &glu_row(), &allclose_row(), &masked_attention_row(), &embedding_bag_row()};
}

}  // namespace graph

Tensor prelu(const Tensor& x, const Tensor& weight, Where where) {
  return graph::call(graph::prelu_row(), {x, weight}, graph::Words{}, where);
}
Tensor glu(const Tensor& x, int axis, Where where) {
  return graph::call(graph::glu_row(), {x}, graph::GluAttributes{axis}, where);
}
Tensor allclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan, Where where) {
  return graph::call(graph::allclose_row(), {x, y}, graph::CloseAttributes{rtol, atol, equal_nan}, where);
}
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const MaskedAttentionOptions& options, Where where) {
  return graph::call(graph::masked_attention_row(), {q, k, v, mask},
                     graph::MaskedAttributes{options.causal, options.scale}, where);
}
Tensor embedding_bag(const Tensor& table, const Tensor& indices, const Tensor& offsets, const Tensor& weights,
                     BagMode mode, Where where) {
  return graph::call(graph::embedding_bag_row(), {table, indices, offsets, weights}, graph::BagAttributes{mode}, where);
}

}  // namespace weft
