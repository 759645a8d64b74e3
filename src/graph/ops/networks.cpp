// Parts of networks: gated units, bags of embeddings, comparison of tensors.
#include "weft/ops/networks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"

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
    if (mode == BagMode::max && indices.dim(1) == 0)
      return zeros({indices.dim(0), table.dim(1)}, table.dtype(), table.device());
    if (mode == BagMode::max) return amax(rows, {1});
    return mode == BagMode::sum ? weft::sum(rows, {1}) : weft::mean(rows, {1});
  }
  // The bag of row i is the number of bags that begin at or before i, minus one.
  const Extent n = indices.dim(0), count = offsets.dim(0);
  const Tensor place = weft::reshape(arange(n, offsets.dtype(), table.device()), {n, 1});
  const Tensor bag = weft::sum(weft::cast(weft::reshape(offsets, {1, count}) <= place, DType::i32), {1}) - 1.0;
  if (mode == BagMode::max)
    return scatter_reduce(zeros({count, table.dim(1)}, table.dtype(), table.device()), 0,
                          weft::expand(weft::unsqueeze(bag, 1), rows.shape()), rows, ScatterReduction::amax, false,
                          c.where());
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
            {{"mode", std::string("mean")}}},
           {"the greatest by offsets",
            {{{9, 5}},
             {.shape = {7}, .type = DType::i32, .values = {0, 3, 1, 5, 8, 2, 4}},
             {.shape = {4}, .type = DType::i32, .values = {0, 2, 2, 5}},
             {.absent = true}},
            {{"mode", std::string("max")}}}},
      .errors =
          {{"weights of a mean",
            {{{9, 5}}, {{3, 4}, 0, 8, DType::i32}, {.absent = true}, {{3, 4}}},
            {{"mode", std::string("mean")}},
            "weights are for sums"},
           {"one axis without offsets", {{{9, 5}}, {{3}, 0, 8, DType::i32}}, {}, "indices are not [bags, length]"}}};
  return row;
}

const OpRow& bilinear_row() {
  static const OpRow row{
      .name = "bilinear",
      .family = "network",
      .inputs = {{"x", ops::DTypes::floats},
                 {"y", ops::DTypes::floats},
                 {"weight", ops::DTypes::floats},
                 {.name = "bias", .dtypes = ops::DTypes::floats, .optional = true}},
      .doc = "A product of two inputs with a weight [out, in_1, in_2] for each pair of their elements.",
      .formula = "z_o = sum_ij x_i weight_oij y_j + bias_o",
      .torch = "F.bilinear(x, y, weight, bias)",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &y = c.input(1), &weight = c.input(2), &bias = c.input(3);
            bool fits = x.rank() > 0 && x.rank() == y.rank();
            for (int a = 0; fits && a + 1 < x.rank(); ++a) fits = x.dim(a) == y.dim(a);
            if (!fits) c.shape_error("x and y are not [..., elements] with the same leading axes");
            if (weight.rank() != 3 || weight.dim(1) != x.dim(-1) || weight.dim(2) != y.dim(-1))
              c.shape_error("weight is not [outputs, elements of x, elements of y]");
            if (bias.defined() && bias.shape() != Shape{weight.dim(0)}) c.shape_error("bias is not [outputs]");
            for (const Tensor& each : {y, weight, bias})
              if (each.defined() && each.dtype() != x.dtype()) c.dtype_error("the dtypes differ; cast one");
            Shape shape = x.shape();
            shape[x.rank() - 1] = weight.dim(0);
            return std::vector<Result>{{x.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &x = c.input(0), &y = c.input(1), &weight = c.input(2), &bias = c.input(3);
            const Extent out = weight.dim(0), in_1 = weight.dim(1), in_2 = weight.dim(2);
            const Extent rows = Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1)).numel();
            // [rows, out in_2]: x times the weights, and then the sums over y.
            const Tensor by_x = weft::matmul(weft::reshape(x, {rows, in_1}),
                                             weft::reshape(weft::permute(weight, {1, 0, 2}), {in_1, out * in_2}));
            const Tensor sums = weft::sum(weft::reshape(by_x, {rows, out, in_2}) * weft::reshape(y, {rows, 1, in_2}),
                                          {-1}, {}, c.where());
            Shape shape = x.shape();
            shape[x.rank() - 1] = out;
            const Tensor z = weft::reshape(bias.defined() ? sums + bias : sums, shape);
            return Tensors{z};
          },
      .cases = {{"rows", {{{6, 3}}, {{6, 4}}, {{5, 3, 4}}, {{5}}}},
                {"no bias", {{{2, 3, 3}}, {{2, 3, 2}}, {{4, 3, 2}}, {.absent = true}}},
                {"a row", {{{3}}, {{4}}, {{5, 3, 4}}, {{5}}}}},
      .errors = {{"other rows", {{{6, 3}}, {{5, 4}}, {{5, 3, 4}}}, {}, "the same leading axes"},
                 {"another weight", {{{6, 3}}, {{6, 4}}, {{5, 4, 3}}}, {}, "weight is not [outputs"},
                 {"another bias", {{{6, 3}}, {{6, 4}}, {{5, 3, 4}}, {{4}}}, {}, "bias is not [outputs]"}}};
  return row;
}

}  // namespace

OpRows network_rows() { return {&prelu_row(), &glu_row(), &allclose_row(), &embedding_bag_row(), &bilinear_row()}; }

}  // namespace graph

Tensor prelu(const Tensor& x, const Tensor& weight, Where where) {
  return graph::call(graph::prelu_row(), {x, weight}, graph::Words{}, where);
}
Tensor glu(const Tensor& x, int axis, Where where) {
  return graph::call(graph::glu_row(), {x}, graph::GluAttributes{axis}, where);
}
Tensor bilinear(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias, Where where) {
  return graph::call(graph::bilinear_row(), {x, y, weight, bias}, graph::Words{}, where);
}
Tensor allclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan, Where where) {
  return graph::call(graph::allclose_row(), {x, y}, graph::CloseAttributes{rtol, atol, equal_nan}, where);
}
Tensor embedding_bag(const Tensor& table, const Tensor& indices, const Tensor& offsets, const Tensor& weights,
                     BagMode mode, Where where) {
  return graph::call(graph::embedding_bag_row(), {table, indices, offsets, weights}, graph::BagAttributes{mode}, where);
}

}  // namespace weft
