// What language models ask of WebGPU, on lavapipe: weights in blocks, caches, draws, a whole model. The CPU gives the
// wanted values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "llm/engine.hpp"
#include "llm/tiny_model.hpp"
#include "runtime/devices.hpp"
#include "runtime/noise.hpp"
#include "runtime/open_device.hpp"
#include "runtime/packed_matrix.hpp"
#include "weft/compile.hpp"
#include "weft/inference.hpp"
#include "weft/llm.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

class WebgpuLanguage : public testing::Test {
 protected:
  void SetUp() override { test::open_device("webgpu:0", device_); }
  Device device_ = kCpu;
};

using test::noise;
Tensor floats(const std::vector<float>& values, const Shape& shape, Device device) {
  return tensor_from_bytes(values.data(), shape, DType::f32, device);
}
Tensor integers(const std::vector<std::int32_t>& values, const Shape& shape, Device device) {
  return tensor_from_bytes(values.data(), shape, DType::i32, device);
}

void expect_close(const Tensor& got, const Tensor& wanted, double tolerance) {
  const auto a = got.to_vector<float>(), b = wanted.to_vector<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
}

struct Blocks {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // the values of the blocks
};
Blocks blocks_of(BlockType type, Extent n, Extent k) {
  const std::vector<float> values = noise(1, n * k);
  Blocks blocks{std::vector<std::byte>(bytes_for(type, static_cast<std::uint64_t>(n * k), "test")),
                std::vector<float>(values.size())};
  quantise(type, values, blocks.bytes);
  dequantise(type, blocks.bytes, blocks.values);
  return blocks;
}

TEST_F(WebgpuLanguage, ProductsAreThoseOfTheValuesForEveryType) {
  for (const BlockFormat& format : block_formats()) {
    if (!can_pack(format.type, device_) || !format.can_quantise()) continue;
    const Extent k = format.block_elements == 256 ? 512 : 96, n = 21;
    const Blocks blocks = blocks_of(format.type, n, k);
    const Tensor packed = pack_matrix(format.type, blocks.bytes, {n, k}, device_);
    const Tensor dense = floats(blocks.values, {n, k}, kCpu);
    std::vector<std::byte> back(blocks.bytes.size());
    packed.copy_to(back.data(), back.size());
    std::vector<float> values(blocks.values.size());
    dequantise(format.type, back, values);
    EXPECT_EQ(values, blocks.values) << format.name;
    if (format.type != BlockType::mxfp4) {  // there -0 comes back as 0
      EXPECT_EQ(back, blocks.bytes) << format.name;
    }
    for (const Extent rows : {1, 3, 11}) {
      SCOPED_TRACE(std::string(format.name) + ", rows " + std::to_string(rows));
      const std::vector<float> x = noise(2, rows * k);
      // Of more rows tensor cores take halves, unless the product is exact.
      expect_close(packed_linear(floats(x, {rows, k}, device_), packed, {}, rows > 8),
                   linear(floats(x, {rows, k}, kCpu), dense), 3e-5);
    }
    SCOPED_TRACE(format.name);
    const std::vector<std::int32_t> rows = {20, 0, -1, 7, 21, 7};
    std::vector<float> wanted;
    for (const std::int32_t row : rows)
      for (Extent i = 0; i < k; ++i)
        wanted.push_back(row < 0 || row >= n ? 0.0f : blocks.values[static_cast<std::size_t>(row * k + i)]);
    expect_close(packed_rows(packed, integers(rows, {6}, device_)), floats(wanted, {6, k}, kCpu), 1e-6);
  }
}

TEST_F(WebgpuLanguage, PlainTypesTakeRowsOfAnyLength) {
  for (const BlockType type : {BlockType::f16, BlockType::bf16, BlockType::f32})
    for (const Extent k : {1, 7, 36, 70}) {
      SCOPED_TRACE(k);
      const Extent n = 5;
      std::vector<std::byte> bytes(block_format(type).block_bytes * static_cast<std::size_t>(n * k));
      const std::vector<float> given = noise(1, n * k);
      quantise(type, given, bytes);
      std::vector<float> values(given.size());
      dequantise(type, bytes, values);
      const Tensor packed = pack_matrix(type, bytes, {n, k}, device_);
      for (const Extent rows : {2, 9}) {
        const std::vector<float> x = noise(2, rows * k);
        expect_close(packed_linear(floats(x, {rows, k}, device_), packed),
                     linear(floats(x, {rows, k}, kCpu), floats(values, {n, k}, kCpu)), 1e-5);
      }
      expect_close(packed_rows(packed, integers({4, 1}, {2}, device_)),
                   concat(std::vector<Tensor>{narrow(floats(values, {n, k}, kCpu), 0, 4, 1),
                                              narrow(floats(values, {n, k}, kCpu), 0, 1, 1)},
                          0),
                   0);
    }
}

