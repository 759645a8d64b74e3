// Random graphs over every kind of op, small enough for the slow reference evaluator.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "compile/leaves.hpp"
#include "compile/random_views.hpp"
#include "graph/node.hpp"
#include "ops/table.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {

class RandomGraph : public RandomViews {
 public:
  /// A fused attention rounds otherwise than its decomposition, and devices round otherwise than the reference. So a graph
  /// has either attention or ops that jump, and none of these when it is to be smooth.
  enum class Smooth { no, yes };
  explicit RandomGraph(std::uint64_t seed, Smooth smooth = Smooth::no) : RandomViews(seed) {
    with_attention_ = pick(0, 3) == 0 || smooth == Smooth::yes;
    elementwise_rows_ = ops::elementwise_rows();
    for (const ops::ReduceRow& row : ops::reduce_rows()) reduce_rows_.push_back(&row);
  }
  /// Of the table's rows only these, so that graphs stay the same when the table grows.
  void draw_rows_from(std::span<const char* const> elementwise, std::span<const char* const> reductions) {
    const auto keep_named = [](auto& rows, std::span<const char* const> names) {
      auto all = rows;
      rows.clear();
      for (const char* name : names)
        rows.push_back(*std::find_if(all.begin(), all.end(), [&](auto* row) { return row->name == name; }));
    };
    keep_named(elementwise_rows_, elementwise);
    keep_named(reduce_rows_, reductions);
  }

  /// Products and attention also have operands that are cast from these types. Other graphs stay as they are without.
  void draw_narrow_operands_from(std::span<const DType> types) { narrow_types_.assign(types.begin(), types.end()); }

  /// Outputs of a new graph, some of them views of others or repeated, gradients among them.
  std::vector<Tensor> make(LeafMaker& arguments) {
    const int leaves = pick(2, 4);
    for (int i = 0; i < leaves; ++i) {
      Shape shape;
      for (int d = pick(0, 4); d > 0; --d) shape.push_back(pick(0, 20) == 0 ? 0 : pick(1, 5));
      keep(leaf(arguments, shape));
    }
    const int steps = pick(4, 22);
    for (int i = 0; i < steps; ++i) keep(grown(arguments));
    std::vector<Tensor> outputs;
    for (int i = pick(1, 4); i > 0; --i) outputs.push_back(any());
    outputs.push_back(values_.back());
    if (pick(0, 1)) {
      const Tensor y = sum(values_.back());
      for (int i = 0; i < leaves; ++i) {
        const Tensor& x = values_[static_cast<std::size_t>(i)];
        const Tensor g = grad(y, x);
        outputs.push_back(g);
        if (steps <= 8 && pick(0, 2) == 0) outputs.push_back(grad(sum(g * g), x));
      }
    }
    if (pick(0, 2) == 0) outputs.push_back(view_of(any_of(outputs)));
    if (pick(0, 2) == 0) outputs.push_back(Tensor(any_of(outputs)));
    return outputs;
  }

 private:
  static constexpr Extent kElementsMax = 3000;

