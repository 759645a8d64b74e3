// What the cases of rows do not say of distances, samples, segments and pools at random places: equal points, the digits of
// distances by products, sizes inside compiled functions, draws.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/message_of.hpp"
#include "graph/op.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops/distances.hpp"
#include "weft/ops/float_parts.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/pooling.hpp"
#include "weft/ops/random.hpp"
#include "weft/ops/samples.hpp"
#include "weft/ops/segments.hpp"
#include "weft/ops/statistics.hpp"

namespace weft::test {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

TEST(Distances, HaveNoSlopeWherePointsAreEqual) {
  const Tensor x = tensor<double>({1, 2, 0.5, -1}, {2, 2}), y = tensor<double>({1, 2}, {1, 2});
  for (const double p : std::vector<double>{0, 0.5, 1, 1.5, 2, 3, INFINITY}) {
    SCOPED_TRACE(p);
    const std::vector<double> slope = grad(sum(slice(cdist(x, y, p), 0, 0, 1)), x).to_vector<double>();
    EXPECT_EQ(slope, (std::vector<double>{0, 0, 0, 0}));
    EXPECT_EQ(cdist(x, x, p).to_vector<double>()[3], 0);
  }
  // An element without a difference beside one with a difference.
  const Tensor other = tensor<double>({1, 3, 0.5, 0}, {2, 2});
  const std::vector<double> half = grad(sum(pairwise_distance(x, other, 0.5, 0)), x).to_vector<double>();
  EXPECT_EQ(half, (std::vector<double>{0, -1, 0, -1}));
}

TEST(Distances, ByProductsKeepTheDigitsOfF32) {
  // Far from zero and close to each other, where the products of f32 alone would cancel.
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr Extent kPoints = 40, kCoordinates = 17;
  Floats numbers(kPoints * kCoordinates);
  for (float& v : numbers) v = 1000 + normal(random);
  std::copy_n(numbers.begin(), kCoordinates, numbers.begin() + kCoordinates);  // two equal points
  const Tensor x = tensor<float>(numbers, {kPoints, kCoordinates});
  const Tensor wide = cast(x, DType::f64), wanted = cdist(wide, wide, 2, DistanceMethod::differences);
  const Tensor products = cdist(x, x, 2, DistanceMethod::products);
  EXPECT_EQ(products.dtype(), DType::f32);
  EXPECT_EQ(products.to_vector<float>(), cdist(x, x).to_vector<float>()) << "automatic takes products for many points";
  const Tensor off = abs(cast(products, DType::f64) - wanted) / maximum(wanted, 1e-30);
  EXPECT_LT(amax(off).item<double>(), 1e-7);
  EXPECT_EQ(products.to_vector<float>()[1], 0);
  const Tensor slope = grad(sum(products), x), wanted_slope = grad(sum(wanted), wide);
  EXPECT_LT(amax(abs(cast(slope, DType::f64) - wanted_slope)).item<double>(), 1e-5);
}

TEST(Distances, OfNothingAreZeroOrNoneAndOfIntegersF32) {
  EXPECT_EQ(cdist(zeros({2, 0}), zeros({3, 0})).to_vector<float>(), (Floats{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(cdist(zeros({0, 2}), zeros({3, 2})).shape(), (Shape{0, 3}));
  EXPECT_EQ(pdist(zeros({0, 2})).shape(), Shape{0});
  const Tensor whole = pairwise_distance(tensor<std::int32_t>({3, -1}), tensor<std::int32_t>({0, 3}), 1, 0);
  EXPECT_EQ(whole.dtype(), DType::f32);
  EXPECT_EQ(whole.item<float>(), 7);
}

TEST(Distances, NormsOfPowersHaveNoSlopeAtZero) {
  const Tensor x = tensor<double>({0, 4, 0, 9});
  const std::vector<double> slope = grad(vector_norm(x, 0.5), x).to_vector<double>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(slope[i], (std::vector<double>{0, 2.5, 0, 5.0 / 3})[i], 1e-12);
  EXPECT_EQ(vector_norm(x, -1).item<double>(), 0);
  EXPECT_EQ(grad(vector_norm(x, -1), x).to_vector<double>(), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Samples, TakeDistancesOfEachAxisAndIntegers) {
  const Tensor y = reshape(arange(6, DType::f64) * arange(6, DType::f64), {2, 3});
  const std::vector<Tensor> slopes = gradient(y, {Spacing(0.5), Spacing(tensor(2.0))});
  EXPECT_EQ(slopes[0].to_vector<double>(), (std::vector<double>{18, 30, 42, 18, 30, 42}));
  EXPECT_EQ(slopes[1].to_vector<double>(), (std::vector<double>{0.5, 1, 1.5, 3.5, 4, 4.5}));
  EXPECT_EQ(gradient(tensor<std::int32_t>({1, 4, 9}))[0].to_vector<float>(), (Floats{3, 4, 5}));
  EXPECT_EQ(trapezoid(tensor<std::int32_t>({1, 4, 9}), 2.0).item<float>(), 18);
  EXPECT_EQ(trapezoid(zeros({3, 0})).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST(Segments, OfNothingGiveWhatTheyBeginWith) {
  const Tensor x = tensor({1.0f, 5.0f, 3.0f, 7.0f}),
               lengths = tensor<std::int32_t>({2, 0, 1});  // the last element is left out
  EXPECT_EQ(segment_reduce(x, lengths, ScatterReduction::sum).to_vector<float>(), (Floats{6, 0, 3}));
  EXPECT_EQ(segment_reduce(x, lengths, ScatterReduction::prod).to_vector<float>(), (Floats{5, 1, 3}));
  EXPECT_EQ(segment_reduce(x, lengths, ScatterReduction::amax).to_vector<float>(), (Floats{5, -INFINITY, 3}));
  EXPECT_EQ(segment_reduce(x, lengths, ScatterReduction::amin, {.initial = 2}).to_vector<float>(), (Floats{1, 2, 2}));
  const Floats means = segment_reduce(x, lengths, ScatterReduction::mean).to_vector<float>();
  EXPECT_TRUE(means[0] == 3 && std::isnan(means[1]) && means[2] == 3);
  const Tensor whole = tensor<std::int32_t>({4, -2, 9});
  EXPECT_EQ(segment_reduce(whole, tensor<std::int32_t>({0, 3}), ScatterReduction::amin).to_vector<std::int32_t>(),
            (Ints{INT32_MAX, -2}));
  // The lengths may change from call to call of a compiled function.
  auto sums = compile([](const Tensor& v, const Tensor& n) { return segment_reduce(v, n, ScatterReduction::sum); });
  EXPECT_EQ(sums(x, lengths).to_vector<float>(), (Floats{6, 0, 3}));
  EXPECT_EQ(sums(x, tensor<std::int32_t>({1, 1, 2})).to_vector<float>(), (Floats{1, 5, 10}));
}

TEST(Membership, IsThatOfASearchAndOfComparisons) {
  Ints elements, wanted;
  for (std::int32_t i = 0; i < 50; ++i) elements.push_back(i * i % 101);
  const Tensor x = arange(101);
  for (const std::int32_t v : x.to_vector<std::int32_t>())
    wanted.push_back(std::find(elements.begin(), elements.end(), v) != elements.end() ? 1 : 0);
  EXPECT_EQ(cast(isin(x, tensor(elements)), DType::i32).to_vector<std::int32_t>(), wanted);
  const Tensor few = tensor<std::int32_t>({3, 7}), value = tensor(NAN);
  EXPECT_EQ(isin(tensor({3.0f, 3.5f, NAN}), few).to_vector<bool>(), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(isin(value, value).item<bool>(), false);
  EXPECT_EQ(isin(tensor<bool>({true, false}), tensor<bool>({true}), /*invert=*/true).to_vector<bool>(),
            (std::vector<bool>{false, true}));
}

TEST(Decimals, OfNarrowTypesAndLargeNumbers) {
  EXPECT_EQ(round(tensor({2.675f, -0.125f, 1234.5f}), 2).to_vector<float>(), (Floats{2.68f, -0.12f, 1234.5f}));
  EXPECT_EQ(round(tensor({1250.0f, 1350.0f}), -2).to_vector<float>(), (Floats{1200, 1400}));
  // 65000 times 100 is beyond f16, which is computed in f32.
  EXPECT_EQ(cast(round(cast(tensor({65000.0f}), DType::f16), 2), DType::f32).item<float>(), 64992);
  const Tensor x = tensor({1.5f, 1e38f});
  EXPECT_EQ(grad(sum(round(x, 3)), x).to_vector<float>(), (Floats{0, 0}));
}

TEST(FractionalPools, CoverTheImageWithWindowsOfTheirSize) {
  const Tensor x = reshape(arange(2 * 12 * 10, DType::f32), {1, 2, 12, 10});
  manual_seed(5);
  const auto [values, positions] = fractional_max_pool2d(x, 3, {.size = {5, 4}});
  EXPECT_EQ(values.shape(), (Shape{1, 2, 5, 4}));
  const Ints at = positions.to_vector<std::int32_t>();
  const Floats greatest = values.to_vector<float>();
  for (std::size_t i = 0; i < at.size(); ++i)
    EXPECT_EQ(greatest[i], static_cast<float>(at[i]) + (i < at.size() / 2 ? 0 : 120));
  // The greatest element is at the end of its window: windows begin at the first element, and end at the last one.
  EXPECT_EQ(at[0], 2 * 10 + 2);
  EXPECT_EQ(at[19], 119);
  for (std::size_t column = 1; column < 4; ++column) {
    const int step = at[column] - at[column - 1];
    EXPECT_TRUE(step >= 2 && step <= 3) << step;  // around (10 - 3) / 3
  }
  manual_seed(5);
  EXPECT_EQ(fractional_max_pool2d(x, 3, {.ratio = {0.42, 0.4}}).values.to_vector<float>(), greatest);
  EXPECT_NE(message_of<ShapeError>([&] {
              const auto none = fractional_max_pool2d(x, 3, {.ratio = {0.1, 0.2, 0.3}});
            }).find("3 ratios for 2 axes"),
            std::string::npos);
  // By name, with a gradient: each window's greatest element gets what its result gets.
  manual_seed(5);
  const graph::Tensors named = graph::apply(graph::op_row("fractional_max_pool2d"), {x},
                                            {{"kernel", Extent{3}}, {"ratio", graph::Numbers{0.42, 0.4}}});
  EXPECT_EQ(named[0].to_vector<float>(), greatest);
  EXPECT_EQ(named[1].to_vector<std::int32_t>(), at);
  Floats wanted(240, 0);
  for (std::size_t i = 0; i < at.size(); ++i) wanted[static_cast<std::size_t>(at[i]) + (i < 20 ? 0 : 120)] += 1;
  EXPECT_EQ(grad(sum(named[0]), x).to_vector<float>(), wanted);
}

}  // namespace
}  // namespace weft::test
