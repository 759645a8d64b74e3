// Caches of keys and values: kernels against the decompositions that define them, types of storage, writes in place.
#include "weft/inference.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/backend.hpp"
#include "base/half.hpp"
#include "graph/node.hpp"
#include "runtime/devices.hpp"
#include "runtime/noise.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

std::vector<float> noise(std::uint32_t stream, Extent count) { return test::noise(stream, count, 7); }
Tensor noise_tensor(std::uint32_t stream, const Shape& shape) {
  return tensor<float>(std::span<const float>(noise(stream, shape.numel())), shape);
}

/// In primitives, on the same device.
struct Decomposed {
  Decomposed() { compile_settings().fused_composites = false; }
  ~Decomposed() { compile_settings().fused_composites = true; }
};

struct AttentionCase {
  const char* name;
  Extent heads, kv_heads, width, rows;
  std::vector<std::int32_t> first, length;
  CacheAttentionOptions options = {};
  bool has_sinks = false, has_slopes = false;

  CacheAttentionOptions all_options() const {
    CacheAttentionOptions all = options;
    if (has_sinks) all.sinks = noise_tensor(5, {heads}) * 3.0;
    if (has_slopes) all.slopes = abs(noise_tensor(6, {heads}));
    return all;
  }
};

std::vector<std::int32_t> count_up(std::int32_t from, std::int32_t count) {
  std::vector<std::int32_t> list;
  for (std::int32_t i = 0; i < count; ++i) list.push_back(from + i);
  return list;
}
std::vector<std::int32_t> repeat(std::int32_t value, std::size_t count) { return std::vector(count, value); }

std::vector<AttentionCase> attention_cases() {
  return {
      {"one token", 3, 1, 64, 40, {5}, {20}},
      {"one token, many stretches", 4, 2, 64, 1200, {100}, {1000}},
      {"odd width and groups of five", 5, 1, 20, 30, {0, 0}, {7, 8}},
      {"prefill", 6, 2, 64, 80, repeat(0, 48), count_up(1, 48)},
      {"prefill after a prefix", 6, 2, 32, 300, repeat(0, 40), count_up(201, 40)},
      {"padding", 2, 2, 16, 32, repeat(0, 12), {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0}},
      {"sequences of a batch", 2, 1, 32, 96, {0, 32, 64}, {3, 30, 11}},
      {"window", 4, 2, 32, 64, repeat(0, 20), count_up(30, 20), {.window = 8}},
      {"window of one token", 4, 4, 32, 64, {0}, {50}, {.window = 16}},
      {"soft cap", 4, 2, 32, 64, repeat(0, 20), count_up(1, 20), {.scale = 0.7, .soft_cap = 1.5}},
      {"soft cap, one token", 4, 2, 32, 64, {3}, {40}, {.soft_cap = 0.5}},
      {"a scale", 2, 2, 16, 64, {0}, {33}, {.scale = -0.4}},
      {"ring, one token", 4, 2, 32, 64, {20}, {50}, {.window = 16, .ring = 24}},
      {"ring, many stretches", 4, 2, 16, 800, {90}, {1500}, {.window = 600, .ring = 700}},
      {"ring, prefill from its start", 4, 2, 32, 64, repeat(8, 20), count_up(1, 20), {.window = 8, .ring = 32}},
      {"ring, prefill over its end", 4, 2, 32, 64, repeat(8, 20), count_up(50, 20), {.window = 8, .ring = 32}},
      {"ring, shorter than what a run sees", 6, 2, 16, 40, repeat(3, 40), count_up(70, 40), {.window = 9, .ring = 11}},
      {"ring, sequences of a batch and padding",
       2,
       1,
       32,
       80,
       {0, 24, 48, 0},
       {3, 100, 24, 0},
       {.window = 9, .ring = 24}},
      {"sinks, one token", 4, 2, 32, 64, {3}, {40}, {}, true},
      {"sinks, many stretches", 4, 2, 64, 1200, {100}, {1000}, {}, true},
      {"sinks, prefill, a window", 4, 2, 32, 64, repeat(0, 20), count_up(1, 20), {.window = 8}, true},
      {"sinks, padding", 2, 2, 16, 32, repeat(0, 12), {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0}, {}, true},
      {"sinks, a ring", 4, 2, 32, 64, repeat(8, 20), count_up(50, 20), {.window = 8, .ring = 32}, true},
      {"slopes, one token", 4, 2, 32, 64, {3}, {40}, {}, false, true},
      {"slopes, many stretches", 4, 2, 64, 1200, {100}, {1000}, {}, false, true},
      {"slopes, prefill", 6, 2, 32, 80, repeat(0, 48), count_up(1, 48), {.scale = 0.3}, false, true},
      {"slopes, a soft cap", 4, 2, 32, 64, repeat(5, 20), count_up(9, 20), {.soft_cap = 1.5}, false, true},
      {"slopes and sinks, a ring", 4, 2, 32, 64, {20}, {50}, {.window = 16, .ring = 24}, true, true},
      {"slopes and sinks, a batch", 2, 1, 32, 96, {0, 32, 64}, {3, 30, 11}, {}, true, true},
  };
}

