// What the cases of rows do not say of sorting, indexing and distributions: narrow types, ties, sizes that depend on values,
// compiled functions, and whether draws are distributed as they should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/making.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/random.hpp"
#include "weft/ops/statistics.hpp"

namespace weft::test {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

template <class F>
std::string message_of_call(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Order, NarrowTypesAndIntegersOf64BitsKeepTheirValues) {
  const Tensor x = tensor<float>({3, -1, 2, -1, 0.5f});
  for (const DType type : {DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16, DType::i64, DType::f64}) {
    SCOPED_TRACE(name_of(type));
    const Tensor typed = cast(abs(x), type);
    const auto [values, positions] = sort(typed, 0, /*descending=*/true);
    EXPECT_EQ(values.dtype(), type);
    EXPECT_EQ(cast(values, DType::f32).to_vector<float>()[1], 2);
    EXPECT_EQ(positions.to_vector<std::int32_t>(), (Ints{0, 2, 1, 3, 4}));
  }
  const Tensor large = tensor<std::int64_t>({INT64_MAX, INT64_MIN, INT64_MAX - 1});
  EXPECT_EQ(sort(large).values.to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, INT64_MAX - 1, INT64_MAX}));
  const Tensor half = cast(full({2000}, 0.001), DType::f16);  // added in f32, and rounded once
  EXPECT_NEAR(cast(cumsum(half), DType::f32).to_vector<float>()[1999], 2, 2e-3);
}

TEST(Order, TheFirstRanksAreThoseOfAWholeSort) {
  // Lines that mislead a bound on what can come first: few different values, zeros of both signs, infinities, NaN.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr Extent kLines = 200;
  std::mt19937 random(7);
  for (const Extent n : {256, 300, 1024, 4099}) {
    Floats line(static_cast<std::size_t>(kLines * n));
    for (Extent row = 0; row < kLines; ++row) {
      const std::vector<Floats> kinds{{0, -0.0f},     {0, -0.0f, -1}, {1, 2, 3},     {inf, -inf},
                                      {nan},          {nan, 1, -1},   {nan, inf, 0}, {0x1p-149f, 0, -0x1p-149f},
                                      {-inf, nan, -2}};
      const std::size_t kind = static_cast<std::size_t>(row) % (kinds.size() + 1);
      const double rare = row % 3 == 0 ? 0.01 : 0.5;  // how often a number is of the kind
      for (Extent i = 0; i < n; ++i) {
        const double drawn = std::uniform_real_distribution<>(-1, 1)(random);
        const bool special = kind < kinds.size() && std::abs(drawn) < rare;
        line[static_cast<std::size_t>(row * n + i)] =
            special ? kinds[kind][random() % kinds[kind].size()] : static_cast<float>(kind % 2 != 0 ? -2 : drawn);
      }
    }
    const Tensor x = tensor<float>(std::span<const float>(line), Shape{kLines, n});
    for (const DType type : {DType::f32, DType::f64, DType::i32, DType::u8}) {
      const Tensor typed =
          is_integer(type) ? cast(clamp(where(isnan(x), 3.0, x), -9.0, 9.0) * 3.0, type) : cast(x, type);
      for (const bool descending : {false, true}) {
        const ValuesAndPositions all = sort(typed, -1, descending);
        for (const Extent k : {Extent{1}, Extent{10}, n / 8}) {
          SCOPED_TRACE(fmt::format("{} of {} {}, descending {}", k, n, name_of(type), descending));
          const ValuesAndPositions some = topk(typed, k, -1, descending);
          EXPECT_EQ(some.positions.to_vector<std::int32_t>(), slice(all.positions, 1, 0, k).to_vector<std::int32_t>());
        }
      }
    }
  }
}

