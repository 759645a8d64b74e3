// Attention means the same as one kernel and as what it is made of, also where a query sees no key.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "base/json.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"

namespace weft {
namespace {

using Results = std::vector<std::vector<float>>;

/// The output, and the gradients of its square by q, k and v.
Results attended(Extent queries, Extent keys, bool fused) {
  const bool before = compile_settings().fused_composites;
  compile_settings().fused_composites = fused;
  const auto values = [](const Shape& shape, double phase) {
    return elementwise("sin", {cast(reshape(arange(shape.numel()), shape), DType::f32) * 1.7 + phase});
  };
  const Tensor inputs[] = {values({2, 2, queries, 4}, 0), values({2, 2, keys, 4}, 1), values({2, 2, keys, 4}, 2)};
  const Tensor y = attention(inputs[0], inputs[1], inputs[2]);
  Results results = {y.to_vector<float>()};
  for (const Tensor& g : grad(sum(y * y), inputs)) results.push_back(g.to_vector<float>());
  compile_settings().fused_composites = before;
  return results;
}

TEST(Attention, AQueryThatSeesNoKeyGivesZero) {
  for (const auto& [queries, keys] : {std::array<Extent, 2>{5, 3}, {70, 2}, {3, 0}}) {
    const Results fused = attended(queries, keys, true), parts = attended(queries, keys, false);
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_EQ(fused[i].size(), parts[i].size());
      for (std::size_t e = 0; e < fused[i].size(); ++e) EXPECT_NEAR(fused[i][e], parts[i][e], 1e-5) << i << " " << e;
    }
    for (const Results& results : {fused, parts})
      for (const std::size_t i : {0, 1})  // the output and the gradient by q, [2, 2, T, 4]
        for (Extent head = 0; head < 4; ++head)
          for (Extent e = 0; e < (queries - keys) * 4; ++e)
            EXPECT_EQ(results[i][static_cast<std::size_t>(head * queries * 4 + e)], 0) << i << " " << e;
  }
}

Tensor wave(const Shape& shape, double phase) {
  return elementwise("sin", {cast(reshape(arange(shape.numel()), shape), DType::f32) * 1.7 + phase});
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t e = 0; e < actual.size(); ++e) ASSERT_NEAR(actual[e], expected[e], 2e-5) << what << " " << e;
}

TEST(Attention, PackedSequencesAreLikeEachAlone) {
  const Extent lengths[] = {5, 0, 9, 3};  // and two positions that belong to none
  const Tensor q = wave({1, 2, 19, 4}, 0), k = wave({1, 2, 19, 4}, 1), v = wave({1, 2, 19, 4}, 2), inputs[] = {q, k, v};
  const Tensor packed = attention(q, k, v, {.window = 4, .lengths = tensor<std::int32_t>({5, 0, 9, 3}, {1, 4})});
  const std::vector<Tensor> gradients = grad(sum(packed * packed), inputs);
  Extent first = 0;
  for (const Extent length : lengths) {
    const auto part = [&](const Tensor& x) { return slice(x, 2, first, first + length); };
    if (length > 0) {
      const Tensor alone[] = {detach(part(q)), detach(part(k)), detach(part(v))};
      const Tensor y = attention(alone[0], alone[1], alone[2], {.window = 4});
      expect_near(part(packed).to_vector<float>(), y.to_vector<float>(), "result");
      const std::vector<Tensor> of_part = grad(sum(y * y), alone);
      for (std::size_t i = 0; i < 3; ++i)
        expect_near(part(gradients[i]).to_vector<float>(), of_part[i].to_vector<float>(), "gradient");
    }
    first += length;
  }
  for (const Tensor& x : {packed, gradients[0], gradients[1], gradients[2]})
    for (const float value : slice(x, 2, first).to_vector<float>()) EXPECT_EQ(value, 0);
}

TEST(Attention, KeysOfDifferentLengthsAreLikeACacheOfEach) {
  const Tensor q = wave({2, 2, 3, 4}, 0), k = wave({2, 1, 11, 4}, 1), v = wave({2, 1, 11, 4}, 2);
  const Tensor y = attention(q, k, v, {.key_lengths = tensor<std::int32_t>({11, 7}, {2})});
  for (const auto& [entry, length] : {std::pair<Extent, Extent>{0, 11}, {1, 7}}) {
    const auto of = [&](const Tensor& x) { return slice(x, 0, entry, entry + 1); };
    const Tensor alone = attention(of(q), slice(of(k), 2, 0, length), slice(of(v), 2, 0, length));
    expect_near(of(y).to_vector<float>(), alone.to_vector<float>(), "result");
  }
}

TEST(Attention, AQueryWhoseMaskShowsItNothingGivesZeroAndNoGradient) {
  const Tensor inputs[] = {wave({1, 1, 2, 4}, 0), wave({1, 1, 3, 4}, 1), wave({1, 1, 3, 4}, 2)};
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor masks[] = {elementwise("lt", {tensor<float>({1, 1, 1, 0, 1, 0}, {2, 3}), scalar_like(0.5, inputs[0])}),
                          tensor<float>({-3e38f, -3e38f, static_cast<float>(-inf), 0, 1, 2}, {2, 3})};
  for (const Tensor& mask : masks) {
    const Tensor y = attention(inputs[0], inputs[1], inputs[2], {.causal = false, .mask = mask});
    const std::vector<Tensor> g = grad(sum(y * wave(y.shape(), 3)), inputs);
    for (const Tensor& x : {y, g[0]}) {
      const std::vector<float> values = x.to_vector<float>();
      for (std::size_t e = 0; e < 4; ++e) EXPECT_EQ(values[e], 0) << e;
      for (std::size_t e = 4; e < 8; ++e) EXPECT_NE(values[e], 0) << e;
    }
    for (const Tensor& x : g)
      for (const float value : x.to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
  }
}

// Every element that make_attention.py keeps of a tensor.
void expect_chosen(const Tensor& x, const Json& golden, double tolerance, const std::string& what) {
  const std::vector<float> values = x.to_vector<float>();
  const std::size_t step = std::max<std::size_t>(1, values.size() / 40);
  ASSERT_EQ((values.size() + step - 1) / step, golden.size()) << what;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double wanted = golden[i].get<double>();
    ASSERT_NEAR(static_cast<double>(values[i * step]), wanted, tolerance * std::max(1.0, std::abs(wanted)))
        << what << " " << i;
  }
}

