// Operators on shapes and layout.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "onnx/apply.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

Shape checked_shape(const A& a, const std::vector<Extent>& extents) {
  const Shape shape(extents);
  if (checked_numel<ShapeError>(shape, a.node().title()) > static_cast<std::uint64_t>(kMaxMadeElements))
    a.shape_error(fmt::format("a tensor of shape {} is too large", shape.to_string()));
  return shape;
}

// The shape of a value is known even where its elements are not.
void shape_of(A& a) {
  const Value& v = a.value(0);
  if (!v.is_tensor()) a.usage_error("its input is not a tensor");
  const Shape& shape = v.known.defined() ? v.known.shape() : v.tensor.shape();
  const auto rank = static_cast<Extent>(shape.rank());
  const auto place = [&](Extent at) { return std::clamp<Extent>(at < 0 ? at + rank : at, 0, rank); };
  const Extent start = place(a.integer("start", 0)), end = std::max(start, place(a.integer("end", rank)));
  const std::vector<Extent> extents(shape.begin() + start, shape.begin() + end);
  a.give_value(0, known_integers(extents, {end - start}));
}
void size_of(A& a) {
  const Value& v = a.value(0);
  if (!v.is_tensor()) a.usage_error("its input is not a tensor");
  a.give_value(0, known_integers({(v.known.defined() ? v.known : v.tensor).numel()}, {}));
}