TEST_F(WebgpuLanguage, EpiloguesJoinTheProduct) {
  const Extent n = 64, k = 64;
  const Blocks blocks = blocks_of(BlockType::q4_1, n, k);
  const Tensor packed = pack_matrix(BlockType::q4_1, blocks.bytes, {n, k}, device_);
  for (const Extent rows : {1, 5, 40}) {
    const std::vector<float> x = noise(2, rows * k), b = noise(3, n);
    const auto of = [&](Device device, auto product) {
      const Tensor y = floats(x, {rows, k}, device);
      return silu(product(y)) * y + y;
    };
    expect_close(
        of(device_, [&](const Tensor& y) { return packed_linear(y, packed, floats(b, {n}, device_), rows > 8); }),
        of(kCpu,
           [&](const Tensor& y) {
             return linear(y, floats(blocks.values, {n, k}, kCpu), floats(b, {n}, kCpu));
           }),
        3e-5);
  }
}

TEST_F(WebgpuLanguage, AGatedUnitIsOneDispatch) {
  const Extent n = 24, k = 256;
  for (const BlockType type : {BlockType::q4_1, BlockType::q6_k, BlockType::f16})
    for (const Extent rows : {1, 4, 8}) {
      const Blocks up = blocks_of(type, n, k);
      const Tensor packed = pack_matrix(type, up.bytes, {n, k}, device_);
      const Tensor other = pack_matrix(type, up.bytes, {n, k}, device_);
      const std::vector<float> x = noise(2, rows * k);
      auto step = compile([&](Tensor y) { return packed_linear(y, other) * silu(packed_linear(y, packed) + 1.0); });
      const Tensor at = floats(x, {rows, k}, device_);
      const Tensor y = linear(floats(x, {rows, k}, kCpu), floats(up.values, {n, k}, kCpu));
      expect_close(step(at), y * silu(y + 1.0), 1e-4);
      const std::string source = step.compiled().explain(true);
      const auto entry = source.find("@compute");
      EXPECT_EQ(source.find("@compute", entry + 1), std::string::npos) << source;
    }
}

// The second expert would make every value none, if it were asked. Few rows, and many, which become tiles.
TEST_F(WebgpuLanguage, ExpertsThatAreNotChosenTakeNoPart) {
  const Extent n = 64, k = 96;
  for (const auto& [type, rows] :
       {std::pair(BlockType::q4_1, Extent{1}), {BlockType::f16, Extent{5}}, {BlockType::q8_0, Extent{70}}}) {
    SCOPED_TRACE(testing::Message() << name_of(type) << ", rows " << rows);
    const Blocks up = blocks_of(type, n, k), down = blocks_of(type, k, n);
    const auto with_broken = [&](const Blocks& blocks, const Shape& shape) {
      std::vector<std::byte> both = blocks.bytes;
      both.resize(2 * blocks.bytes.size(), std::byte{0xFF});
      return pack_matrix(type, both, shape, device_);
    };
    const Tensor ups = with_broken(up, {2, n, k}), downs = with_broken(down, {2, k, n});
    std::vector<std::int32_t> numbers;
    std::vector<float> counts, x = noise(2, rows * k);
    for (Extent i = 0; i < rows; ++i) {
      numbers.push_back(i % 3 == 1 ? -1 : 0);
      counts.push_back(i % 3 == 1 ? 0.0f : 1.0f);
    }
    const std::vector<float> scale = noise(3, k);
    Compiled mixed([&](std::span<const Tensor> a) {
      const Tensor y = rms_norm(a[0], a[2], 1e-5);
      const Tensor inner = swiglu(expert_linear(y, ups, a[1], true), expert_linear(y, ups, a[1], true));
      return std::vector{expert_linear(inner, downs, a[1], true)};
    });
    const Tensor of_rows = tensor_from_bytes(numbers.data(), {rows}, DType::i32, device_);
    const Tensor arguments[] = {floats(x, {rows, k}, device_), of_rows, floats(scale, {k}, device_)};
    const Tensor y = rms_norm(floats(x, {rows, k}, kCpu), floats(scale, {k}, kCpu), 1e-5);
    const Tensor one = linear(y, floats(up.values, {n, k}, kCpu));
    expect_close(mixed(arguments)[0],
                 linear(swiglu(one, one), floats(down.values, {k, n}, kCpu)) * floats(counts, {rows, 1}, kCpu), 3e-4);
  }
}