TEST(CacheAttention, KernelComputesItsDecomposition) {
  for (const AttentionCase& c : attention_cases()) {
    SCOPED_TRACE(c.name);
    const auto tokens = static_cast<Extent>(c.first.size());
    const Tensor q = noise_tensor(1, {tokens, c.heads, c.width}), k = noise_tensor(2, {c.rows, c.kv_heads * c.width}),
                 v = noise_tensor(3, {c.rows, c.kv_heads * c.width});
    const Tensor y = cache_attention(q, k, v, tensor(c.first), tensor(c.length), c.kv_heads, c.all_options());
    const std::vector<float> fused = y.to_vector<float>();
    const Decomposed decomposed;
    const Tensor again = cache_attention(q, k, v, tensor(c.first), tensor(c.length), c.kv_heads, c.all_options());
    const std::vector<float> parts = (again + 0.0).to_vector<float>();
    ASSERT_EQ(fused.size(), parts.size());
    for (std::size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(fused[i], parts[i], 2e-6) << "element " << i;
  }
}

TEST(CacheAttention, DecompositionIsAttentionOfEachQuery) {
  const Extent tokens = 5, heads = 4, kv_heads = 2, width = 8, rows = 12;
  const auto q = noise(1, tokens * heads * width), k = noise(2, rows * kv_heads * width),
             v = noise(3, rows * kv_heads * width);
  const std::vector<std::int32_t> first = {0, 0, 4, 4, 0}, length = {1, 6, 8, 2, 0};
  const std::vector<float> sinks = {-1, 0.5, 2, 9}, slopes = {0.25, 0, 1, 0.5};
  const Tensor y = cache_attention(
      tensor<float>(std::span(q), {tokens, heads, width}), tensor<float>(std::span(k), {rows, kv_heads * width}),
      tensor<float>(std::span(v), {rows, kv_heads * width}), tensor(first), tensor(length), kv_heads,
      {.window = 5, .soft_cap = 2, .sinks = tensor(sinks), .slopes = tensor(slopes)});
  const std::vector<float> values = y.to_vector<float>();
  for (Extent t = 0; t < tokens; ++t)
    for (Extent h = 0; h < heads; ++h) {
      const Extent g = h / (heads / kv_heads),
                   end = first[static_cast<std::size_t>(t)] + length[static_cast<std::size_t>(t)];
      const Extent begin = std::max<Extent>(first[static_cast<std::size_t>(t)], end - 5);
      std::vector<double> weights;
      double total = std::exp(double{sinks[static_cast<std::size_t>(h)]});
      for (Extent j = begin; j < end; ++j) {
        double dot = 0;
        for (Extent c = 0; c < width; ++c)
          dot += q[static_cast<std::size_t>((t * heads + h) * width + c)] *
                 k[static_cast<std::size_t>((j * kv_heads + g) * width + c)];
        weights.push_back(std::exp(2 * std::tanh(dot / std::sqrt(8.0) / 2) -
                                   slopes[static_cast<std::size_t>(h)] * static_cast<double>(end - 1 - j)));
        total += weights.back();
      }
      for (Extent c = 0; c < width; ++c) {
        double sum = 0;
        for (Extent j = begin; j < end; ++j)
          sum += weights[static_cast<std::size_t>(j - begin)] / total *
                 v[static_cast<std::size_t>((j * kv_heads + g) * width + c)];
        EXPECT_NEAR(values[static_cast<std::size_t>((t * heads + h) * width + c)], sum, 1e-6);
      }
    }
}

TEST(CacheAttention, StorageTypesAreReadAsTheyWereRounded) {
  const Extent rows = 70, kv_heads = 2, width = 32, heads = 4;
  for (const CacheType type : {CacheType::f16, CacheType::q8})
    for (const Extent tokens : {Extent{2}, Extent{20}}) {
      const Tensor k = noise_tensor(2, {rows, kv_heads * width}), v = noise_tensor(3, {rows, kv_heads * width});
      std::vector<float> rounded[2] = {k.to_vector<float>(), v.to_vector<float>()};
      for (auto& list : rounded)
        for (std::size_t b = 0; b < list.size(); b += 32) {
          float largest = 0;
          for (std::size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(list[i]));
          for (std::size_t i = b; i < b + 32; ++i)
            list[i] = type == CacheType::f16 ? f32_from_f16(f16_from_f32(list[i]))
                                             : std::nearbyint(list[i] * (127 / largest)) * (largest / 127);
        }
      const Tensor places = arange(rows);
      const Tensor kept_k = write_rows(empty_cache(rows, kv_heads * width, type), k, places, type),
                   kept_v = write_rows(empty_cache(rows, kv_heads * width, type), v, places, type);
      const Tensor q = noise_tensor(1, {tokens, heads, width});
      const Tensor first = zeros({tokens}, DType::i32), length = arange(tokens) + 40.0;
      const auto got = cache_attention(q, kept_k, kept_v, first, length, kv_heads, {.type = type}).to_vector<float>();
      const auto wanted =
          cache_attention(q, tensor<float>(std::span<const float>(rounded[0]), k.shape()),
                          tensor<float>(std::span<const float>(rounded[1]), v.shape()), first, length, kv_heads)
              .to_vector<float>();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-6);
    }
}