TEST(Order, SeveralQuantilesAreOneResult) {
  const Tensor x = tensor<float>({4, 1, 3, 2, 0, 10, 20, 30, 40, 50}, {2, 5});
  const Tensor q = quantile(x, std::vector<double>{0, 0.5, 0.625}, 1);
  EXPECT_EQ(q.shape(), (Shape{3, 2}));
  EXPECT_EQ(q.to_vector<float>(), (Floats{0, 10, 2, 30, 2.5f, 35}));
  EXPECT_EQ(quantile(x, 0.5).shape(), Shape{});
  EXPECT_EQ(quantile(x, 0.5, {}, {.keepdims = true}).shape(), (Shape{1, 1}));
  EXPECT_EQ(median(x).item<float>(), 4);
}

TEST(Order, QuantilesThatLeaveNanOut) {
  const float nan = std::nanf("");
  const Tensor x = tensor<float>({4, nan, 3, 2, nan, 10, 20, 30, 40, 50, nan, nan, nan, nan, nan}, {3, 5});
  const std::vector<float> half = nanquantile(x, 0.5, 1).to_vector<float>();
  EXPECT_EQ(half[0], 3);
  EXPECT_EQ(half[1], 30);
  EXPECT_TRUE(std::isnan(half[2]));
  EXPECT_EQ(nanquantile(narrow(x, 0, 0, 2), std::vector<double>{0.25, 1}, 1).to_vector<float>(),
            (Floats{2.5f, 20, 4, 50}));
  EXPECT_EQ(nanmedian(x).item<float>(), 10);
  const auto [values, positions] = nanmedian(x, 1);
  EXPECT_EQ(values.to_vector<float>()[0], 3);
  EXPECT_EQ(positions.to_vector<std::int32_t>()[0], 2);
  EXPECT_EQ(positions.to_vector<std::int32_t>()[1], 2);
  // Infinities between which there is nothing to mix; and a gradient to the two elements that were mixed.
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(nanquantile(tensor<float>({inf, nan, inf}), 0.3).item<float>(), inf);
  const Tensor y = tensor<float>({4, nan, 3, 2});
  EXPECT_EQ(grad(nanquantile(y, 0.25), y).to_vector<float>(), (Floats{0, 0, 0.5f, 0.5f}));
}

TEST(Order, SortsInsideCompiledFunctions) {
  auto best = compile([](Tensor x) { return topk(x * 2.0, 2).values; });
  EXPECT_EQ(best(tensor<float>({1, 5, 3})).to_vector<float>(), (Floats{10, 6}));
  EXPECT_EQ(best(tensor<float>({7, 5, 9})).to_vector<float>(), (Floats{18, 14}));
}