TEST_F(WebgpuLanguage, ANormIsComputedByTheProductsThatReadIt) {
  const Extent n = 24, k = 96;
  for (const Extent rows : {1, 5, 8, 9})
    for (const bool is_kept : {false, true}) {
      const Blocks weights = blocks_of(BlockType::q4_1, n, k);
      const Tensor one = pack_matrix(BlockType::q4_1, weights.bytes, {n, k}, device_),
                   two = pack_matrix(BlockType::q4_1, weights.bytes, {n, k}, device_);
      const std::vector<float> x = noise(2, rows * k), scale = noise(3, k);
      Compiled step([&](std::span<const Tensor> a) {
        const Tensor y = rms_norm(a[0], a[1] + 1.0, 1e-5);
        std::vector<Tensor> results = {packed_linear(y, one, {}, rows > 8), packed_linear(y, two, {}, rows > 8) + 2.0};
        if (is_kept) results.push_back(y);
        return results;
      });
      const Tensor arguments[] = {floats(x, {rows, k}, device_), floats(scale, {k}, device_)};
      const std::vector<Tensor> got = step(arguments);
      const Tensor y = rms_norm(floats(x, {rows, k}, kCpu), floats(scale, {k}, kCpu) + 1.0, 1e-5);
      const Tensor product = linear(y, floats(weights.values, {n, k}, kCpu));
      expect_close(got[0], product, 1e-4);
      expect_close(got[1], product + 2.0, 1e-4);
      if (is_kept) expect_close(got[2], y, 1e-5);
      const std::string plan = step.explain(true);
      EXPECT_EQ(plan.find("a computed") != std::string::npos, rows <= 8 && !is_kept) << plan;
    }
}

struct AttentionCase {
  Extent tokens, heads, kv_heads, width, rows;
  CacheType type = CacheType::f32;
  Extent window = 0;
  double soft_cap = 0;
  Extent ring = 0;
};

void check_attention(const AttentionCase& c, const std::vector<std::int32_t>& first,
                     const std::vector<std::int32_t>& length, Device device) {
  const Extent width = c.kv_heads * c.width;
  const auto of = [&](Device d) {
    const Extent written = std::min<Extent>(c.rows, 220);
    std::vector<std::int32_t> places;
    for (Extent i = 0; i < written; ++i) places.push_back(static_cast<std::int32_t>((i * 17 + 3) % c.rows));
    places[0] = -1;
    places.back() = static_cast<std::int32_t>(c.rows);
    const auto cache = [&](std::uint32_t stream) {
      return write_rows(empty_cache(c.rows, width, c.type, d),
                        floats(noise(stream, written * width), {written, width}, d), integers(places, {written}, d),
                        c.type);
    };
    return cache_attention(floats(noise(3, c.tokens * c.heads * c.width), {c.tokens, c.heads, c.width}, d), cache(1),
                           cache(2), integers(first, {c.tokens}, d), integers(length, {c.tokens}, d), c.kv_heads,
                           {.type = c.type, .scale = 0.7, .window = c.window, .soft_cap = c.soft_cap, .ring = c.ring});
  };
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, width " << c.width << ", rows " << c.rows);
  // Rounding to f16 may differ by the last place.
  expect_close(of(device), of(kCpu), c.type == CacheType::f32 ? 1e-5 : c.type == CacheType::f16 ? 2e-3 : 2e-2);
}