TEST(CacheAttention, AFewQueriesHaveTheBitsOfEachAlone) {
  // A token and fifteen guesses, which must not change what is written: eight bits make much of a sum in another order.
  const Extent tokens = 16, kv_heads = 2, heads = 6, width = 64, rows = 700;
  const Tensor q = noise_tensor(1, {tokens, heads, width}), k = noise_tensor(2, {rows, kv_heads * width}),
               v = noise_tensor(3, {rows, kv_heads * width});
  const Tensor of_heads = abs(noise_tensor(5, {heads}));
  for (const CacheAttentionOptions& options :
       {CacheAttentionOptions{}, {.window = 40}, {.soft_cap = 2}, {.sinks = of_heads}, {.slopes = of_heads}}) {
    const Tensor first = zeros({tokens}, DType::i32), length = arange(tokens) + 600.0;
    const auto together = cache_attention(q, k, v, first, length, kv_heads, options).to_vector<float>();
    std::vector<float> alone;
    for (Extent t = 0; t < tokens; ++t)
      for (const float value :
           cache_attention(narrow(q, 0, t, 1), k, v, narrow(first, 0, t, 1), narrow(length, 0, t, 1), kv_heads, options)
               .to_vector<float>())
        alone.push_back(value);
    EXPECT_EQ(together, alone);
  }
}

