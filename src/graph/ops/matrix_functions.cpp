// Numbers and functions of matrices: norms, condition, rank; and systems of equations between tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/axes.hpp"
#include "graph/matrix_exponential.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/matrices.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/linear_algebra.hpp"
#include "weft/ops/scans.hpp"

namespace weft {
namespace graph {
namespace {

using namespace matrices;
using matrices::turned;  // convolutions have a function of this name

const std::vector<std::string> kNormWords{"fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf"};

struct MatrixNormAttributes {
  MatrixNorm ord = MatrixNorm::frobenius;
  std::vector<Extent> axes{-2, -1};
  bool keepdims = false;
};
struct ConditionAttributes {
  MatrixNorm ord = MatrixNorm::two;
};
struct RankAttributes {
  double atol = 0, rtol = -1;
  bool hermitian = false;
};

// The norm over the last two axes.
Tensor norm_of_matrix(const Tensor& a, MatrixNorm ord) {
  const auto extreme = [](const Tensor& x, bool greatest) { return greatest ? amax(x, {-1}) : amin(x, {-1}); };
  switch (ord) {
    case MatrixNorm::frobenius: return norm(a, {-2, -1});
    case MatrixNorm::nuclear: return weft::sum(weft::svd(a).s, {-1});
    case MatrixNorm::two:
    case MatrixNorm::minus_two: return extreme(weft::svd(a).s, ord == MatrixNorm::two);
    case MatrixNorm::one:
    case MatrixNorm::minus_one: return extreme(weft::sum(elementwise("abs", {a}), {-2}), ord == MatrixNorm::one);
    case MatrixNorm::infinity:
    case MatrixNorm::minus_infinity: break;
  }
  return extreme(weft::sum(elementwise("abs", {a}), {-1}), ord == MatrixNorm::infinity);
}

std::pair<int, int> matrix_axes(const Call& c, const MatrixNormAttributes& attributes) {
  const Tensor& a = c.input(0);
  if (attributes.axes.size() != 2) c.shape_error("axes are not two");
  if (a.rank() < 2) c.shape_error("a is not a matrix [..., rows, columns]");
  const int rows = c.axis(attributes.axes[0]), columns = c.axis(attributes.axes[1]);
  if (rows == columns) c.shape_error(fmt::format("axis {} is given twice", rows));
  return {rows, columns};
}

const OpRow& matrix_norm_row() {
  static const OpRow row{
      .name = "matrix_norm",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .attributes =
          {field("ord", &MatrixNormAttributes::ord,
                 "fro: the root of the sum of squares; nuc: the sum of singular values; 1, -1: the greatest, least "
                 "sum of a column's absolute values; inf, -inf: of a row's; 2, -2: the greatest, least singular value",
                 {.choices = kNormWords}),
           field("axes", &MatrixNormAttributes::axes, "the axes of rows and columns", {.aliases = {"dim"}}),
           field("keepdims", &MatrixNormAttributes::keepdims, "whether both axes stay, with extent 1",
                 {.aliases = {"keepdim"}})},
      .result = "that of a",
      .doc = "A norm of matrices.",
      .torch = "torch.linalg.matrix_norm(a, ord if ord in ('fro', 'nuc') else float(ord), axes, keepdims)",
      .numpy = "np.linalg.norm(a, ord, axes, keepdims)",
      .infer =
          [](const Call& c) {
            const auto attributes = c.attributes<MatrixNormAttributes>();
            const auto [rows, columns] = matrix_axes(c, attributes);
            Shape shape;
            for (int i = 0; i < c.input(0).rank(); ++i) {
              if (i != rows && i != columns)
                shape.push_back(c.input(0).dim(i));
              else if (attributes.keepdims)
                shape.push_back(1);
            }
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto attributes = c.attributes<MatrixNormAttributes>();
            const auto [rows, columns] = matrix_axes(c, attributes);
            Tensor result = norm_of_matrix(weft::movedim(c.input(0), {rows, columns}, {-2, -1}), attributes.ord);
            if (attributes.keepdims)
              for (const int axis : {std::min(rows, columns), std::max(rows, columns)})
                result = weft::unsqueeze(result, axis);
            return Tensors{result};
          },
      .cases = {{"a batch", {regular(2, 4, 3)}},
                {"nuclear", {regular(0, 4, 3)}, {{"ord", "nuc"}}},
                {"greatest column", {regular(0, 4, 3)}, {{"ord", "1"}}},
                {"least row", {{{2, 4, 3}}}, {{"ord", "-inf"}, {"keepdims", true}}},  // no two sums are equal
                {"least singular value", {regular(0, 3, 4)}, {{"ord", "-2"}}},
                {"other axes", {regular(3, 4, 4)}, {{"ord", "2"}, {"axes", std::vector<Extent>{1, 0}}}}},
      .errors = {kNoMatrix,
                 {"one axis twice", {{{3, 3}}}, {{"axes", std::vector<Extent>{1, -1}}}, "axis 1 is given twice"},
                 {"a word", {{{3, 3}}}, {{"ord", "3"}}, "ord"}}};
  return row;
}

const OpRow& cond_row() {
  static const OpRow row{
      .name = "cond",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .attributes = {field("ord", &ConditionAttributes::ord, "the norm, as in matrix_norm",
                           {.aliases = {"p"}, .choices = kNormWords})},
      .result = "that of a",
      .doc = "The condition of A, |A| |A^-1|; infinite where A is singular. For 2 and -2 A need not be square.",
      .torch =
          "(lambda o: torch.linalg.cond(a, o) if o in (2, -2) else torch.linalg.matrix_norm(a, o) * "
          "torch.linalg.matrix_norm(torch.linalg.inv(a), o))(ord if ord in ('fro', 'nuc') else float(ord))",
      .numpy = "np.linalg.cond(a, ord)",
      .infer =
          [](const Call& c) {
            const MatrixNorm ord = c.attributes<ConditionAttributes>().ord;
            check_matrix(c, ord != MatrixNorm::two && ord != MatrixNorm::minus_two);
            return std::vector<Result>{{c.input(0).dtype(), batch_shape(c.input(0))}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            const MatrixNorm ord = c.attributes<ConditionAttributes>().ord;
            if (ord == MatrixNorm::two || ord == MatrixNorm::minus_two) {
              const Tensor s = weft::svd(a, c.where()).s, greatest = amax(s, {-1}), least = amin(s, {-1});
              return Tensors{ord == MatrixNorm::two ? greatest / least : least / greatest};
            }
            const Tensor product = norm_of_matrix(a, ord) * norm_of_matrix(weft::inverse(a, c.where()), ord);
            // The inverse of a singular matrix is NaN.
            const Tensor is_number = elementwise("isfinite", {weft::sum(a * 0.0, {-2, -1})});
            const Tensor is_singular = elementwise("logical_and", {elementwise("isnan", {product}), is_number});
            return Tensors{elementwise("where", {is_singular, scalar_like(INFINITY, product), product})};
          },
      .cases = {{"singular values", {regular(2, 4, 3)}},
                {"their reciprocal", {regular(0, 3, 3)}, {{"ord", "-2"}}},
                {"Frobenius", {regular(2, 4, 4)}, {{"ord", "fro"}}},
                {"columns", {regular(0, 4, 4)}, {{"ord", "1"}}}},
      .errors = {{"not square", {{{3, 4}}}, {{"ord", "fro"}}, "a has 3 rows and 4 columns; it must be square"}}};
  return row;
}

const OpRow& matrix_rank_row() {
  static const OpRow row{
      .name = "matrix_rank",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .attributes =
          {field("atol", &RankAttributes::atol, "the greatest singular value that counts as 0", {.least = 0}),
           field("rtol", &RankAttributes::rtol,
                 "the same relative to the greatest one; below 0: 0 if atol is given, else the extent of the longer "
                 "axis times the spacing of floats"),
           field("hermitian", &RankAttributes::hermitian, "whether A is symmetric: eigenvalues are used")},
      .result = "i32",
      .differentiable = false,
      .doc = "How many singular values of A are not 0.",
      .torch =
          "torch.linalg.matrix_rank(a, atol=atol or None, rtol=None if rtol < 0 else rtol, hermitian=hermitian).int()",
      .numpy = "np.linalg.matrix_rank(a, hermitian=hermitian)",
      .infer =
          [](const Call& c) {
            check_matrix(c, c.attributes<RankAttributes>().hermitian);
            return std::vector<Result>{{DType::i32, batch_shape(c.input(0))}};
          },
      .decompose =
          [](const Call& c) {
            auto [atol, rtol, hermitian] = c.attributes<RankAttributes>();
            const Tensor& a = c.input(0);
            if (a.dim(-1) == 0 || a.dim(-2) == 0) return Tensors{zeros(batch_shape(a), DType::i32, a.device())};
            const double spacing = a.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
            if (rtol < 0) rtol = atol > 0 ? 0 : static_cast<double>(std::max(a.dim(-1), a.dim(-2))) * spacing;
            const Tensor s =
                hermitian ? elementwise("abs", {weft::eigh(a, c.where()).values}) : weft::svd(a, c.where()).s;
            const Tensor bound =
                elementwise("maximum", {amax(s, {-1}, {.keepdims = true}) * rtol, scalar_like(atol, s)});
            return Tensors{weft::sum(weft::cast(s > bound, DType::i32), {-1})};
          },
      .cases = {{"full", {regular(2, 4, 3)}, {}, false},
                {"two of three", {{.shape = {3, 3}, .values = {1, 2, 3, 2, 4, 6, 1, 0, 1}}}, {}, false},
                {"a tolerance", {regular(0, 4, 4)}, {{"atol", 4.0}}, false},
                {"symmetric", {definite(2, 4)}, {{"hermitian", true}}, false}},
      .errors = {kNoMatrix, {"not square", {{{3, 4}}}, {{"hermitian", true}}, "it must be square"}}};
  return row;
}

// The parts of two decompositions that users ask for by name.
OpRow values_row(std::string name, std::string doc, std::string torch, bool square,
                 std::function<Tensor(const Call&)> f) {
  return {.name = std::move(name),
          .family = kDecompositionFamily,
          .inputs = {matrix("a")},
          .result = "that of a",
          .doc = std::move(doc),
          .torch = std::move(torch),
          .infer =
              [square](const Call& c) {
                check_matrix(c, square);
                const Tensor& a = c.input(0);
                return std::vector<Result>{{a.dtype(), with_vector(batch_shape(a), std::min(a.dim(-2), a.dim(-1)))}};
              },
          .decompose = [f](const Call& c) { return Tensors{f(c)}; },
          .cases = {{"a batch", {square ? definite(2, 4) : regular(2, 5, 3)}}},
          .errors = {kNoMatrix}};
}
const std::vector<OpRow>& values_rows() {
  static const std::vector<OpRow> rows{
      values_row("svdvals", "The singular values of A, downwards.", "torch.linalg.svdvals(a)", false,
                 [](const Call& c) { return weft::svd(c.input(0), c.where()).s; }),
      values_row("eigvalsh", "The eigenvalues of (A + A^T) / 2, upwards.", "torch.linalg.eigvalsh((a + a.mT) / 2)",
                 true, [](const Call& c) { return weft::eigh(c.input(0), c.where()).values; })};
  return rows;
}

// ---- Powers of numbers, systems between tensors ------------------------------------------------------------------------

struct VanderAttributes {
  Extent n = -1;
  bool increasing = false;
};

const OpRow& vander_row() {
  static const OpRow row{
      .name = "vander",
      .family = "matrix",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("n", &VanderAttributes::n, "how many columns; -1: as many as elements of x",
                           {.aliases = {"N"}, .least = -1}),
                     field("increasing", &VanderAttributes::increasing, "whether powers increase from the left")},
      .doc = "Powers of the elements of x [..., m] as rows: [..., m, n], from x^(n - 1) to x^0, or upwards.",
      .torch =
          "torch.linalg.vander(x, N=None if n < 0 else n) if increasing else "
          "torch.linalg.vander(x, N=None if n < 0 else n).flip(-1)",
      .numpy = "np.vander(x, n, increasing)",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.rank() < 1) c.shape_error("x has no axis");
            const Extent n = c.attributes<VanderAttributes>().n;
            return std::vector<Result>{{x.dtype(), with_vector(x.shape(), n < 0 ? x.dim(-1) : n)}};
          },
      .decompose =
          [](const Call& c) {
            const auto [n, increasing] = c.attributes<VanderAttributes>();
            const Tensor& x = c.input(0);
            const Tensor repeated = weft::expand(weft::unsqueeze(x, -1), with_vector(x.shape(), n < 0 ? x.dim(-1) : n));
            return Tensors{weft::cumprod(repeated, -1, true, !increasing, c.where())};
          },
      .cases = {{"a batch", {{{2, 3}}}},
                {"upwards", {{.shape = {3}, .values = {-1, 0, 2}}}, {{"n", Extent{5}}, {"increasing", true}}}},
      .errors = {{"a number", {{{}}}, {}, "x has no axis"}, {"n", {{{3}}}, {{"n", Extent{-2}}}, "n"}}};
  return row;
}

struct TensorInverseAttributes {
  Extent ind = 2;
};
struct TensorSolveAttributes {
  std::vector<Extent> axes;
};

Extent product_of(const Shape& shape, int from, int to) {
  Extent product = 1;
  for (int i = from; i < to; ++i) product *= shape[i];
  return product;
}
Shape part_of(const Shape& shape, int from, int to) {
  return Shape(std::vector<Extent>(shape.begin() + from, shape.begin() + to));
}

const OpRow& tensorinv_row() {
  static const OpRow row{
      .name = "tensorinv",
      .family = kDecompositionFamily,
      .inputs = {matrix("a")},
      .attributes = {field("ind", &TensorInverseAttributes::ind, "how many axes of a are those of rows", {.least = 1})},
      .result = "that of a",
      .doc = "The inverse of the matrix whose rows are the first axes of A and whose columns are the others.",
      .torch = "torch.linalg.tensorinv(a, ind)",
      .numpy = "np.linalg.tensorinv(a, ind)",
      .infer =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            const int ind = static_cast<int>(std::min<Extent>(c.attributes<TensorInverseAttributes>().ind, a.rank()));
            const Extent rows = product_of(a.shape(), 0, ind), columns = product_of(a.shape(), ind, a.rank());
            if (rows != columns)
              c.shape_error(
                  fmt::format("the first {} axes of a have {} elements, the others {}; both must have as many", ind,
                              rows, columns));
            Shape shape = part_of(a.shape(), ind, a.rank());
            for (int i = 0; i < ind; ++i) shape.push_back(a.dim(i));
            return std::vector<Result>{{a.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& a = c.input(0);
            const int ind = static_cast<int>(c.attributes<TensorInverseAttributes>().ind);
            const Extent n = product_of(a.shape(), 0, ind);
            Shape shape = part_of(a.shape(), ind, a.rank());
            for (int i = 0; i < ind; ++i) shape.push_back(a.dim(i));
            return Tensors{weft::reshape(weft::inverse(weft::reshape(a, {n, n}), c.where()), shape)};
          },
      .cases = {{"four and two by two",
                 {{.shape = {4, 2, 2}, .values = {4, 1, 0, 1, 1, 5, 1, 0, 0, 2, 4, 1, 1, 0, 1, 6}}},
                 {{"ind", Extent{1}}}}},
      .errors =
          {{"not square", {{{2, 3}}}, {{"ind", Extent{1}}}, "the first 1 axes of a have 2 elements, the others 3"}}};
  return row;
}

const OpRow& tensorsolve_row() {
  static const OpRow row{
      .name = "tensorsolve",
      .family = kDecompositionFamily,
      .inputs = {matrix("a"), matrix("b")},
      .attributes = {field("axes", &TensorSolveAttributes::axes, "axes of a that are moved to its end first",
                           {.aliases = {"dims"}})},
      .result = "that of a",
      .doc = "X with sum_j A_ij X_j = B_i, where i counts the axes of B and j the other axes of A.",
      .torch = "torch.linalg.tensorsolve(a, b, axes or None)",
      .numpy = "np.linalg.tensorsolve(a, b, axes)",
      .infer =
          [](const Call& c) {
            const Tensor &a = c.input(0), &b = c.input(1);
            if (a.dtype() != b.dtype()) c.dtype_error("the dtypes differ; cast one");
            std::vector<bool> moves(static_cast<std::size_t>(a.rank()));
            for (const Extent axis : c.attributes<TensorSolveAttributes>().axes) {
              const auto at = static_cast<std::size_t>(c.axis(axis));
              if (moves[at]) c.shape_error(fmt::format("axis {} is given twice", axis));
              moves[at] = true;
            }
            Shape order;
            for (int i = 0; i < a.rank(); ++i)
              if (!moves[static_cast<std::size_t>(i)]) order.push_back(a.dim(i));
            for (const Extent axis : c.attributes<TensorSolveAttributes>().axes) order.push_back(a.dim(c.axis(axis)));
            if (b.rank() > a.rank() || product_of(order, 0, b.rank()) != b.numel() ||
                product_of(order, b.rank(), a.rank()) != b.numel())
              c.shape_error(fmt::format("a is not a square system for the {} elements of b", b.numel()));
            const Shape shape = part_of(order, b.rank(), a.rank());
            return std::vector<Result>{{a.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &a = c.input(0), &b = c.input(1);
            std::vector<int> order;
            std::vector<int> last;
            for (const Extent axis : c.attributes<TensorSolveAttributes>().axes) last.push_back(c.axis(axis));
            for (int i = 0; i < a.rank(); ++i)
              if (std::find(last.begin(), last.end(), i) == last.end()) order.push_back(i);
            order.insert(order.end(), last.begin(), last.end());
            const Tensor moved = weft::permute(a, order);
            const Extent n = b.numel();
            const Tensor x = weft::solve(weft::reshape(moved, {n, n}), weft::reshape(b, {n, 1}), c.where());
            return Tensors{weft::reshape(x, part_of(moved.shape(), b.rank(), a.rank()))};
          },
      .cases = {{"two by two",
                 {{.shape = {2, 2, 4}, .values = {4, 1, 0, 1, 1, 5, 1, 0, 0, 2, 4, 1, 1, 0, 1, 6}}, {{2, 2}}}},
                {"moved",
                 {{.shape = {4, 2, 2}, .values = {4, 1, 0, 1, 1, 5, 1, 0, 0, 2, 4, 1, 1, 0, 1, 6}}, {{2, 2}}},
                 {{"axes", std::vector<Extent>{0}}}}},
      .errors = {{"not square", {{{2, 3}}, {{2}}}, {}, "a is not a square system for the 2 elements of b"}}};
  return row;
}

}  // namespace

OpRows matrix_rows() {
  return {&matrix_norm_row(), &cond_row(),       &matrix_rank_row(),        &values_rows()[0],
          &values_rows()[1],  &matrix_exp_row(), &matrix_exp_frechet_row(), &vander_row(),
          &tensorinv_row(),   &tensorsolve_row()};
}

}  // namespace graph

Tensor matrix_norm(const Tensor& a, MatrixNorm ord, const std::pair<int, int>& axes, ReduceOptions options,
                   Where where) {
  return graph::call(graph::matrix_norm_row(), {a},
                     graph::MatrixNormAttributes{ord, {axes.first, axes.second}, options.keepdims}, where);
}
Tensor cond(const Tensor& a, MatrixNorm ord, Where where) {
  return graph::call(graph::cond_row(), {a}, graph::ConditionAttributes{ord}, where);
}
Tensor matrix_rank(const Tensor& a, RankOptions options, Where where) {
  if (!(options.atol >= 0)) throw UsageError(fmt::format("matrix_rank: atol is {}; give 0 or more", options.atol));
  return graph::call(graph::matrix_rank_row(), {a},
                     graph::RankAttributes{options.atol, options.rtol, options.hermitian}, where);
}
Tensor svdvals(const Tensor& a, Where where) {
  return graph::call(graph::values_rows()[0], {a}, graph::Words{}, where);
}
Tensor eigvalsh(const Tensor& a, Where where) {
  return graph::call(graph::values_rows()[1], {a}, graph::Words{}, where);
}
Tensor vander(const Tensor& x, Extent n, bool increasing, Where where) {
  if (n < -1) throw UsageError(fmt::format("vander: n is {}; give -1 or more", n));
  return graph::call(graph::vander_row(), {x}, graph::VanderAttributes{n, increasing}, where);
}
Tensor tensorinv(const Tensor& a, int ind, Where where) {
  if (ind < 1) throw UsageError(fmt::format("tensorinv: ind is {}; give 1 or more", ind));
  return graph::call(graph::tensorinv_row(), {a}, graph::TensorInverseAttributes{ind}, where);
}
Tensor tensorsolve(const Tensor& a, const Tensor& b, const std::vector<int>& axes, Where where) {
  return graph::call(graph::tensorsolve_row(), {a, b}, graph::TensorSolveAttributes{{axes.begin(), axes.end()}}, where);
}

}  // namespace weft