TEST(Attention, SinksAndSlopesAreThoseOfPyTorch) {
  for (const bool fused : {true, false}) {
    const bool before = compile_settings().fused_composites;
    compile_settings().fused_composites = fused;
    for (const Json& c : read_json_file(WEFT_TEST_ATTENTION)) {
      SCOPED_TRACE(c["name"].get<std::string>() + (fused ? ", one kernel" : ", parts"));
      const auto size = [&](const char* key) { return c[key].get<Extent>(); };
      const Extent heads = size("heads"), width = size("width");
      std::vector<Tensor> inputs = {wave({size("batch"), heads, size("queries"), width}, 0),
                                    wave({size("batch"), size("kv_heads"), size("keys"), width}, 1),
                                    wave({size("batch"), size("kv_heads"), size("keys"), width}, 2)};
      AttentionOptions options{.causal = c["causal"].get<bool>(), .window = size("window")};
      if (c["sinks"].get<bool>()) inputs.push_back(options.sinks = wave({heads}, 3));
      if (c["slopes"].get<bool>()) {
        const Tensor root = wave({heads}, 4);
        inputs.push_back(options.slopes = detach(root * root));
      }
      if (!c["lengths"].is_null()) {
        std::vector<std::int32_t> lengths;
        for (const Json& row : c["lengths"])
          for (const Json& each : row) lengths.push_back(each.get<std::int32_t>());
        options.lengths = tensor<std::int32_t>(lengths, {size("batch"), static_cast<Extent>(c["lengths"][0].size())});
      }
      const Tensor y = attention(inputs[0], inputs[1], inputs[2], options);
      expect_chosen(y, c["y"], 1e-4, "result");  // the inputs are sines of numbers in f32
      const std::vector<Tensor> first = grad(sum(y * y * wave(y.shape(), 5)), inputs);
      Tensor squares = zeros({});
      for (std::size_t i = 0; i < first.size(); ++i) {
        expect_chosen(first[i], c["gradients"][i], 5e-4, "gradient " + std::to_string(i));
        squares = squares + sum(first[i] * first[i]);
      }
      const std::vector<Tensor> second = grad(squares, inputs);
      for (std::size_t i = 0; i < second.size(); ++i)
        expect_chosen(second[i], c["second"][i], 2e-3, "second " + std::to_string(i));
    }
    compile_settings().fused_composites = before;
  }
}

// A sequence of thousands of positions, whose slopes the types of half a float cannot hold as they are.
TEST(Attention, SlopesReachFarInNarrowTypes) {
  const Extent keys = 3000;
  const Tensor q = wave({1, 2, 4, 8}, 0), k = wave({1, 2, keys, 8}, 1), v = wave({1, 2, keys, 8}, 2);
  const Tensor slopes = tensor<float>({0.7071f, 0.0011f}, {2});
  for (const DType type : {DType::f16, DType::bf16}) {
    const auto narrow = [&](const Tensor& x) { return cast(x, type); };
    const auto wide = [&](const Tensor& x) { return cast(narrow(x), DType::f32); };
    const std::vector<float> made =
        cast(attention(narrow(q), narrow(k), narrow(v), {.slopes = slopes}), DType::f32).to_vector<float>();
    const std::vector<float> wanted = attention(wide(q), wide(k), wide(v), {.slopes = slopes}).to_vector<float>();
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(made[i], wanted[i], type == DType::f16 ? 2e-3 : 2e-2) << name_of(type) << " " << i;
  }
}

// With values of 1 and one channel a result is the sum of the kept shares.
TEST(Attention, DropoutKeepsSharesAndIsDrawnAnew) {
  const Tensor q = zeros({2, 3, 64, 4}), k = zeros({2, 3, 64, 4}), v = ones({2, 3, 64, 4});
  const auto drawn = [&] { return attention(q, k, v, {.causal = false, .dropout = 0.3}).to_vector<float>(); };
  manual_seed(5);
  const std::vector<float> first = drawn(), second = drawn();
  EXPECT_NE(first, second);
  double mean = 0;
  for (const float x : first) mean += x;
  mean /= static_cast<double>(first.size());
  EXPECT_NEAR(mean, 1, 0.02);  // 2 * 3 * 64 * 64 shares: four deviations are 0.017
  manual_seed(5);
  EXPECT_EQ(drawn(), first);
  auto step = compile([&](Tensor x) { return attention(x, k, v, {.causal = false, .dropout = 0.3}); });
  manual_seed(5);
  EXPECT_EQ(step(q).to_vector<float>(), first);
  EXPECT_EQ(step(q).to_vector<float>(), second) << "a compiled function draws in every run";
  manual_seed(5);
  EXPECT_EQ(attention(q, k, v, {.causal = false, .dropout = 1}).to_vector<float>(),
            std::vector<float>(first.size(), 0));
  EXPECT_THROW(attention(q, k, v, {.dropout = 1.5}), UsageError);
}

}  // namespace
}  // namespace weft
