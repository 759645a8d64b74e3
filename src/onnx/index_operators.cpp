// Operators on elements by index, and on order.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "onnx/apply.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/order.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// Negative positions count from the end.
Tensor counted(const Tensor& indices, Extent extent) {
  const Tensor i = indices.dtype() == DType::i64 ? indices : cast(indices, DType::i32);
  return where(lt(i, 0.0), i + extent, i);
}

Tensor gathered(const Tensor& x, const Tensor& indices, int axis) {
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(x.dim(i));
  for (const Extent e : indices.shape()) shape.push_back(e);
  for (int i = axis + 1; i < x.rank(); ++i) shape.push_back(x.dim(i));
  return reshape(index_select(x, axis, reshape(counted(indices, x.dim(axis)), {indices.numel()})), shape);
}
void gather_slices(A& a) { a.give(gathered(a[0], a[1], a.axis(a.integer("axis", 0), a[0].rank()))); }
void gather_elements(A& a) {
  const int axis = a.axis(a.integer("axis", 0), a[0].rank());
  a.give(gather(a[0], axis, counted(a[1], a[0].dim(axis))));
}

// Row numbers of x, its axes from `first` on flat, for indices [..., k] into k of its axes.
Tensor flat_places(const A& a, const Tensor& x, int first, const Tensor& indices) {
  const Extent k = indices.dim(-1);
  if (k < 1 || first + k > x.rank()) a.shape_error(fmt::format("indices of {} axes do not fit", k));
  Tensor flat;
  for (int i = 0; i < k; ++i) {
    const Extent n = x.dim(first + i);
    const Tensor place = counted(select(indices, -1, i), n);
    flat = flat.defined() ? flat * n + place : place;
  }
  return flat;
}
Extent product_of(const Shape& s, int from, int to) {
  return std::accumulate(s.begin() + from, s.begin() + to, Extent{1}, std::multiplies<>());
}

void gather_nd(A& a) {
  const int batch = static_cast<int>(a.integer("batch_dims", 0));
  const Tensor &x = a[0], &indices = a[1];
  if (indices.rank() < 1 || batch < 0 || batch >= indices.rank() || batch >= x.rank())
    a.shape_error("batch_dims do not fit");
  const int k = static_cast<int>(indices.dim(-1)), rank = x.rank();
  Tensor places = flat_places(a, x, batch, indices);
  const Extent batches = product_of(x.shape(), 0, batch), rows = product_of(x.shape(), batch, batch + k);
  Shape shape;
  for (int i = 0; i + 1 < indices.rank(); ++i) shape.push_back(indices.dim(i));
  const Extent each = product_of(shape, batch, shape.rank());
  for (int i = batch + k; i < rank; ++i) shape.push_back(x.dim(i));
  places = reshape(places, {batches, each});
  const Tensor start = reshape(arange(batches, places.dtype(), a.device()), {batches, 1}) * rows;
  const Tensor table = reshape(x, {batches * rows, product_of(x.shape(), batch + k, rank)});
  a.give(reshape(index_select(table, 0, reshape(places + start, {batches * each})), shape));
}

std::optional<ScatterReduction> reduction_of(A& a) {
  const std::string_view word = a.word("reduction", "none");
  if (word == "none") return {};
  if (word == "add") return ScatterReduction::sum;
  if (word == "mul") return ScatterReduction::prod;
  if (word == "max") return ScatterReduction::amax;
  if (word == "min") return ScatterReduction::amin;
  a.usage_error(fmt::format("unknown reduction {}", word));
}
Tensor scattered(A& a, const Tensor& x, int axis, const Tensor& indices, const Tensor& updates) {
  const auto reduction = reduction_of(a);
  if (!reduction) return scatter(x, axis, indices, updates);
  if (*reduction == ScatterReduction::sum) return scatter_add(x, axis, indices, updates);
  return scatter_reduce(x, axis, indices, updates, *reduction);
}
void scatter_elements(A& a) {
  const int axis = a.axis(a.integer("axis", 0), a[0].rank());
  a.give(scattered(a, a[0], axis, counted(a[1], a[0].dim(axis)), a[2]));
}
void scatter_nd(A& a) {
  const Tensor &x = a[0], &indices = a[1], &updates = a[2];
  if (indices.rank() < 1) a.shape_error("indices have no axis");
  const int k = static_cast<int>(indices.dim(-1));
  const Tensor places = flat_places(a, x, 0, indices);
  const Extent rows = product_of(x.shape(), 0, k), width = product_of(x.shape(), k, x.rank()), n = places.numel();
  if (updates.numel() != n * width) a.shape_error("updates do not fit the indices");
  const Tensor at = expand(reshape(places, {n, 1}), {n, width});
  a.give(reshape(scattered(a, reshape(x, {rows, width}), 0, at, reshape(updates, {n, width})), x.shape()));
}

