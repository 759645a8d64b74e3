// What the cases of rows do not say of joins, runs of equal slices and histograms: sizes inside compiled functions, NaN, narrow
// types, many columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/message_of.hpp"
#include "graph/op.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/joins.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/making.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/view_scatters.hpp"

namespace weft::test {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

Ints ints(const Tensor& x) { return x.to_vector<std::int32_t>(); }

TEST(UniqueSlices, AreThoseOfASetOfRows) {
  // Odd and even numbers of columns, with many equal rows; rows are ordered by their first elements that differ.
  std::mt19937 random(11);
  for (const Extent columns : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(columns);
    constexpr Extent kRows = 40;
    Ints numbers;
    for (Extent i = 0; i < kRows * columns; ++i) numbers.push_back(static_cast<std::int32_t>(random() % 2));
    std::vector<Ints> rows;
    for (Extent r = 0; r < kRows; ++r)
      rows.emplace_back(numbers.begin() + r * columns, numbers.begin() + (r + 1) * columns);
    const std::set<Ints> different(rows.begin(), rows.end());
    Ints wanted, inverse, counts;
    for (const Ints& row : different) {
      wanted.insert(wanted.end(), row.begin(), row.end());
      counts.push_back(static_cast<std::int32_t>(std::count(rows.begin(), rows.end(), row)));
    }
    for (const Ints& row : rows)
      inverse.push_back(static_cast<std::int32_t>(std::distance(different.begin(), different.find(row))));
    const Unique found = unique(tensor<std::int32_t>(numbers, {kRows, columns}), {.axis = 0});
    EXPECT_EQ(ints(found.values), wanted);
    EXPECT_EQ(ints(found.inverse), inverse);
    EXPECT_EQ(ints(found.counts), counts);
  }
}

TEST(UniqueSlices, HaveASizeInsideCompiledFunctions) {
  const Tensor x = tensor<std::int32_t>({1, 2, 1, 2, 0, 5, 0, 5, 0, 5}, {5, 2});
  auto rows = compile([](const Tensor& v) { return unique(v, {.axis = 0, .size = 3}).values; });
  EXPECT_EQ(ints(rows(x)), (Ints{0, 5, 1, 2, 0, 0}));
  auto runs = compile([](const Tensor& v) {
    const auto [values, inverse, counts] = unique_consecutive(v, {.axis = 0, .size = 3});
    return std::vector<Tensor>{values, inverse, counts};
  });
  const std::vector<Tensor> of_runs = runs(x);
  EXPECT_EQ(ints(of_runs[0]), (Ints{1, 2, 0, 5, 0, 0}));
  EXPECT_EQ(ints(of_runs[1]), (Ints{0, 0, 1, 1, 1}));
  EXPECT_EQ(ints(of_runs[2]), (Ints{2, 3, 0}));
  auto without = compile([](const Tensor& v) { return unique_consecutive(v).values; });
  EXPECT_NE(message_of<UsageError>([&] { without(x); }).find("inside a compiled function; give a size"),
            std::string::npos);
}

TEST(UniqueConsecutive, KeepsTheOrderAndEveryNaN) {
  const Tensor x = tensor({2.0f, 2.0f, 1.0f, NAN, NAN, 2.0f});
  const auto [values, inverse, counts] = unique_consecutive(x);
  EXPECT_EQ(ints(counts), (Ints{2, 1, 1, 1, 1}));
  EXPECT_EQ(ints(inverse), (Ints{0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(values.to_vector<float>()[4], 2);
  EXPECT_EQ(unique_consecutive(zeros({0})).values.shape(), Shape{0});
  EXPECT_EQ(unique(zeros({0, 3}), {.axis = 0}).values.shape(), (Shape{0, 3}));
  EXPECT_EQ(unique(zeros({4, 0}), {.axis = 0}).values.shape(), (Shape{1, 0}));
  EXPECT_EQ(ints(argwhere(tensor<std::int32_t>({0, 3, 0, 1}))), (Ints{1, 3}));
}

TEST(Joins, TakeListsAndPromoteBlocks) {
  const Tensor a = tensor<std::int32_t>({1, 2}), b = tensor({0.5f});
  const Tensor blocks = block_diag({a, b});
  EXPECT_EQ(blocks.dtype(), DType::f32);
  EXPECT_EQ(blocks.to_vector<float>(), (Floats{1, 2, 0, 0, 0, 0.5f}));
  EXPECT_EQ(vstack({a, a}).shape(), (Shape{2, 2}));
  EXPECT_EQ(combinations(a, 0).shape(), Shape{0});
  EXPECT_EQ(combinations(zeros({0})).shape(), (Shape{0, 2}));
  const std::vector<Tensor> parts = tensor_split(arange(7), 3);
  EXPECT_EQ(parts[0].dim(0), 3);
  EXPECT_EQ(parts[2].dim(0), 2);
  EXPECT_EQ(hsplit(arange(6), std::vector<Extent>{4, 2})[1].dim(0), 0);
  EXPECT_EQ(broadcast_tensors({a, zeros({3, 1})})[0].shape(), (Shape{3, 2}));
  EXPECT_NE(
      message_of<UsageError>([] { const Tensor none = hstack(std::vector<Tensor>{}); }).find("there are no tensors"),
      std::string::npos);
}

// As many choices as of the two elements that are left out. Choices of half of them, which most cannot be made of, are 10^17.
TEST(Joins, CombinationsOfMostElements) {
  const Tensor most = combinations(arange(60), 58);
  EXPECT_EQ(most.shape(), (Shape{1770, 58}));
  const Tensor left_out = combinations(arange(60), 2);
  const Tensor total = sum(most, {1}) + flip(sum(left_out, {1}), 0);
  EXPECT_EQ(ints(amin(total)), Ints{60 * 59 / 2});
  EXPECT_EQ(ints(amax(total)), Ints{60 * 59 / 2});
  EXPECT_EQ(combinations(arange(3000), 3000).shape(), (Shape{1, 3000}));
  EXPECT_EQ(ints(combinations(tensor<std::int32_t>({7}), 4, true)), (Ints{7, 7, 7, 7}));
  EXPECT_NE(message_of<UsageError>([] {
              (void)combinations(tensor<std::int32_t>({7}), Extent{1} << 60, true);
            }).find("too many"),
            std::string::npos);
}

// Memory beside the result is that of the choices of fewer elements.
TEST(Joins, CombinationsTakeLittleMemory) {
  const std::string plan = explain(combinations(arange(1000), 2));
  EXPECT_NE(plan.find("buffers: 3.996 MB given, 0.016 MB scratch"), std::string::npos) << plan;
}

TEST(ViewScatters, AreWhatTheViewShows) {
  const Tensor x = reshape(arange(24, DType::f32), {4, 6}), v = full({4}, -1);
  EXPECT_EQ(diagonal(diagonal_scatter(x, v, 1), 1).to_vector<float>(), (Floats{-1, -1, -1, -1}));
  EXPECT_EQ(select(select_scatter(x, v, 1, -2), 1, 4).to_vector<float>(), (Floats{-1, -1, -1, -1}));
  const Tensor w = full({4, 2}, -2), sliced = slice_scatter(x, w, 1, 1, kEnd, 3);
  EXPECT_EQ(slice(sliced, 1, 1, kEnd, 3).to_vector<float>(), w.to_vector<float>());
  EXPECT_EQ(sum(sliced).item<float>(), sum(x).item<float>() - sum(slice(x, 1, 1, kEnd, 3)).item<float>() - 16);
  const Tensor s = as_strided_scatter(x, full({2, 2}, -3), {2, 2}, {6, 1}, 7);
  EXPECT_EQ(as_strided(s, {2, 2}, {6, 1}, 7).to_vector<float>(), (Floats{-3, -3, -3, -3}));
  EXPECT_EQ(grad(sum(s), x).to_vector<float>()[7], 0);
}

TEST(Histograms, CountBetweenEdgesAndInGrids) {
  const Tensor x = tensor({0.0f, 0.5f, 1.0f, 3.0f, 4.0f, NAN, -1.0f}), edges = tensor({0.0f, 1.0f, 4.0f});
  EXPECT_EQ(ints(histogram(x, edges).counts), (Ints{2, 3}));
  const Floats density = histogram(x, edges, {}, /*density=*/true).counts.to_vector<float>();
  EXPECT_FLOAT_EQ(density[0], 0.4f);
  EXPECT_FLOAT_EQ(density[1], 0.2f);
  EXPECT_EQ(histc(tensor<std::int32_t>({1, 2, 2, 5}), 4, 1, 5).dtype(), DType::i32);
  const Tensor points = tensor({{0.1f, 0.9f}, {0.9f, 0.1f}, {0.8f, 0.2f}, {2.0f, 0.5f}});
  const HistogramOfPoints grid = histogramdd(points, {.bins = {2}, .ranges = {{0, 1}}});
  EXPECT_EQ(ints(grid.counts), (Ints{0, 1, 2, 0}));
  EXPECT_EQ(grid.edges[1].to_vector<float>(), (Floats{0, 0.5f, 1}));
  const HistogramOfPoints each = histogramdd(points, {.bins = {2, 1}, .ranges = {{0, 1}, {0.5, 3}}});
  EXPECT_EQ(ints(each.counts), (Ints{1, 0}));
  // The same by name: one number for all axes, or one for each.
  const auto by_name = [&](const graph::Numbers& low, const graph::Numbers& high) {
    return graph::apply(graph::op_row("histogramdd"), {points},
                        {{"bins", std::vector<Extent>{2, 1}}, {"low", low}, {"high", high}});
  };
  const graph::Tensors named = by_name({0, 0.5}, {1, 3});
  ASSERT_EQ(named.size(), 3u);
  EXPECT_EQ(ints(named[0]), ints(each.counts));
  EXPECT_EQ(named[2].to_vector<float>(), (Floats{0.5f, 3}));
  EXPECT_EQ(by_name({0}, {1, 3})[2].to_vector<float>(), (Floats{0, 3}));
  EXPECT_EQ(by_name({0}, {1})[1].to_vector<float>(), (Floats{0, 0.5f, 1}));
  EXPECT_EQ(by_name({0}, {0})[2].to_vector<float>(), (Floats{0.1f, 0.9f}));  // that of the elements
  EXPECT_EQ(by_name({0, 0}, {0, 2})[1].to_vector<float>()[0], 0.1f);         // of one axis only
  EXPECT_NE(message_of<ShapeError>([&] { by_name({}, {1}); }).find("0 values of low and 1 of high"), std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] {
              const auto h = histogramdd(points, {.bins = {1 << 20, 1 << 20}});
            }).find("too many"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::test