TEST_F(WebgpuLanguage, AttentionOverACache) {
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    SCOPED_TRACE(static_cast<int>(type));
    check_attention({1, 6, 2, 64, 200, type}, {3}, {190}, device_);
    check_attention({3, 4, 4, type == CacheType::q8 ? 32 : 16, 70, type}, {0, 30, 69}, {1, 40, 1}, device_);
    check_attention({4, 9, 3, 32, 40, type}, {0, 0, 0, 5}, {0, 40, 41, -3}, device_);
    check_attention({2, 4, 2, 32, 90, type, 20, 0, 31}, {9, 40}, {100, 7}, device_);  // rings
    check_attention({10, 4, 2, 32, 90, type, 20, 0, 32}, {9, 9, 9, 9, 9, 50, 50, 58, 58, 58},
                    {30, 31, 32, 33, 70, 1, 2, 200, 0, 21}, device_);
  }
  check_attention({2, 3, 1, 5, 33}, {0, 2}, {33, 20}, device_);
  check_attention({2, 8, 1, 6, 33, CacheType::f16}, {0, 2}, {33, 20}, device_);
  check_attention({5, 4, 2, 16, 90, CacheType::f32, 7}, {0, 0, 0, 0, 9}, {90, 3, 7, 8, 60}, device_);
  check_attention({2, 4, 2, 16, 90, CacheType::f32, 0, 0.5}, {0, 9}, {90, 60}, device_);
  check_attention({2, 2, 2, 160, 60}, {0, 9}, {60, 33}, device_);  // several groups of channels a thread
  const std::vector<std::int32_t> from = {0, 0, 3, 5, 0, 0, 0, 8, 0, 0}, count = {90, 3, 7, 8, 60, 0, 82, 1, 5, 70};
  check_attention({10, 4, 2, 16, 90}, from, count, device_);  // many queries
  check_attention({10, 4, 4, 20, 90, CacheType::f32, 7, 0.5}, from, count, device_);
  check_attention({1, 2, 1, 16, 4200}, {5}, {4000}, device_);  // split over workgroups
  check_attention({1, 2, 1, 16, 4200}, {5}, {9}, device_);
}

TEST_F(WebgpuLanguage, OfEqualPlacesTheLastCounts) {
  const auto of = [](Device d) {
    return write_rows(zeros({4, 6}, DType::f32, d), floats(noise(1, 30), {5, 6}, d), integers({2, 0, 2, 9, 2}, {5}, d));
  };
  expect_close(of(device_), of(kCpu), 0);
}

TEST_F(WebgpuLanguage, WhatIsComputedForACacheIsWrittenByTheSameDispatch) {
  struct Form {
    Extent tokens, width;
    CacheType type;
  };
  // Rows of f16 that fill workgroups, and rows that cross them.
  for (const Form& form : {Form{1, 6, CacheType::f32}, Form{5, 6, CacheType::f32}, Form{5, 8, CacheType::f16},
                           Form{70, 24, CacheType::f16}}) {
    const bool halves = form.type == CacheType::f16;
    SCOPED_TRACE(fmt::format("{} rows of {}, {}", form.tokens, form.width, halves ? "f16" : "f32"));
    const Extent rows = form.tokens + 2;
    const auto of = [&](Device d, std::string* source) {
      Variable cache(cast(floats(noise(9, rows * form.width), {rows, form.width}, d), halves ? DType::f16 : DType::f32),
                     "cache", false);
      auto step = compile([&](Tensor given, Tensor at) {
        const Tensor turned = flip(reshape(given, {form.tokens, 2, form.width / 2}), {1});
        cache.assign(write_rows(cache, reshape(turned * 2.0 + 1.0, {form.tokens, form.width}), at, form.type));
        return at + at;
      });
      std::vector<std::int32_t> places(static_cast<std::size_t>(form.tokens));
      for (std::size_t t = 0; t < places.size(); ++t) places[t] = static_cast<std::int32_t>(t * 5 % 61) - 1;
      places.back() = places.front() = 4;  // the last one counts
      std::vector<float> values = noise(8, form.tokens * form.width);
      values[0] = 1e6f;  // saturates in f16
      step(floats(values, {form.tokens, form.width}, d), integers(places, {form.tokens}, d));
      if (source) *source = step.compiled().explain(true);
      return cast(cache.value(), DType::f32);
    };
    std::string source;
    expect_close(of(device_, &source), of(kCpu, nullptr), halves ? 2e-3 : 1e-6);
    // One kernel or two merged, but no dispatch that only writes.
    const auto entry = source.find("@compute");
    EXPECT_NE(entry, std::string::npos);
    EXPECT_EQ(source.find("@compute", entry + 1), std::string::npos) << source;
  }
}

