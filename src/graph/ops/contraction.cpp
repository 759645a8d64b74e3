// Relatives of einsum: products of tensors over some axes, and sums of products.
#include "weft/ops/contraction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/einsum.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct TensordotAttributes {
  std::vector<Extent> axes_a, axes_b;
};

std::vector<int> sorted_axes(const Call& c, const Tensor& x, const std::vector<Extent>& axes) {
  std::vector<int> list;
  for (Extent axis : axes) {
    if (axis < -x.rank() || axis >= x.rank())
      c.shape_error(fmt::format("axis {} is outside of [{}, {})", axis, -x.rank(), x.rank()));
    list.push_back(static_cast<int>(axis < 0 ? axis + x.rank() : axis));
    if (std::count(list.begin(), list.end(), list.back()) > 1)
      c.shape_error(fmt::format("axis {} is given twice", axis));
  }
  return list;
}

const OpRow& tensordot_row() {
  static const OpRow row{
      .name = "tensordot",
      .family = "product",
      .inputs = {{"a", ops::DTypes::numbers}, {"b", ops::DTypes::numbers}},
      .attributes = {field("axes_a", &TensordotAttributes::axes_a, "axes of a that are summed", {.required = true}),
                     field("axes_b", &TensordotAttributes::axes_b, "axes of b, in the order of a's",
                           {.required = true})},
      .result = "that of the inputs",
      .doc = "Sums of products over some axes of both; then come the other axes of a and those of b.",
      .torch = "torch.tensordot(a, b, (axes_a, axes_b))",
      .numpy = "np.tensordot(a, b, (axes_a, axes_b))",
      .infer =
          [](const Call& c) {
            const auto attributes = c.attributes<TensordotAttributes>();
            const Tensor &a = c.input(0), &b = c.input(1);
            if (a.dtype() != b.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (attributes.axes_a.size() != attributes.axes_b.size())
              c.shape_error("as many axes of a as of b are summed");
            const std::vector<int> of_a = sorted_axes(c, a, attributes.axes_a),
                                   of_b = sorted_axes(c, b, attributes.axes_b);
            for (std::size_t i = 0; i < of_a.size(); ++i)
              if (a.dim(of_a[i]) != b.dim(of_b[i]))
                c.shape_error(fmt::format("axis {} of a has {} elements, axis {} of b {}", of_a[i], a.dim(of_a[i]),
                                          of_b[i], b.dim(of_b[i])));
            Shape shape;
            for (int i = 0; i < a.rank(); ++i)
              if (std::find(of_a.begin(), of_a.end(), i) == of_a.end()) shape.push_back(a.dim(i));
            for (int i = 0; i < b.rank(); ++i)
              if (std::find(of_b.begin(), of_b.end(), i) == of_b.end()) shape.push_back(b.dim(i));
            return std::vector<Result>{{a.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto attributes = c.attributes<TensordotAttributes>();
            const std::vector<int> of_a = sorted_axes(c, c.input(0), attributes.axes_a),
                                   of_b = sorted_axes(c, c.input(1), attributes.axes_b);
            Labels labels, output;
            for (int i = 0; i < c.input(0).rank(); ++i) {
              labels.push_back(i);
              if (std::find(of_a.begin(), of_a.end(), i) == of_a.end()) output.push_back(i);
            }
            for (int i = 0; i < c.input(1).rank(); ++i) {
              const auto found = std::find(of_b.begin(), of_b.end(), i);
              labels.push_back(found == of_b.end() ? 100 + i : of_a[static_cast<std::size_t>(found - of_b.begin())]);
              if (found == of_b.end()) output.push_back(100 + i);
            }
            return Tensors{call(einsum_row(), {c.input(0), c.input(1)}, EinsumAttributes{labels, output}, c.where())};
          },
      .cases = {{"two axes", {{{3, 4, 5}}, {{5, 6, 4}}}, {{"axes_a", Labels{1, 2}}, {"axes_b", Labels{2, 0}}}},
                {"outer", {{{3}}, {{2, 2}}}, {{"axes_a", Labels{}}, {"axes_b", Labels{}}}}},
      .errors = {{"extents that differ",
                  {{{3, 4}}, {{3, 4}}},
                  {{"axes_a", Labels{1}}, {"axes_b", Labels{0}}},
                  "axis 1 of a has 4 elements, axis 0 of b 3"},
                 {"an axis outside",
                  {{{3}}, {{3}}},
                  {{"axes_a", Labels{1}}, {"axes_b", Labels{0}}},
                  "axis 1 is outside of"}}};
  return row;
}

struct AddProductAttributes {
  double beta = 1, alpha = 1;
};

// Sums of products; beta 0 leaves out c, whatever its values.
OpRow add_product_row(std::string name, std::string doc, int rank_a, int rank_b, bool sums_batch,
                      std::vector<OpCase> cases) {
  const auto product_shape = [=](const Call& c) {
    const Tensor &a = c.input(1), &b = c.input(2);
    if (a.dtype() != b.dtype() || c.input(0).dtype() != a.dtype()) c.dtype_error("the dtypes differ; cast them");
    const bool fits = a.rank() == rank_a && b.rank() == rank_b && a.dim(-1) == b.dim(rank_b > 1 ? -2 : 0) &&
                      (rank_a < 3 || a.dim(0) == b.dim(0));
    if (!fits) c.shape_error(fmt::format("not a with {} axes and b with {} that fit as factors", rank_a, rank_b));
    Shape shape;
    if (rank_a == 3 && !sums_batch) shape.push_back(a.dim(0));
    shape.push_back(a.dim(-2));
    if (rank_b > 1) shape.push_back(b.dim(-1));
    return shape;
  };
  return {.name = name,
          .family = "product",
          .inputs = {{"c", ops::DTypes::floats}, {"a", ops::DTypes::floats}, {"b", ops::DTypes::floats}},
          .attributes = {field("beta", &AddProductAttributes::beta, "factor of c; 0 leaves it out"),
                         field("alpha", &AddProductAttributes::alpha, "factor of the product")},
          .result = "that of the inputs",
          .doc = std::move(doc),
          .torch = fmt::format("torch.{}(c, a, b, beta=beta, alpha=alpha)", name),
          .infer =
              [product_shape](const Call& c) {
                const Shape shape = product_shape(c);
                Shape joined;
                if (!broadcast_shapes(c.input(0).shape(), shape, joined) || joined != shape)
                  c.shape_error(fmt::format("c does not broadcast to {}", shape.to_string()));
                return std::vector<Result>{{c.input(0).dtype(), shape}};
              },
          .decompose =
              [sums_batch, product_shape](const Call& c) {
                const auto [beta, alpha] = c.attributes<AddProductAttributes>();
                Tensor product = weft::matmul(c.input(1), c.input(2), c.where());
                if (sums_batch) product = weft::sum(product, {0});
                if (alpha != 1) product = product * alpha;
                return Tensors{beta == 0 ? product : product + (beta == 1 ? c.input(0) : c.input(0) * beta)};
              },
          .cases = std::move(cases),
          .errors = {{"factors that do not fit", {{{2}}, {{3, 4}}, {{5, 2}}}, {}, "that fit as factors"}}};
}

const OpRow& addr_row() {
  static const OpRow row{.name = "addr",
                         .family = "product",
                         .inputs = {{"c", ops::DTypes::floats}, {"a", ops::DTypes::floats}, {"b", ops::DTypes::floats}},
                         .attributes = {field("beta", &AddProductAttributes::beta, "factor of c; 0 leaves it out"),
                                        field("alpha", &AddProductAttributes::alpha, "factor of the product")},
                         .result = "that of the inputs",
                         .doc = "beta c + alpha a_i b_j for vectors a and b.",
                         .torch = "torch.addr(c, a, b, beta=beta, alpha=alpha)",
                         .infer =
                             [](const Call& c) {
                               const Tensor &a = c.input(1), &b = c.input(2);
                               if (a.dtype() != b.dtype() || c.input(0).dtype() != a.dtype())
                                 c.dtype_error("the dtypes differ; cast them");
                               if (a.rank() != 1 || b.rank() != 1) c.shape_error("a and b are not vectors");
                               const Shape shape{a.dim(0), b.dim(0)};
                               Shape joined;
                               if (!broadcast_shapes(c.input(0).shape(), shape, joined) || joined != shape)
                                 c.shape_error(fmt::format("c does not broadcast to {}", shape.to_string()));
                               return std::vector<Result>{{a.dtype(), shape}};
                             },
                         .decompose =
                             [](const Call& c) {
                               const auto [beta, alpha] = c.attributes<AddProductAttributes>();
                               const Tensor product =
                                   weft::unsqueeze(c.input(1), 1) * weft::unsqueeze(c.input(2), 0) * alpha;
                               return Tensors{beta == 0 ? product : product + c.input(0) * beta};
                             },
                         .cases = {{"rows", {{{4}}, {{3}}, {{4}}}},
                                   {"scaled", {{{3, 4}}, {{3}}, {{4}}}, {{"beta", 0.5}, {"alpha", -2.0}}}},
                         .errors = {{"a matrix", {{{2}}, {{3, 4}}, {{2}}}, {}, "a and b are not vectors"},
                                    {"c", {{{3}}, {{3}}, {{4}}}, {}, "c does not broadcast to [3, 4]"}}};
  return row;
}

const std::vector<OpRow>& add_product_rows() {
  const CaseAttributes scaled{{"beta", 0.5}, {"alpha", -2.0}};
  static const std::vector<OpRow> rows{
      add_product_row("addmm", "beta c + alpha a b for matrices a and b.", 2, 2, false,
                      {{"rows", {{{4}}, {{3, 5}}, {{5, 4}}}}, {"scaled", {{{3, 4}}, {{3, 5}}, {{5, 4}}}, scaled}}),
      add_product_row("baddbmm", "beta c + alpha a b for batches of matrices.", 3, 3, false,
                      {{"scaled", {{{2, 3, 4}}, {{2, 3, 5}}, {{2, 5, 4}}}, scaled}}),
      add_product_row("addmv", "beta c + alpha a b for a matrix a and a vector b.", 2, 1, false,
                      {{"scaled", {{{3}}, {{3, 5}}, {{5}}}, scaled}}),
      add_product_row("addbmm", "beta c + alpha times the sum of the products a b of a batch.", 3, 3, true,
                      {{"scaled", {{{3, 4}}, {{2, 3, 5}}, {{2, 5, 4}}}, scaled}})};
  return rows;
}

OpRow pair_row(std::string name, std::string doc, std::string torch, std::function<Shape(const Call&)> shape,
               std::function<Tensor(const Call&)> f, std::vector<OpCase> cases, std::vector<ErrorCase> errors) {
  return {.name = std::move(name),
          .family = "product",
          .inputs = {{"a", ops::DTypes::numbers}, {"b", ops::DTypes::numbers}},
          .result = "that of the inputs",
          .doc = std::move(doc),
          .torch = std::move(torch),
          .infer =
              [shape](const Call& c) {
                if (c.input(0).dtype() != c.input(1).dtype()) c.dtype_error("the dtypes differ; cast one");
                return std::vector<Result>{{c.input(0).dtype(), shape(c)}};
              },
          .decompose = [f](const Call& c) { return Tensors{f(c)}; },
          .cases = std::move(cases),
          .errors = std::move(errors)};
}

struct CrossAttributes {
  Extent axis = -1;
};

Shape joined_shape(const Call& c) {
  Shape shape;
  if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), shape)) c.shape_error("a and b do not broadcast");
  return shape;
}