void nonzero_places(A& a) {
  const Tensor& mask = a.settled(0);
  a.give_positions(0, transpose(nonzero(mask.rank() == 0 ? reshape(mask, {1}) : mask)));
}
void compress(A& a) {
  const bool flat = !a.attribute("axis");
  const Tensor x = flat ? reshape(a[0], {a[0].numel()}) : a[0];
  const int axis = flat ? 0 : a.axis(a.integer("axis"), x.rank());
  const std::vector<Extent> chosen = a.integers_of(1);
  std::vector<Extent> places;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) places.push_back(static_cast<Extent>(i));
  a.give(index_select(x, axis, a.make(places, {static_cast<Extent>(places.size())})));
}
void top_elements(A& a) {
  const Extent k = a.has(1) ? a.integer_of(1) : a.integer("k");
  const auto [values, positions] = topk(a[0], k, a.axis(a.integer("axis", -1), a[0].rank()), a.flag("largest", true));
  a.give(0, values);
  a.give_positions(1, positions);
}
void one_hot_of(A& a) {
  const Extent depth = a.integer_of(1);
  if (depth < 0 || depth > kMaxMadeElements) a.usage_error(fmt::format("depth {} is out of range", depth));
  const int rank = a[0].rank() + 1, axis = a.axis(a.integer("axis", -1), rank);
  const Tensor indices = counted(cast(a[0], a.type_here(DType::i64)), depth);
  Shape shape(std::vector<Extent>(static_cast<std::size_t>(rank), 1));
  shape[axis] = depth;
  const Tensor is = eq(unsqueeze(indices, axis), reshape(arange(depth, indices.dtype(), a.device()), shape));
  a.give(where(is, select(a[2], 0, 1), select(a[2], 0, 0)));
}

// The different slices, by comparing their elements on the host: the number of results depends on them.
void unique_slices(A& a) {
  const bool flat = !a.attribute("axis");
  const Tensor x = flat ? reshape(a[0], {a[0].numel()}) : a[0];
  const int axis = flat ? 0 : a.axis(a.integer("axis"), x.rank());
  const Extent n = x.dim(axis), width = n ? x.numel() / n : 0;
  const std::vector<double> numbers = a.numbers_of(0);
  const Extent inner = product_of(x.shape(), axis + 1, x.rank());
  const auto element = [&](Extent row, Extent i) {
    return numbers[static_cast<std::size_t>((i / inner * n + row) * inner + i % inner)];
  };
  const auto less = [&](Extent p, Extent q) {
    for (Extent i = 0; i < width; ++i)
      if (element(p, i) != element(q, i)) return element(p, i) < element(q, i);
    return false;
  };
  std::map<Extent, std::vector<Extent>, decltype(less)> groups(less);  // by first row, the rows that equal it
  for (Extent row = 0; row < n; ++row) groups[row].push_back(row);
  std::vector<const std::vector<Extent>*> order;
  for (const auto& [first, rows] : groups) order.push_back(&rows);
  if (!a.flag("sorted", true))
    std::sort(order.begin(), order.end(), [](const auto* p, const auto* q) { return p->front() < q->front(); });
  std::vector<Extent> firsts, counts, inverse(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < order.size(); ++i) {
    firsts.push_back(order[i]->front());
    counts.push_back(static_cast<Extent>(order[i]->size()));
    for (const Extent row : *order[i]) inverse[static_cast<std::size_t>(row)] = static_cast<Extent>(i);
  }
  const Extent count = static_cast<Extent>(firsts.size());
  const Tensor at = a.make(firsts, {count});
  a.give(0, index_select(x, axis, at));
  a.give(1, at);
  a.give(2, a.make(inverse, {n}));
  a.give(3, a.make(counts, {count}));
}

constexpr Operator kIndexOperators[] = {
    {"Gather", gather_slices},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"Scatter", scatter_elements},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"NonZero", nonzero_places},
    {"Compress", compress},
    {"TopK", top_elements},
    {"OneHot", one_hot_of},
    {"Unique", unique_slices},
};

}  // namespace

std::span<const Operator> index_operators() { return kIndexOperators; }

}  // namespace weft::onnx
