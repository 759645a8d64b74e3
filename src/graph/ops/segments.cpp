// Reductions of segments, as scatters to the segment that each element belongs to.
#include "weft/ops/segments.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops/order.hpp"

namespace weft {

using graph::describe;

namespace {

/// What a reduction of nothing gives.
double reduction_of_nothing(ScatterReduction reduction, DType type) {
  switch (reduction) {
    case ScatterReduction::sum: return 0;
    case ScatterReduction::prod: return 1;
    case ScatterReduction::mean: return std::nan("");
    case ScatterReduction::amax: return is_float(type) ? -static_cast<double>(INFINITY) : element(type).lowest;
    case ScatterReduction::amin: return is_float(type) ? INFINITY : element(type).highest;
  }
  throw InternalError("segment_reduce: unknown reduction");
}

}  // namespace

Tensor segment_reduce(const Tensor& x, const Tensor& lengths, ScatterReduction reduction, SegmentOptions options,
                      Where where) {
  if (!x.defined() || !lengths.defined()) throw UsageError("segment_reduce: an operand has no value");
  const auto fail = [&](const std::string& fact) {
    return describe("segment_reduce", fact, {{"x", x}, {"lengths", lengths}}, where);
  };
  if (!is_integer(lengths.dtype())) throw DTypeError(fail("lengths are not integers; cast them"));
  if (x.dtype() == DType::boolean) throw DTypeError(fail("takes numbers; cast x"));
  if (lengths.device() != x.device())
    throw DeviceError(fail("operands on different devices; move one with .to(device)"));
  const bool is_mean = reduction == ScatterReduction::mean;
  if (is_mean && !is_float(x.dtype())) throw DTypeError(fail("a mean takes floats; cast x"));
  const int axis = graph::normalized_axis("segment_reduce", x, options.axis, where);
  bool fits = lengths.rank() == axis + 1;
  for (int a = 0; fits && a < axis; ++a) fits = lengths.dim(a) == x.dim(a);
  if (!fits) throw ShapeError(fail(fmt::format("lengths are not [segments] behind the first {} axes of x", axis)));
  const Extent n = x.dim(axis);
  const DType wide = is_float(x.dtype()) ? compute_type(x.dtype()) : x.dtype();
  Shape lines = lengths.shape();  // one number for each element along the axis
  lines[axis] = n;
  Shape shape = x.shape();
  shape[axis] = lengths.dim(axis);
  // An element belongs to the segment before which as many segments end as end up to its place.
  const Tensor ends = cumsum(cast(lengths, DType::i32, where), -1, false, false, where);
  const Tensor place = expand(arange(n, DType::i32, x.device()), lines, where);
  Tensor segment = searchsorted(ends, place, /*right=*/true, where);
  Shape aligned = lines;
  while (aligned.rank() < x.rank()) aligned.push_back(1);
  segment = expand(reshape(segment, aligned, where), x.shape(), where);
  const double first = options.initial.value_or(is_mean ? 0 : reduction_of_nothing(reduction, x.dtype()));
  const Tensor start = full(shape, first, wide, x.device());
  Tensor result = scatter_reduce(start, axis, segment, cast(x, wide, where),
                                 is_mean ? ScatterReduction::sum : reduction, true, where);
  if (is_mean) {
    Shape behind = lengths.shape();
    while (behind.rank() < x.rank()) behind.push_back(1);
    const Tensor count = reshape(cast(lengths, wide, where), behind, where);
    const Tensor of_nothing = scalar_like(options.initial.value_or(std::nan("")), result);
    result = weft::where(count > 0.0, result / maximum(count, 1.0), of_nothing);
  }
  return cast(result, x.dtype(), where);
}

namespace graph {
namespace {

std::vector<OpCase> cases_of_segments() {
  const CaseInput lengths{.shape = {4}, .type = DType::i32, .values = {2, 0, 3, 1}};
  std::vector<OpCase> cases;
  for (const char* how : {"sum", "prod", "mean", "max", "min"}) {
    cases.push_back(
        {fmt::format("{}, initial", how), {{{6, 3}}, lengths}, {{"reduction", std::string(how)}, {"initial", 0.5}}});
    cases.push_back(
        {how, {{{6}}, {.shape = {3}, .type = DType::i32, .values = {2, 3, 1}}}, {{"reduction", std::string(how)}}});
  }
  cases.push_back({"lengths for each row",
                   {{{2, 5, 2}}, {.shape = {2, 2}, .type = DType::i32, .values = {2, 3, 4, 1}}},
                   {{"axis", Extent{1}}}});
  return cases;
}

const std::vector<OpRow>& rows_of_segments() {
  static const std::vector<OpRow> rows = {
      {.name = "segment_reduce",
       .family = "indexing",
       .inputs = {{"x", ops::DTypes::numbers}, {"lengths", ops::DTypes::integers}},
       .attributes = {{.name = "reduction",
                       .type = AttributeType::choice,
                       .default_value = std::string("sum"),
                       .doc = "how the elements of a segment are combined",
                       .aliases = {"reduce"},
                       .choices = {"sum", "prod", "mean", "max", "min"}},
                      {.name = "axis",
                       .type = AttributeType::integer,
                       .default_value = Extent{0},
                       .doc = "axis that is cut into segments",
                       .aliases = {"dim"}},
                      {.name = "initial",
                       .default_value = std::nan(""),
                       .doc = "takes part in each reduction; nan: nothing does"}},
       .doc = "Reduces segments of an axis, one after another, of the given lengths.",
       .torch =
           "torch.segment_reduce(x, reduction, lengths=lengths.long(), axis=axis, unsafe=True, **({} if initial != "
           "initial else {'initial': initial}))",
       .numpy = "np.add.reduceat",
       .cases = cases_of_segments(),
       .errors = {{"floats", {{{6}}, {{2}}}, {}, "lengths are not integers"},
                  {"lengths of another rank",
                   {{{6, 3}}, {{2, 2}, 1, 2, DType::i32}},
                   {},
                   "lengths are not [segments] behind the first 0 axes of x"},
                  {"a mean of integers",
                   {{{6}, 0, 4, DType::i32}, {{2}, 1, 2, DType::i32}},
                   {{"reduction", std::string("mean")}},
                   "a mean takes floats"}},
       .apply =
           [](const Arguments& a) {
             SegmentOptions options{a.small("axis"), {}};
             if (!std::isnan(a.number("initial"))) options.initial = a.number("initial");
             return Tensors{weft::segment_reduce(a.input(0), a.input(1),
                                                 static_cast<ScatterReduction>(a.choice("reduction")), options)};
           }},
  };
  return rows;
}

}  // namespace

OpRows segment_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_segments()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