TEST(CacheAttention, ARingHoldsWhatAWindowSees) {
  const Extent positions = 150, kv_heads = 2, width = 32, window = 40, ring = 64, chunk = 25;
  const Tensor k = noise_tensor(2, {positions, kv_heads * width}), v = noise_tensor(3, {positions, kv_heads * width});
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    // The ring begins at row 7.
    Tensor whole[] = {empty_cache(positions, kv_heads * width, type), empty_cache(positions, kv_heads * width, type)};
    Tensor rings[] = {empty_cache(ring + 9, kv_heads * width, type), empty_cache(ring + 9, kv_heads * width, type)};
    for (Extent at = 0; at < positions; at += chunk)
      for (const Extent tokens : {chunk, Extent{1}}) {
        const Tensor position = arange(tokens) + static_cast<double>(at + chunk - tokens),
                     place = elementwise("remainder", {position, scalar_like(ring, position)}) + 7.0;
        for (const int which : {0, 1}) {
          const Tensor given = narrow(which == 0 ? k : v, 0, at + chunk - tokens, tokens);
          whole[which] = write_rows(whole[which], given, position, type);
          rings[which] = write_rows(rings[which], given, place, type);
        }
        const Tensor q = noise_tensor(4, {tokens, 2 * kv_heads, width}), first = zeros({tokens}, DType::i32);
        const auto wanted =
            cache_attention(q, whole[0], whole[1], first, position + 1.0, kv_heads, {.type = type, .window = window});
        const auto got = cache_attention(q, rings[0], rings[1], first + 7.0, position + 1.0, kv_heads,
                                         {.type = type, .window = window, .ring = ring});
        EXPECT_EQ(got.to_vector<float>(), wanted.to_vector<float>()) << at;
      }
  }
}

TEST(WriteRows, ReplacesRowsAndDropsWhatLiesOutside) {
  const Tensor cache = noise_tensor(1, {6, 4}), rows = noise_tensor(2, {5, 4});
  const Tensor at = tensor<std::int32_t>({3, -1, 0, 6, 3});
  std::vector<float> wanted = cache.to_vector<float>();
  const std::vector<float> given = rows.to_vector<float>();
  std::copy_n(given.begin() + 2 * 4, 4, wanted.begin());
  std::copy_n(given.begin() + 4 * 4, 4, wanted.begin() + 3 * 4);
  EXPECT_EQ(write_rows(cache, rows, at).to_vector<float>(), wanted);
  const Decomposed decomposed;
  EXPECT_EQ((write_rows(cache, rows, at) * 1.0 + 0.0).to_vector<float>(), wanted);
}

TEST(WriteRows, AssignedInACompiledFunctionItWritesInPlace) {
  Variable cache(empty_cache(1000, 8), "cache", false);
  eval_pending();
  auto step = compile([&](Tensor row, Tensor at) {
    cache.assign(write_rows(cache, row, at));
    return sum(cache.value());
  });
  EXPECT_EQ(step(ones({1, 8}), tensor<std::int32_t>({17})).item<float>(), 8);
  const void* before = runtime::buffer_of(*cache.value().node()).get();
  EXPECT_EQ(step(ones({1, 8}), tensor<std::int32_t>({18})).item<float>(), 16);
  EXPECT_EQ(runtime::buffer_of(*cache.value().node()).get(), before);
  EXPECT_EQ(step.compiled().trace_count(), 1u);
  // A value that somebody holds does not change.
  const Tensor held = cache.value();
  EXPECT_EQ(step(ones({1, 8}), tensor<std::int32_t>({19})).item<float>(), 24);
  EXPECT_EQ(sum(held).item<float>(), 16);
}