  template <class T>
  const T& any_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(pick(0, static_cast<int>(all.size()) - 1))];
  }
  Tensor any() { return any_of(values_); }
  void keep(const Tensor& x) {
    if (x.defined() && x.numel() <= kElementsMax && x.rank() <= 6) values_.push_back(x);
  }
  Tensor leaf(LeafMaker& arguments, const Shape& shape) {
    std::vector<double> values;
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (Extent i = 0; i < shape.numel(); ++i) values.push_back(uniform(random_));
    return arguments.make(shape, std::move(values));
  }
  Tensor indices(LeafMaker& arguments, const Shape& shape, Extent below) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i) values.push_back(pick(-1, static_cast<int>(below)));  // some are outside
    return arguments.make(shape, std::move(values), DType::i32);
  }
  // x moved smoothly into the range where an op is tested, and not far from zero.
  static Tensor within(const Tensor& x, ops::Range range) {
    const double lo = std::max(range.lo, std::min(-2.0, range.hi - 0.5)),
                 hi = std::min(range.hi, std::max(2.0, range.lo + 0.5));
    return elementwise("sigmoid", {x}) * (hi - lo) + lo;
  }
  static bool has_kinks(const ops::ElementwiseRow& row) {
    return !row.kinks.empty() || !row.differentiable || row.result != ops::Result::same;
  }

  Tensor elementwise_row(LeafMaker& arguments, const Tensor& x) {
    const ops::ElementwiseRow& row = *any_of(elementwise_rows_);
    if (with_attention_ && has_kinks(row)) return {};
    const bool integers = row.dtypes == ops::DTypes::integers || row.dtypes == ops::DTypes::bits;
    std::vector<Tensor> inputs;
    Tensor so_far = x;  // of the shape that the inputs before broadcast to
    for (std::size_t i = 0; i < row.inputs.size(); ++i) {
      Tensor input = i == 0 ? x : partner(arguments, so_far);
      if (Shape joined; graph::broadcast_shapes(so_far.shape(), input.shape(), joined)) so_far = expand(so_far, joined);
      if (integers)
        input = cast(input * 5.0, DType::i32);
      else
        input = within(input, row.tested.of(i));
      inputs.push_back(input);
    }
    std::vector<double> attributes;
    for (const auto& attribute : row.attributes) attributes.push_back(attribute.tested);
    const Tensor y = elementwise(row.name, inputs, attributes);
    return as_float(y);
  }
  Tensor as_float(const Tensor& y) { return y.dtype() == DType::f32 ? y : cast(y, DType::f32); }
  // Another value that broadcasts against x.
  Tensor partner(LeafMaker& arguments, const Tensor& x) {
    for (int tries = 0; tries < 3; ++tries) {
      const Tensor other = any();
      if (Shape joined; graph::broadcast_shapes(x.shape(), other.shape(), joined) && joined.numel() <= kElementsMax)
        return other;
    }
    Shape shape = x.shape();
    if (shape.rank() > 0 && pick(0, 1)) shape[pick(0, shape.rank() - 1)] = 1;
    return leaf(arguments, shape);
  }

  /// As gradients of parts add up: two values side by side along an axis, apart, or one over the other.
  Tensor sum_of_pads(const Tensor& x) {
    if (x.rank() == 0) return {};
    const int axis = pick(0, x.rank() - 1);
    const Extent n = x.dim(axis), before = pick(0, 3), second = std::max<Extent>(0, before + n + pick(-1, 2));
    const Extent total = std::max(before, second) + n + pick(0, 2);
    const auto at = [&](const Tensor& y, Extent place) {
      std::vector<std::pair<Extent, Extent>> padding(static_cast<std::size_t>(x.rank()));
      padding[static_cast<std::size_t>(axis)] = {place, total - place - n};
      return pad(y, padding);
    };
    return elementwise("add", {at(x, before), at(x * 0.5, second)}, {pick(0, 2) ? 1.0 : 0.25});
  }
  Tensor reduction(const Tensor& x) {
    const ops::ReduceRow& row = *any_of(reduce_rows_);
    const ReduceOptions options{.keepdims = pick(0, 1) == 1};
    const bool position = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
    if (!row.allows_empty && x.numel() == 0) return {};
    if (with_attention_ && (position || row.result == ops::Result::boolean)) return {};
    Axes axes = some_axes(x.rank());
    if (position && axes.size() > 1) axes.resize(1);
    const bool floats = ops::allows(row.dtypes, DType::f32), jumps = !with_attention_;
    if (floats && (!jumps || pick(0, 3) || !ops::allows(row.dtypes, DType::i32)))
      return as_float(reduce(row.name, within(x, row.tested), axes, options));
    if (!jumps) return {};
    // Small ones: the reference computes in doubles, where no product wraps around.
    const bool is_product = row.reduction == scalar::Reduction::prod;
    const Tensor small =
        elementwise("clamp", {x * (is_product ? 1.5 : 5.0)}, {is_product ? -1.0 : -9.0, is_product ? 1.0 : 9.0});
    const DType type = !floats || pick(0, 2) ? DType::i32 : DType::boolean;
    if (!ops::allows(row.dtypes, type)) return {};
    return as_float(reduce(row.name, cast(small, type), axes, options));
  }

  Tensor gathered(LeafMaker& arguments, const Tensor& x) {
    const int rank = x.rank();
    if (rank == 0 || x.numel() == 0) return {};
    const int axis = pick(0, rank - 1);
    switch (pick(0, 3)) {
      case 0:
        if (rank != 2) return {};
        if (!with_attention_ && pick(0, 1)) return embedding(x, argmax(transpose(x), pick(0, 1)));
        return embedding(x, indices(arguments, {pick(1, 3), 2}, x.dim(0)));
      case 1: {
        Shape shape = x.shape();
        shape[axis] = pick(1, 4);
        if (pick(0, 1)) return take_along_axis(x, indices(arguments, shape, x.dim(axis)), axis);
        // One index for many elements.
        Shape few = shape;
        for (int i = 0; i < rank; ++i)
          if (pick(0, 1)) few[i] = 1;
        return take_along_axis(x, expand(indices(arguments, few, x.dim(axis)), shape), axis);
      }
      case 2: return scatter_add(indices(arguments, {x.dim(0)}, 3), x, 3);
      default: return rank == 1 ? one_hot(indices(arguments, {3}, 4), 4) * 0.5 : Tensor();
    }
  }

  /// Through another type and back.
  Tensor through_type(const Tensor& x) {
    if (with_attention_) return {};
    const Tensor small = elementwise("clamp", {x * 4.0}, {-100.0, 100.0});
    switch (pick(0, 3)) {
      case 0: return cast(cast(small, DType::i32) + cast(flip(small, {}), DType::i32), DType::f32);
      case 1: return cast(cast(elementwise("abs", {small}), DType::u32), DType::f32);
      case 2: return cast(small > scalar_like(0.5, small), DType::f32) * x;
      default: return cast(cast(cast(small, DType::boolean), DType::i32) * 3.0, DType::f32);
    }
  }

  /// Pieces of a value, and of others that fit beside it, along any axis.
  Tensor joined(const Tensor& x) {
    if (x.rank() == 0) return {};
    const int axis = pick(0, x.rank() - 1);
    std::vector<Tensor> parts{x};
    for (int i = pick(1, 3); i > 0; --i) {
      const Tensor other = any();
      bool fits = other.rank() == x.rank();
      for (int d = 0; fits && d < x.rank(); ++d) fits = d == axis || other.dim(d) == x.dim(d);
      Tensor part = fits && pick(0, 1) ? other : pick(0, 1) ? elementwise("neg", {x}) : x;
      if (pick(0, 1) && part.dim(axis) > 0) {
        const auto n = static_cast<int>(part.dim(axis));
        part = slice(part, axis, pick(0, n - 1), kEnd, pick(0, 1) ? pick(1, 2) : -pick(1, 2));
      }
      if (pick(0, 3) == 0) part = flip(part, some_axes(x.rank()));
      parts.insert(pick(0, 1) ? parts.begin() : parts.end(), part);
    }
    for (const Tensor& part : parts)
      if (part.shape() != x.shape() || pick(0, 2)) return concat(parts, axis);
    return stack(parts, pick(0, x.rank()));
  }

  Tensor attended(LeafMaker& arguments, const Tensor& x) {
    if (!with_attention_) return {};
    Tensor q = x;
    while (q.rank() < 4) q = unsqueeze(q, 0);
    if (q.rank() != 4 || q.numel() == 0) return {};
    const Extent heads = q.dim(1) % 2 == 0 && pick(0, 1) ? q.dim(1) / 2 : q.dim(1);
    const Shape keys{q.dim(0), heads, pick(0, 1) ? q.dim(2) : q.dim(2) + pick(0, 2), q.dim(3)};
    const bool causal = pick(0, 1) == 1;
    Tensor k = operand(arguments, keys), v = pick(0, 1) ? operand(arguments, keys) : k;
    if (pick(0, 1)) k = k * 0.5;
    return attention(q, k, v, causal);
  }

  Tensor composite(LeafMaker& arguments, const Tensor& x) {
    if (x.rank() == 0 || x.numel() == 0) return {};
    switch (pick(0, 6)) {
      case 0: return softmax(x, pick(0, x.rank() - 1));
      case 1: return log_softmax(x, pick(-x.rank(), -1));
      case 2: return layer_norm(x, leaf(arguments, {x.dim(-1)}), leaf(arguments, {x.dim(-1)}), 1e-2);
      case 3: return rms_norm(x, pick(0, 1) ? leaf(arguments, {x.dim(-1)}) : Tensor(), 1e-2);
      case 4:
        return x.rank() == 2 && x.dim(-1) > 1
                   ? cross_entropy(
                         x, arguments.make({x.dim(0)}, std::vector<double>(static_cast<std::size_t>(x.dim(0)), 1),
                                           DType::i32))
                   : Tensor();
      case 5: return x.rank() >= 2 && x.dim(-1) % 2 == 0 ? rope(x, 100, pick(0, 3)) : Tensor();
      default: return mse_loss(x, leaf(arguments, x.shape()));
    }
  }

  /// A leaf, or a cast of one of a narrow type, with views before and after.
  Tensor operand(LeafMaker& arguments, const Shape& shape) {
    if (narrow_types_.empty() || pick(0, 3) == 0) return leaf(arguments, shape);
    const DType type = any_of(narrow_types_);
    const auto last = shape.rank() - 1;
    const bool turned = shape.rank() > 1 && pick(0, 1), turned_back = turned && pick(0, 1);
    Shape stored = shape;
    if (turned) std::swap(stored[last], stored[last - 1]);
    const Extent before = pick(0, 3), after = pick(0, 2);  // cut off again
    stored[last] += before + after;
    std::vector<double> values;
    std::uniform_real_distribution<double> uniform(-2, 2);
    for (Extent i = 0; i < stored.numel(); ++i) values.push_back(uniform(random_));
    Tensor x = arguments.make(stored, std::move(values), type);
    if (pick(0, 1)) x = slice(x, last, before, before + stored[last] - before - after);
    if (turned_back) x = transpose(x);
    if (is_storage(type) && pick(0, 3) == 0) x = cast(x, DType::f16);
    x = cast(x, DType::f32);
    if (turned && !turned_back) x = transpose(x);
    const int cut = turned ? last - 1 : last;
    return x.dim(cut) == shape[cut] ? x : slice(x, cut, before, before + shape[cut]);
  }

  Tensor product(LeafMaker& arguments, const Tensor& x) {
    switch (x.rank()) {
      case 0: return {};
      case 1:
        return pick(0, 1) ? matmul(x, operand(arguments, {x.dim(0)}))
                          : matmul(operand(arguments, {pick(1, 4), x.dim(0)}), x);
      default: break;
    }
    if (!narrow_types_.empty() && pick(0, 3) == 0) {
      const Extent k = pick(1, 20);
      return matmul(operand(arguments, {pick(1, 3), pick(1, 5), k}), operand(arguments, {k, pick(1, 5)}));
    }
    switch (pick(0, 4)) {
      case 0: return matmul(x, transpose(x));
      case 1: return matmul(transpose(x), x);
      case 2: return linear(x, operand(arguments, {pick(1, 4), x.dim(-1)}), Tensor());
      case 3: return matmul(operand(arguments, {x.rank() > 3 ? 1 : 2, 1, pick(1, 3), x.dim(-2)}), x);
      default: return matmul(x, operand(arguments, {x.dim(-1), pick(1, 4)}));
    }
  }

  Tensor grown(LeafMaker& arguments) {
    const Tensor x = any();
    switch (pick(0, 17)) {
      case 16: return through_type(x);
      case 17: return sum_of_pads(x);
      case 0:
      case 1: return elementwise_row(arguments, x);
      case 2: return x * 0.5 + 0.25;
      case 3: return elementwise("sigmoid", {x}) * x;
      case 4:
      case 5: return pick(0, 1) ? x + partner(arguments, x) * 0.5 : x * partner(arguments, x);
      case 6: return reduction(x);
      case 7: return x.numel() == 0 ? Tensor() : mean(x, some_axes(x.rank()), {.keepdims = pick(0, 1) == 1});
      case 8:
      case 9: return view_of(view_of(x));
      case 10: return view_of(x);
      case 11: return joined(x);
      case 12: return product(arguments, x);
      case 13: return composite(arguments, x);
      case 14: return gathered(arguments, x);
      default:
        return with_attention_ ? attended(arguments, x)
                               : elementwise("where", {x > scalar_like(0.1, x), x, partner(arguments, x)});
    }
  }

  std::vector<const ops::ElementwiseRow*> elementwise_rows_;
  std::vector<const ops::ReduceRow*> reduce_rows_;
  std::vector<DType> narrow_types_;
  std::vector<Tensor> values_;
  bool with_attention_ = false;
};

}  // namespace weft::test