Tensor cross_product(const Call& c) {
  const Shape shape = joined_shape(c);
  const int axis = static_cast<int>(c.attributes<CrossAttributes>().axis), at = axis < 0 ? axis + shape.rank() : axis;
  const Tensor a = weft::expand(c.input(0), shape), b = weft::expand(c.input(1), shape);
  Tensors parts;
  for (Extent i = 0; i < 3; ++i) {
    const Extent j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(weft::narrow(a, at, j, 1) * weft::narrow(b, at, k, 1) -
                    weft::narrow(a, at, k, 1) * weft::narrow(b, at, j, 1));
  }
  return weft::concat(parts, at);
}

Tensor kron_product(const Call& c) {
  const int rank = std::max(c.input(0).rank(), c.input(1).rank());
  Shape of_a, of_b, shape;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - rank + c.input(0).rank(), ib = i - rank + c.input(1).rank();
    const Extent ea = ia < 0 ? 1 : c.input(0).dim(ia), eb = ib < 0 ? 1 : c.input(1).dim(ib);
    of_a.push_back(ea), of_a.push_back(1);
    of_b.push_back(1), of_b.push_back(eb);
    shape.push_back(ea * eb);
  }
  return weft::reshape(weft::reshape(c.input(0), of_a) * weft::reshape(c.input(1), of_b), shape);
}