// The product, the rotation of pairs of its columns, and the write into a cache.
TEST_F(WebgpuLanguage, ARotatedProductAndItsWriteAreOneDispatch) {
  const Extent n = 64, k = 64, heads = 2;
  const Blocks blocks = blocks_of(BlockType::q8_0, n, k);
  for (const bool halves : {false, true}) {
    const CacheType type = halves ? CacheType::f32 : CacheType::f16;
    const Extent tokens = halves ? 1 : 3, pairs = n / heads / 2;
    const auto of = [&](Device d, std::string* source) {
      const Tensor weight =
          d == kCpu ? floats(blocks.values, {n, k}, d) : pack_matrix(BlockType::q8_0, blocks.bytes, {n, k}, d);
      Variable cache(cast(floats(noise(9, 5 * n), {5, n}, d), type == CacheType::f16 ? DType::f16 : DType::f32),
                     "cache", false);
      const Tensor cosine = floats(noise(3, tokens * pairs), {tokens, pairs}, d),
                   sine = floats(noise(4, tokens * pairs), {tokens, pairs}, d);
      auto step = compile([&](Tensor x, Tensor at) {
        const Tensor y = d == kCpu ? linear(x, weight) : packed_linear(x, weight, {}, true);
        const Tensor all = reshape(y, halves ? Shape{tokens, heads, 2, pairs} : Shape{tokens, heads, pairs, 2});
        const Shape spread = halves ? Shape{tokens, 1, 1, pairs} : Shape{tokens, 1, pairs, 1};
        const Tensor turned = all * reshape(cosine, spread) + flip(all, {halves ? 2 : 3}) * reshape(sine, spread);
        cache.assign(write_rows(cache, reshape(turned, {tokens, n}), at, type));
        return at + at;
      });
      std::vector<std::int32_t> places = {4, 0, 2};
      places.resize(static_cast<std::size_t>(tokens));
      step(floats(noise(8, tokens * k), {tokens, k}, d), integers(places, {tokens}, d));
      if (source) *source = step.compiled().explain(true);
      return cast(cache.value(), DType::f32);
    };
    SCOPED_TRACE(std::string(halves ? "halves, " : "neighbours, ") + (type == CacheType::f16 ? "f16" : "f32"));
    std::string source;
    expect_close(of(device_, &source), of(kCpu, nullptr), type == CacheType::f16 ? 2e-3 : 1e-4);
    // One dispatch, and one for the sum of the places, unless both are phases of one.
    std::size_t dispatches = 0;
    for (std::size_t entry = 0; (entry = source.find("@compute", entry)) != std::string::npos; ++entry) ++dispatches;
    EXPECT_LE(dispatches, 2u) << source;
  }
}

TEST_F(WebgpuLanguage, AMixtureHasTheLogitsOfTheCpu) {
  const std::vector<test::TinyModel> all = test::tiny_models();
  for (const char* weights : {"F16", "F32"}) {
    SCOPED_TRACE(weights);
    test::TemporaryFolder folder;
    test::put(*std::find_if(all.begin(), all.end(), [](const auto& tiny) { return tiny.name == "mixtral"; }), folder,
              weights);
    const std::int32_t token[] = {3};
    const auto logits_on = [&](Device device) {
      return llm::load(folder.path(), {.exact = true, .device = device}).forward(token);
    };
    expect_close(floats(logits_on(device_), {48}, kCpu), floats(logits_on(kCpu), {48}, kCpu), 1e-4);
  }
}