TEST(Indexing, OfEqualIndicesTheLastOneWins) {
  const Tensor x = zeros({4}), at = tensor<std::int32_t>({2, 0, 2, 2, 9}), u = tensor<float>({1, 2, 3, 4, 5});
  EXPECT_EQ(scatter(x, 0, at, u).to_vector<float>(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(index_copy(x, 0, at, u).to_vector<float>(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(grad(sum(scatter(x, 0, at, u) * tensor<float>({1, 2, 3, 4})), u).to_vector<float>(),
            (Floats{0, 1, 0, 3, 0}));
  EXPECT_EQ(put(x, tensor<std::int32_t>({-1, -1}), tensor<float>({7, 8})).to_vector<float>(), (Floats{0, 0, 0, 8}));
}

TEST(Indexing, ReductionsOfAPlaceDoNotSeeOthers) {
  // A NaN or an infinity in one place stays there.
  const Tensor at = tensor<std::int32_t>({0, 1, 0, 2, 1}), u = tensor<float>({INFINITY, 2, NAN, 3, 4});
  const Floats product = scatter_reduce(ones({3}), 0, at, u, ScatterReduction::prod).to_vector<float>();
  EXPECT_TRUE(std::isnan(product[0]));
  EXPECT_EQ(product[1], 8);
  EXPECT_EQ(product[2], 3);
  const Floats least = scatter_reduce(ones({3}), 0, at, u, ScatterReduction::amin).to_vector<float>();
  EXPECT_TRUE(std::isnan(least[0]));
  EXPECT_EQ(least[1], 1);
}

TEST(SizedOps, ACompiledFunctionNeedsASize) {
  const Tensor x = tensor<float>({0, 3, 0, 5});
  const auto traced = [&](auto op) {
    return message_of_call([&] { compile([&](Tensor v) { return op(v); })(x).eval(); });
  };
  EXPECT_NE(traced([](const Tensor& v) { return nonzero(v); }).find("nonzero: the size of its result is not known"),
            std::string::npos);
  EXPECT_NE(traced([](const Tensor& v) { return masked_select(v, v > 0.0); }).find("give a size"), std::string::npos);
  EXPECT_NE(traced([](const Tensor& v) { return unique(v).values; }).find("unique: "), std::string::npos);
  EXPECT_NE(traced([](const Tensor& v) { return bincount(cast(v, DType::i32)); }).find("bincount: "),
            std::string::npos);
  auto chosen = compile([](Tensor v) { return masked_select(v, v > 0.0, 3); });
  EXPECT_EQ(chosen(x).to_vector<float>(), (Floats{3, 5, 0}));
  EXPECT_EQ(chosen(x - 1.0).to_vector<float>(), (Floats{2, 4, 0}));
  EXPECT_EQ(nonzero(x, 3).to_vector<std::int32_t>(), (Ints{1, 3, -1}));
  EXPECT_EQ(bincount(tensor<std::int32_t>({1, 5, 1}), {}, 0, 3).to_vector<std::int32_t>(), (Ints{0, 2, 0}));
  const auto [values, inverse, counts] = unique(tensor<float>({2, 1, 2}), 3);
  EXPECT_EQ(values.to_vector<float>(), (Floats{1, 2, 0}));
  EXPECT_EQ(inverse.to_vector<std::int32_t>(), (Ints{1, 0, 1}));
  EXPECT_EQ(counts.to_vector<std::int32_t>(), (Ints{1, 2, 0}));
}

TEST(SizedOps, ChosenElementsPassGradients) {
  const Tensor x = tensor<float>({1, -2, 3});
  EXPECT_EQ(grad(sum(masked_select(x, x > 0.0) * 2.0), x).to_vector<float>(), (Floats{2, 0, 2}));
}

// Mean and deviation of many draws, within five of the deviations that they have themselves.
void expect_moments(const Tensor& draws, double mean_of, double deviation) {
  const auto [d, m] = std_mean(cast(draws, DType::f64));
  const double n = static_cast<double>(draws.numel());
  EXPECT_NEAR(m.item<double>(), mean_of, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(d.item<double>(), deviation, 0.02 * deviation);
}

TEST(Distributions, HaveTheirMeansAndDeviations) {
  manual_seed(3);
  constexpr Extent kDraws = 100000;
  expect_moments(exponential({kDraws}, 4), 0.25, 0.25);
  expect_moments(gumbel({kDraws}, 1, 2), 1 + 2 * 0.5772156649, 2 * 1.2825498302);
  expect_moments(randint(-3, 4, {kDraws}), 0, 2);
  expect_moments(bernoulli(full({kDraws}, 0.3)), 0.3, std::sqrt(0.21));
  expect_moments(rand_like(zeros({kDraws}), -1, 1), 0, 1 / std::sqrt(3.0));
  expect_moments(randn_like(zeros({kDraws}), 2, 3), 2, 3);
  // The variance between -2 and 2 deviations is 1 - 4 phi(2) / (2 Phi(2) - 1).
  expect_moments(truncated_normal({kDraws}, 5, 3, -1, 11), 5, 3 * 0.8796256610);
  const Tensor tail = truncated_normal({kDraws}, 0, 1, 1, 1.5);
  EXPECT_GE(amin(tail).item<float>(), 1);
  EXPECT_LE(amax(tail).item<float>(), 1.5f);
  expect_moments(tail, 1.2243387, 0.1423690);
}

TEST(Distributions, PermutationsHaveEachNumberOnce) {
  manual_seed(3);
  for (const Extent n : {0, 1, 10, 1000}) {
    Ints p = randperm(n).to_vector<std::int32_t>(), wanted(static_cast<std::size_t>(n));
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_TRUE(n < 10 || p != wanted);
    std::sort(p.begin(), p.end());
    EXPECT_EQ(p, wanted);
  }
}

TEST(Distributions, DrawsFollowTheirWeights) {
  manual_seed(3);
  const Tensor weights = tensor<float>({1, 0, 3, 6, 2, 2, 0, 0}, {2, 4});
  constexpr Extent kDraws = 20000;
  const Tensor drawn = multinomial(weights, kDraws, /*replacement=*/true);
  for (const Extent line : {0, 1}) {
    const Floats counts = cast(bincount(select(drawn, 0, line), {}, 4), DType::f32).to_vector<float>();
    const Floats shares = line == 0 ? Floats{0.1f, 0, 0.3f, 0.6f} : Floats{0.5f, 0.5f, 0, 0};
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(counts[i] / kDraws, shares[i], shares[i] == 0 ? 0 : 0.02) << line << " " << i;
  }
  // Without replacement every one that has a weight, and the heavy ones first.
  const Tensor many = expand(select(weights, 0, 0), {2000, 4});
  const Ints first = select(multinomial(many, 3), 1, 0).to_vector<std::int32_t>();
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 3)) / 2000, 0.6, 0.05);
  Ints all = multinomial(select(weights, 0, 0), 3).to_vector<std::int32_t>();
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (Ints{0, 2, 3}));
}

TEST(Distributions, CategoriesFollowTheirLogits) {
  manual_seed(3);
  const Tensor logits = expand(tensor<float>({0, std::log(3.0f), -INFINITY, std::log(6.0f)}), {20000, 4});
  const Floats counts = cast(bincount(categorical(logits), {}, 4), DType::f32).to_vector<float>();
  const Floats shares = {0.1f, 0.3f, 0, 0.6f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / 20000, shares[i], shares[i] == 0 ? 0 : 0.02) << i;
}

TEST(Distributions, RandomSlopesAreWithinTheirBounds) {
  manual_seed(3);
  const Tensor x = expand(tensor<float>({-1, 2}), {5000, 2});
  const Tensor y = rrelu(x, 0.2, 0.6).eval();
  const Floats below = (-select(y, 1, 0)).to_vector<float>();
  double total = 0;
  for (const float v : below) {
    EXPECT_TRUE(v >= 0.2f && v <= 0.6f) << v;
    total += v;
  }
  EXPECT_NEAR(total / 5000, 0.4, 0.01);
  EXPECT_EQ(amin(select(y, 1, 1)).item<float>(), 2);
  EXPECT_FLOAT_EQ(rrelu(x, 0.2, 0.6, false).to_vector<float>()[0], -0.4f);
  const Tensor leaf = full({100}, -1);
  const Tensor out = rrelu(leaf, 0.2, 0.6);
  for (const float v : (grad(sum(out), leaf) + out).to_vector<float>())
    EXPECT_FLOAT_EQ(v, 0);  // the slope that was drawn
}

TEST(Making, RangesOfNumbers) {
  EXPECT_EQ(arange(2, 9, 3).to_vector<std::int32_t>(), (Ints{2, 5, 8}));
  EXPECT_EQ(arange(1, 0, -0.25).to_vector<float>(), (Floats{1, 0.75f, 0.5f, 0.25f}));
  EXPECT_EQ(linspace(0, 1, 5).to_vector<float>(), (Floats{0, 0.25f, 0.5f, 0.75f, 1}));
  EXPECT_EQ(linspace(0, 0.1, 1001).to_vector<float>().back(), 0.1f);
  EXPECT_EQ(eye(2).to_vector<float>(), (Floats{1, 0, 0, 1}));
}

}  // namespace
}  // namespace weft::test