void reshape_to(A& a) {
  std::vector<Extent> extents = a.integers("shape", 1);
  const bool allow_zero = a.flag("allowzero", false);
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (extents[i] == 0 && !allow_zero) {
      if (static_cast<int>(i) >= a[0].rank()) a.shape_error(fmt::format("extent 0 at axis {} has no axis to copy", i));
      extents[i] = a[0].dim(static_cast<int>(i));
    }
  // An empty tensor leaves -1 open; the other extents decide.
  if (a[0].numel() == 0)
    if (const auto open = std::find(extents.begin(), extents.end(), -1); open != extents.end()) *open = 0;
  a.give(reshape(a[0], Shape(extents)));
}
void flatten_to(A& a) {
  const Extent rank = a[0].rank();
  Extent axis = a.integer("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) a.shape_error(fmt::format("axis {} is out of range", axis));
  const Shape& s = a[0].shape();
  const Extent rows = std::accumulate(s.begin(), s.begin() + axis, Extent{1}, std::multiplies<>());
  const Extent columns = std::accumulate(s.begin() + axis, s.end(), Extent{1}, std::multiplies<>());
  a.give(reshape(a[0], {rows, columns}));
}
void squeeze_axes(A& a) {
  const int rank = a[0].rank();
  std::vector<int> axes = a.axes(a.integers("axes", 1), rank);
  if (axes.empty())
    for (int i = 0; i < rank; ++i)
      if (a[0].dim(i) == 1) axes.push_back(i);
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    const bool gone = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (gone && a[0].dim(i) != 1) a.shape_error(fmt::format("axis {} has extent {}, not 1", i, a[0].dim(i)));
    if (!gone) shape.push_back(a[0].dim(i));
  }
  a.give(reshape(a[0], shape));
}
void unsqueeze_axes(A& a) {
  const std::vector<Extent> given = a.integers("axes", 1);
  const int rank = a[0].rank() + static_cast<int>(given.size());
  std::vector<Extent> extents(static_cast<std::size_t>(rank), 0);
  for (const int axis : a.axes(given, rank)) {
    if (extents[static_cast<std::size_t>(axis)]) a.shape_error(fmt::format("axis {} is given twice", axis));
    extents[static_cast<std::size_t>(axis)] = 1;
  }
  int next = 0;
  Shape shape;
  for (const Extent e : extents) shape.push_back(e ? 1 : a[0].dim(next++));
  a.give(reshape(a[0], shape));
}
void transpose_axes(A& a) {
  const int rank = a[0].rank();
  std::vector<Extent> order = a.integers("perm");
  if (order.empty())
    for (int i = rank; i-- > 0;) order.push_back(i);
  a.give(permute(a[0], Axes(a.axes(order, rank))));
}
void concat_all(A& a) {
  const std::vector<Tensor> parts = a.all();
  a.give(concat(parts, a.axis(a.integer("axis"), parts[0].rank())));
}
void split_parts(A& a) {
  const int axis = a.axis(a.integer("axis", 0), a[0].rank());
  std::vector<Extent> lengths = a.integers("split", 1);
  const Extent n = a[0].dim(axis), parts = static_cast<Extent>(a.output_count());
  if (lengths.empty()) {
    const Extent each = (n + parts - 1) / std::max<Extent>(parts, 1);
    for (Extent i = 0; i < parts; ++i) lengths.push_back(std::clamp<Extent>(n - i * each, 0, each));
  }
  if (static_cast<Extent>(lengths.size()) != parts)
    a.usage_error(fmt::format("{} lengths are given for {} outputs", lengths.size(), parts));
  const std::vector<Tensor> made = split(a[0], lengths, axis);
  for (std::size_t i = 0; i < made.size(); ++i) a.give(i, made[i]);
}
void slice_parts(A& a) {
  const std::vector<Extent> starts = a.integers("starts", 1), ends = a.integers("ends", 2);
  std::vector<Extent> given = a.integers("axes", 3), steps = a.has(4) ? a.integers_of(4) : std::vector<Extent>{};
  if (given.empty()) given.resize(starts.size()), std::iota(given.begin(), given.end(), 0);
  steps.resize(starts.size(), 1);
  if (ends.size() != starts.size() || given.size() != starts.size())
    a.usage_error("starts, ends and axes differ in length");
  const std::vector<int> axes = a.axes(given, a[0].rank());
  Tensor x = a[0];
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Extent n = x.dim(axes[i]), step = steps[i];
    if (step == 0) a.usage_error("a step of 0");
    // Resolved here: an end before the first element has no other name in Weft's slices.
    const auto place = [&](Extent at, Extent low, Extent high) {
      if (at < 0) at = at < -n ? -n - 1 : at;
      return std::clamp(at < 0 ? at + n : at, low, high);
    };
    const Extent from = step > 0 ? place(starts[i], 0, n) : place(starts[i], -1, n - 1);
    const Extent to = step > 0 ? place(ends[i], 0, n) : place(ends[i], -1, n - 1);
    const Extent distance = step > 0 ? to - from : from - to;
    if (distance <= 0) {
      x = narrow(x, axes[i], 0, 0);
    } else if (step > 0) {
      x = slice(x, axes[i], from, to, step);
    } else {
      const Tensor part = flip(narrow(x, axes[i], to + 1, distance), axes[i]);
      x = step == -1 ? part : slice(part, axes[i], 0, kEnd, step == INT64_MIN ? INT64_MAX : -step);
    }
  }
  a.give(x);
}
void expand_to(A& a) {
  const std::vector<Extent> wanted = a.integers_of(1);
  const Shape& s = a[0].shape();
  std::vector<Extent> extents(std::max(wanted.size(), s.size()), 1);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent x = i < s.size() ? s[static_cast<int>(s.size() - 1 - i)] : 1;
    const Extent y = i < wanted.size() ? wanted[wanted.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) a.shape_error(fmt::format("it does not expand to [{}]", fmt::join(wanted, ", ")));
    extents[extents.size() - 1 - i] = x == 1 ? y : x;
  }
  a.give(expand(a[0], checked_shape(a, extents)));
}
void tile_all(A& a) {
  const std::vector<Extent> repeats = a.integers_of(1);
  std::vector<Extent> extents;
  if (static_cast<int>(repeats.size()) != a[0].rank()) a.shape_error("there is not a repeat for each axis");
  for (std::size_t i = 0; i < repeats.size(); ++i)
    extents.push_back(checked_multiply<ShapeError>(a[0].dim(static_cast<int>(i)), repeats[i], "Tile"));
  checked_shape(a, extents);
  a.give(tile(a[0], repeats));
}
void pad_all(A& a) {
  const int rank = a[0].rank();
  std::vector<Extent> pads = a.integers("pads", 1);
  std::vector<int> axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (a.has(3)) axes = a.axes(a.integers_of(3), rank);
  if (pads.size() != 2 * axes.size())
    a.usage_error(fmt::format("{} pads are given; {} are needed", pads.size(), 2 * axes.size()));
  double value = a.number("value", 0);
  if (a.has(2) && a[2].numel() > 0) value = a.numbers_of(2)[0];
  const std::string_view mode = a.word("mode", "constant");
  const PadMode how = mode == "constant"  ? PadMode::constant
                      : mode == "reflect" ? PadMode::reflect
                      : mode == "edge"    ? PadMode::replicate
                      : mode == "wrap"    ? PadMode::circular
                                          : (a.usage_error(fmt::format("unknown mode {}", mode)), PadMode::constant);
  std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(rank), {0, 0});
  Tensor x = a[0];
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Extent before = pads[i], after = pads[i + axes.size()];
    if (std::max(std::abs(before), std::abs(after)) > kMaxMadeElements) a.shape_error("a pad is too large");
    // Negative pads cut.
    const Extent n = x.dim(axes[i]), first = std::max<Extent>(-before, 0), last = n - std::max<Extent>(-after, 0);
    if (first > last) a.shape_error("negative pads cut more than there is");
    if (first || last != n) x = narrow(x, axes[i], first, last - first);
    around[static_cast<std::size_t>(axes[i])] = {std::max<Extent>(before, 0), std::max<Extent>(after, 0)};
  }
  std::vector<Extent> extents;
  for (int i = 0; i < rank; ++i) {
    const auto& [before, after] = around[static_cast<std::size_t>(i)];
    extents.push_back(x.dim(i) + before + after);
  }
  checked_shape(a, extents);
  a.give(pad(x, around, how, value));
}
// Cut or padded with zeros around the middle; of an odd rest the larger part is at the end.
void centre_crop_pad(A& a) {
  Tensor x = a[0];
  const int rank = x.rank();
  const std::vector<Extent> wanted = a.integers_of(1);
  std::vector<int> axes = a.axes(a.integers("axes"), rank);
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (wanted.size() != axes.size())
    a.usage_error(fmt::format("{} extents are given for {} axes", wanted.size(), axes.size()));
  std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(rank), {0, 0});
  std::vector<Extent> extents(x.shape().begin(), x.shape().end());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Extent n = x.dim(axes[i]), rest = wanted[i] - n;
    if (wanted[i] < 0 || wanted[i] > kMaxMadeElements) a.shape_error(fmt::format("an extent of {}", wanted[i]));
    if (rest < 0) x = narrow(x, axes[i], -rest / 2, wanted[i]);
    if (rest > 0) around[static_cast<std::size_t>(axes[i])] = {rest / 2, rest - rest / 2};
    extents[static_cast<std::size_t>(axes[i])] = wanted[i];
  }
  checked_shape(a, extents);
  a.give(pad(x, around));
}
void depth_to_space(A& a) {
  const Extent b = a.integer("blocksize");
  const Tensor& x = a[0];
  if (x.rank() != 4 || b < 1 || x.dim(1) % (b * b)) a.shape_error("channels do not fit the blocks");
  const Extent n = x.dim(0), c = x.dim(1) / (b * b), h = x.dim(2), w = x.dim(3);
  const bool crd = a.word("mode", "DCR") == "CRD";
  const Tensor parts = crd ? permute(reshape(x, {n, c, b, b, h, w}), {0, 1, 4, 2, 5, 3})
                           : permute(reshape(x, {n, b, b, c, h, w}), {0, 3, 4, 1, 5, 2});
  a.give(reshape(parts, {n, c, h * b, w * b}));
}
void space_to_depth(A& a) {
  const Extent b = a.integer("blocksize");
  const Tensor& x = a[0];
  if (x.rank() != 4 || b < 1 || x.dim(2) % b || x.dim(3) % b) a.shape_error("places do not fit the blocks");
  const Extent n = x.dim(0), c = x.dim(1), h = x.dim(2) / b, w = x.dim(3) / b;
  const bool crd = a.word("mode", "DCR") == "CRD";
  const Tensor parts = reshape(x, {n, c, h, b, w, b});
  a.give(reshape(crd ? permute(parts, {0, 1, 3, 5, 2, 4}) : permute(parts, {0, 3, 5, 1, 2, 4}), {n, c * b * b, h, w}));
}
void triangle(A& a) {
  const Extent k = a.has(1) ? std::clamp<Extent>(a.integer_of(1), INT32_MIN / 2, INT32_MAX / 2) : 0;
  a.give(a.flag("upper", true) ? triu(a[0], static_cast<int>(k)) : tril(a[0], static_cast<int>(k)));
}
// Each batch's first `length` steps backwards.
void reverse_sequence(A& a) {
  const int time = a.axis(a.integer("time_axis", 0), a[0].rank()),
            batch = a.axis(a.integer("batch_axis", 1), a[0].rank());
  if (time == batch) a.usage_error("the axes of time and batch are the same");
  const Tensor lengths = cast(a[1], DType::i32);
  const Extent steps = a[0].dim(time), batches = a[0].dim(batch);
  const Tensor t = reshape(arange(steps, DType::i32, a.device()), {steps, 1}), n = reshape(lengths, {1, batches});
  const Tensor from = where(lt(t, n), n - 1.0 - t, t + zeros_like(n));  // [steps, batches]
  Shape shape = a[0].shape();
  for (int i = 0; i < a[0].rank(); ++i)
    if (i != time && i != batch) shape[i] = 1;
  const Tensor placed = reshape(time < batch ? from : transpose(from), shape);
  a.give(take_along_axis(a[0], expand(placed, a[0].shape()), time));
}

constexpr Operator kShapeOperators[] = {
    {"Shape", shape_of, Operator::Mode::values},
    {"Size", size_of, Operator::Mode::values},
    {"Reshape", reshape_to},
    {"Flatten", flatten_to},
    {"Squeeze", squeeze_axes},
    {"Unsqueeze", unsqueeze_axes},
    {"Transpose", transpose_axes},
    {"Concat", concat_all},
    {"Split", split_parts},
    {"Slice", slice_parts},
    {"Expand", expand_to},
    {"Tile", tile_all},
    {"Pad", pad_all},
    {"CenterCropPad", centre_crop_pad},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", space_to_depth},
    {"Trilu", triangle},
    {"ReverseSequence", reverse_sequence},
};

}  // namespace

std::span<const Operator> shape_operators() { return kShapeOperators; }

}  // namespace weft::onnx