// Nothing is written beside the cache: here it is the middle of an array.
TEST(WriteRows, NothingIsWrittenBesideTheCache) {
  constexpr int kRows = 5, kWidth = 16, kBefore = 4;
  const auto memory =
      std::make_shared<std::vector<float>>(static_cast<std::size_t>((kBefore + kRows + kBefore) * kWidth), 7.0f);
  std::fill_n(memory->begin() + kBefore * kWidth, kRows * kWidth, 0.0f);
  const std::span<const float> middle(memory->data() + kBefore * kWidth, kRows * kWidth);
  Variable cache(Tensor(runtime::data_node(DType::f32, {kRows, kWidth}, kCpu,
                                           cpu::borrow_memory(memory, std::as_bytes(middle), true))),
                 "cache", false);
  auto step = compile([&](Tensor rows, Tensor at) {
    cache.assign(write_rows(cache, rows, at));
    return sum(cache.value());
  });
  const Tensor at = tensor<std::int32_t>({0, kRows, -1, kRows + 1, kRows - 1, -kBefore});
  EXPECT_EQ(step(ones({6, kWidth}), at).item<float>(), 2 * kWidth);
  for (std::size_t i = 0; i < memory->size(); ++i) {
    const int row = static_cast<int>(i) / kWidth;
    const bool is_beside = row < kBefore || row >= kBefore + kRows;
    const bool is_written = row == kBefore || row == kBefore + kRows - 1;
    ASSERT_EQ((*memory)[i], is_beside ? 7.0f : is_written ? 1.0f : 0.0f) << "element " << i;
  }
}

template <class E, class F>
void expect_error(F f, std::string_view part) {
  try {
    f();
    ADD_FAILURE() << "no error: " << part;
  } catch (const E& error) {
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(Cache, ErrorsNameWhatDoesNotFit) {
  const Tensor q = zeros({2, 4, 32}), k = zeros({9, 64}), at = zeros({2}, DType::i32), rows = zeros({2, 64});
  expect_error<ShapeError>([&] { (void)cache_attention(q, k, k, at, at, 3); }, "not a multiple of 3");
  expect_error<ShapeError>([&] { (void)cache_attention(q, k, k, at, zeros({3}, DType::i32), 2); }, "length is not [2]");
  expect_error<ShapeError>([&] { (void)cache_attention(q, k, zeros({8, 64}), at, at, 2); }, "differ in rows");
  expect_error<ShapeError>([&] { (void)cache_attention(q, zeros({9, 60}), k, at, at, 2); }, "keys is not [rows, 64]");
  expect_error<DTypeError>([&] { (void)cache_attention(q, k, k, at, at, 2, {.type = CacheType::f16}); },
                           "a cache of f16 is f16");
  expect_error<DTypeError>([&] { (void)cache_attention(q, k, k, zeros({2}), at, 2); }, "first takes i32");
  expect_error<UsageError>([&] { (void)cache_attention(q, k, k, at, at, 2, {.window = -1}); }, "negative");
  expect_error<ShapeError>([&] { (void)cache_attention(q, k, k, at, at, 2, {.sinks = zeros({1})}); }, "sinks is not [");
  expect_error<ShapeError>([&] { (void)cache_attention(q, k, k, at, at, 2, {.slopes = zeros({9})}); },
                           "slopes is not [");
  for (const CacheAttentionOptions& options : {CacheAttentionOptions{.ring = 8},
                                               {.window = 9, .ring = 8},
                                               {.window = 2, .ring = 10},
                                               {.window = 2, .ring = -1}})
    expect_error<UsageError>([&] { (void)cache_attention(q, k, k, at, at, 2, options); },
                             fmt::format("a ring of {} rows with a window of {}", options.ring, options.window));
  expect_error<ShapeError>([&] { (void)write_rows(k, zeros({2, 32}), at); }, "not [rows, 32]");
  expect_error<DTypeError>([&] { (void)write_rows(k, zeros({2, 64}, DType::i32), at); }, "rows takes f32");
  expect_error<ShapeError>([&] { (void)empty_cache(4, 33, CacheType::f16); }, "multiples of 2");
  expect_error<ShapeError>([&] { (void)empty_cache(4, 48, CacheType::q8); }, "multiples of 32");
  const Tensor blocks = empty_cache(4, 32, CacheType::q8), number = tensor<std::int32_t>({0}, {1});
  expect_error<ShapeError>(
      [&] {
        (void)cache_attention(zeros({1, 2, 16}), blocks, blocks, number, number, 2, {.type = CacheType::q8});
      },
      "share blocks of 32");
  Variable x(zeros({2, 4, 32}), "x");
  expect_error<UsageError>([&] { (void)grad(sum(cache_attention(x, k, k, at, at, 2)), {x}); }, "has no gradient");
}

}  // namespace
}  // namespace weft