TEST_F(WebgpuLanguage, AModelWritesWhatItWritesOnTheCpu) {
  const std::vector<test::TinyModel> all = test::tiny_models();
  const auto named = [&](std::string_view name) -> const test::TinyModel& {
    return *std::find_if(all.begin(), all.end(), [&](const auto& tiny) { return tiny.name == name; });
  };
  // The last pass of a generation may have written a token too many: the next one goes on from what it ended with.
  const std::vector<std::string> several = {"w3 w14 w15 w9 w2 w6 w5", "w3 w14 w15 w9 w2 w6 w5", "w3 w14 w1",
                                            "w3 w14 w15 w9 w2 w6"};
  struct Case {
    const char* model;
    CacheType cache;
    const char* weights;
    std::vector<std::string> prompts;
  };
  // Of the last one prompt, as software adapters compile each size of pass for long.
  for (const Case& c : {Case{"llama", CacheType::f32, "F32", several}, Case{"llama", CacheType::f16, "F32", several},
                        Case{"phi3 longrope", CacheType::f32, "F32", {"w3"}}}) {
    SCOPED_TRACE(c.model);
    test::TemporaryFolder folder;
    test::put(named(c.model), folder, c.weights);
    const auto tokens_on = [&](Device device) {
      const llm::Model model = llm::load(folder.path(), {.cache = c.cache, .exact = true, .device = device});
      std::vector<llm::GeneratedToken> tokens;
      for (const std::string& prompt : c.prompts)
        for (const Extent count : {20, 1, 2}) {
          const llm::GenerateOptions options{
              .max_tokens = count, .sampling = {.temperature = 0}, .top_log_probabilities = count == 20 ? 2 : 0};
          const llm::Result result = model.generate(prompt, options).result();
          tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
        }
      return tokens;
    };
    const auto got = tokens_on(device_), wanted = tokens_on(kCpu);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].id, wanted[i].id);
      EXPECT_NEAR(got[i].log_probability, wanted[i].log_probability, 1e-4);
      ASSERT_EQ(got[i].top.size(), wanted[i].top.size());
      for (std::size_t j = 0; j < got[i].top.size(); ++j) {
        EXPECT_EQ(got[i].top[j].id, wanted[i].top[j].id);
        EXPECT_NEAR(got[i].top[j].log_probability, wanted[i].top[j].log_probability, 1e-4);
      }
    }
  }
}

// Passes of few tokens only, which lavapipe compiles in seconds.
TEST_F(WebgpuLanguage, AModelWithAWindowGoesAroundItsRing) {
  const test::TemporaryFolder folder;
  test::put(test::tiny_with_window("gemma3_text", {{"num_hidden_layers", 2}}), folder);
  // The ring has 517 rows. Over its end, on from there, a little back with guesses, and so far that all is read again.
  const auto tokens_on = [&](Device device) {
    const llm::Model model = llm::load(folder.path(), {.context = 2048, .exact = true, .device = device});
    std::vector<std::int32_t> text = {7, 3}, ids;
    const auto go_on = [&](std::size_t from, Extent count, Extent draft) {
      text.resize(from);
      const llm::Result result =
          model.generate(text, {.max_tokens = count, .sampling = {.temperature = 0}, .draft = draft}).result();
      ids.push_back(static_cast<std::int32_t>(result.reused_tokens));
      for (const llm::GeneratedToken& token : result.tokens) text.push_back(token.id);
      ids.insert(ids.end(), text.begin(), text.end());
    };
    go_on(2, 530, 0);
    go_on(532, 8, 0);
    go_on(515, 30, 1);
    go_on(2, 4, 0);
    return ids;
  };
  EXPECT_EQ(tokens_on(device_), tokens_on(kCpu));
}

TEST_F(WebgpuLanguage, RingsOfEveryTypeGiveWhatWholeCachesGive) {
  const test::TemporaryFolder folder;
  test::put(test::tiny_with_window("mistral", {{"num_hidden_layers", 1}}), folder);
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    llm::LoadOptions options{.context = 1024, .cache = type, .exact = true, .device = device_};
    llm::detail::Engine ring(folder.path(), options);
    options.whole_cache = true;
    options.device = kCpu;
    llm::detail::Engine whole(folder.path(), options);
    for (std::int32_t i = 0; i < 540; ++i) {
      const llm::detail::PositionedToken step{i * i % 41, i, 0};
      const Tensor got = ring.last_logits({&step, 1}), wanted = whole.last_logits({&step, 1});
      if (i > 500) expect_close(got, wanted, type == CacheType::f32 ? 1e-4 : 2e-2);
    }
  }
}

}  // namespace
}  // namespace weft