const std::vector<OpRow>& pair_rows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> list;
    list.push_back(pair_row(
        "outer", "a_i b_j for vectors.", "torch.outer(a, b)",
        [](const Call& c) {
          if (c.input(0).rank() != 1 || c.input(1).rank() != 1) c.shape_error("a and b are not vectors");
          return Shape{c.input(0).dim(0), c.input(1).dim(0)};
        },
        [](const Call& c) { return weft::unsqueeze(c.input(0), 1) * weft::unsqueeze(c.input(1), 0); },
        {{"vectors", {{{3}}, {{4}}}}}, {{"a matrix", {{{3, 2}}, {{4}}}, {}, "are not vectors"}}));
    list.back().aliases = {"ger"};
    list.push_back(pair_row(
        "inner", "Sums of products over the last axes of both.", "torch.inner(a, b)",
        [](const Call& c) {
          const Tensor &a = c.input(0), &b = c.input(1);
          if (a.rank() < 1 || b.rank() < 1 || a.dim(-1) != b.dim(-1)) c.shape_error("the last axes of a and b differ");
          Shape shape(std::vector<Extent>(a.shape().begin(), a.shape().end() - 1));
          for (int i = 0; i + 1 < b.rank(); ++i) shape.push_back(b.dim(i));
          return shape;
        },
        [](const Call& c) { return weft::tensordot(c.input(0), c.input(1), {-1}, {-1}, c.where()); },
        {{"matrices", {{{3, 5}}, {{2, 4, 5}}}}}, {{"lengths", {{{3}}, {{4}}}, {}, "the last axes of a and b differ"}}));
    list.push_back(pair_row(
        "dot", "The sum of products of two vectors.", "torch.dot(a, b)",
        [](const Call& c) {
          if (c.input(0).rank() != 1 || c.input(0).shape() != c.input(1).shape())
            c.shape_error("a and b are not vectors of one length");
          return Shape{};
        },
        [](const Call& c) { return weft::matmul(c.input(0), c.input(1), c.where()); }, {{"vectors", {{{9}}, {{9}}}}},
        {{"lengths", {{{3}}, {{4}}}, {}, "not vectors of one length"}}));
    list.back().aliases = {"vdot"};
    list.push_back(pair_row(
        "cross", "The vector at right angles to both along an axis of extent 3.",
        "torch.cross(*torch.broadcast_tensors(a, b), axis)",
        [](const Call& c) {
          const Shape shape = joined_shape(c);
          const Extent axis = c.attributes<CrossAttributes>().axis;
          if (axis < -shape.rank() || axis >= shape.rank() || shape.dim(static_cast<int>(axis)) != 3)
            c.shape_error(fmt::format("axis {} of a and b has not 3 elements", axis));
          return shape;
        },
        cross_product, {{"rows", {{{4, 3}}, {{3}}}}, {"over axis 0", {{{3, 2}}, {{3, 2}}}, {{"axis", Extent{0}}}}},
        {{"four", {{{4}}, {{4}}}, {}, "axis -1 of a and b has not 3 elements"}}));
    list.back().attributes = {field("axis", &CrossAttributes::axis, "axis of the vectors", {.aliases = {"dim"}})};
    list.push_back(pair_row("kron", "Blocks a_i b: extents multiply, axis by axis from the last.", "torch.kron(a, b)",
                            [](const Call& c) {
                              const int rank = std::max(c.input(0).rank(), c.input(1).rank());
                              Shape shape;
                              for (int i = 0; i < rank; ++i) {
                                const int ia = i - rank + c.input(0).rank(), ib = i - rank + c.input(1).rank();
                                shape.push_back((ia < 0 ? 1 : c.input(0).dim(ia)) * (ib < 0 ? 1 : c.input(1).dim(ib)));
                              }
                              return shape;
                            },
                            kron_product,
                            {{"matrices", {{{2, 3}}, {{3, 2}}}}, {"ranks that differ", {{{2}}, {{2, 2}}}}},
                            {{"dtypes", {{{2}}, {{2}, 0, 3, DType::i32}}, {}, "the dtypes differ"}}));
    list.push_back(pair_row(
        "vecdot", "The sum of products along an axis.", "(a * b).sum(axis)",
        [](const Call& c) {
          const Shape shape = joined_shape(c);
          const Extent axis = c.attributes<CrossAttributes>().axis;
          if (axis < -shape.rank() || axis >= shape.rank())
            c.shape_error(fmt::format("axis {} is outside of [{}, {})", axis, -shape.rank(), shape.rank()));
          Shape rest;
          for (int i = 0; i < shape.rank(); ++i)
            if (i != (axis < 0 ? axis + shape.rank() : axis)) rest.push_back(shape[i]);
          return rest;
        },
        [](const Call& c) {
          return weft::sum(c.input(0) * c.input(1), {static_cast<int>(c.attributes<CrossAttributes>().axis)}, {},
                           c.where());
        },
        {{"rows", {{{4, 3}}, {{3}}}}, {"over axis 0", {{{3, 2}}, {{3, 2}}}, {{"axis", Extent{0}}}}},
        {{"an axis outside", {{{4}}, {{4}}}, {{"axis", Extent{1}}}, "axis 1 is outside of [-1, 1)"}}));
    list.back().attributes = {field("axis", &CrossAttributes::axis, "axis of the vectors", {.aliases = {"dim"}})};
    return list;
  }();
  return rows;
}

const OpRow& trace_row() {
  static const OpRow row{
      .name = "trace",
      .family = "product",
      .inputs = {{"a", ops::DTypes::numbers}},
      .doc = "The sum of the diagonal of the last two axes.",
      .torch = "a.diagonal(0, -2, -1).sum(-1)",
      .infer =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            if (a.rank() < 2) c.shape_error("a has no two axes");
            return std::vector<Result>{{ops::reduce_types(ops::reduce_row("sum"), a.dtype()).result,
                                        Shape(std::vector<Extent>(a.shape().begin(), a.shape().end() - 2))}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            const Extent n = std::min(a.dim(-2), a.dim(-1));
            const Tensor square = weft::narrow(weft::narrow(a, -2, 0, n), -1, 0, n);
            return Tensors{
                weft::sum(weft::slice(weft::flatten(square, -2, -1), -1, 0, kEnd, n + 1), {-1}, {}, c.where())};
          },
      .cases = {{"a batch", {{{2, 4, 4}}}}, {"wide", {{{3, 5}}}}},
      .errors = {{"one axis", {{{4}}}, {}, "a has no two axes"}}};
  return row;
}

}  // namespace

OpRows contraction_rows() {
  OpRows list{&einsum_row(), &tensordot_row(), &trace_row(), &addr_row()};
  for (const OpRow& row : add_product_rows()) list.push_back(&row);
  for (const OpRow& row : pair_rows()) list.push_back(&row);
  return list;
}

}  // namespace graph

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& axes_a, const std::vector<int>& axes_b,
                 Where where) {
  return graph::call(graph::tensordot_row(), {a, b},
                     graph::TensordotAttributes{{axes_a.begin(), axes_a.end()}, {axes_b.begin(), axes_b.end()}}, where);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int axes, Where where) {
  if (axes < 0) throw UsageError(fmt::format("tensordot: {} axes; give 0 or more", axes));
  std::vector<int> of_a, of_b;
  for (int i = 0; i < axes; ++i) of_a.push_back(i - axes), of_b.push_back(i);
  return tensordot(a, b, of_a, of_b, where);
}

#define WEFT_ADD_PRODUCT(name, number)                                                                             \
  Tensor name(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& o, Where where) {        \
    return graph::call(graph::add_product_rows()[number], {c, a, b}, graph::AddProductAttributes{o.beta, o.alpha}, \
                       where);                                                                                     \
  }
WEFT_ADD_PRODUCT(addmm, 0)
WEFT_ADD_PRODUCT(baddbmm, 1)
WEFT_ADD_PRODUCT(addmv, 2)
WEFT_ADD_PRODUCT(addbmm, 3)
#undef WEFT_ADD_PRODUCT

Tensor outer(const Tensor& a, const Tensor& b, Where where) {
  return graph::call(graph::pair_rows()[0], {a, b}, graph::Words{}, where);
}
Tensor inner(const Tensor& a, const Tensor& b, Where where) {
  return graph::call(graph::pair_rows()[1], {a, b}, graph::Words{}, where);
}
Tensor dot(const Tensor& a, const Tensor& b, Where where) {
  return graph::call(graph::pair_rows()[2], {a, b}, graph::Words{}, where);
}
Tensor cross(const Tensor& a, const Tensor& b, int axis, Where where) {
  return graph::call(graph::pair_rows()[3], {a, b}, graph::CrossAttributes{axis}, where);
}
Tensor kron(const Tensor& a, const Tensor& b, Where where) {
  return graph::call(graph::pair_rows()[4], {a, b}, graph::Words{}, where);
}
Tensor vecdot(const Tensor& a, const Tensor& b, int axis, Where where) {
  return graph::call(graph::pair_rows()[5], {a, b}, graph::CrossAttributes{axis}, where);
}
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& o, Where where) {
  return graph::call(graph::addr_row(), {c, a, b}, graph::AddProductAttributes{o.beta, o.alpha}, where);
}
Tensor matrix_trace(const Tensor& a, Where where) {
  return graph::call(graph::trace_row(), {a}, graph::Words{}, where);
}

}  // namespace weft
