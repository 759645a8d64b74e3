// Conformance of everything but single elementwise ops: reductions, views, products, gathers, attention, random graphs.
#include <random>

#include "compile/random_graph.hpp"
#include "conformance/device_run.hpp"
#include "graph/attention.hpp"
#include "ops/table.hpp"
#include "weft/grad.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"

namespace weft::test {
namespace {

class Kernels : public Conformance {
 protected:
  Tensor random(Arguments& arguments, const Shape& shape, double lo = -1, double hi = 1, DType type = DType::f32) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i) {
      const double v = std::uniform_real_distribution<double>(lo, hi)(random_);
      values.push_back(type == DType::f32 ? v : std::round(v));
    }
    return arguments.make(shape, std::move(values), type);
  }
  std::mt19937_64 random_{11};
};

TEST_F(Kernels, EveryReductionOverEveryKindOfAxes) {
  const Shape shapes[] = {{7}, {5, 37}, {3, 1, 9}, {2, 3, 129}, {300, 3}, {1, 1}};
  for (const ops::ReduceRow& row : ops::reduce_rows())
    for (const Shape& shape : shapes)
      for (const Axes& axes : {Axes{}, Axes{0}, Axes{-1}, Axes{0, -1}}) {
        const bool position = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
        if (axes.size() == 2 && (shape.rank() == 1 || position)) continue;
        SCOPED_TRACE(
            fmt::format("{} of {} over [{}]", std::string_view(row.name), shape.to_string(), fmt::join(axes, ", ")));
        Arguments arguments;
        const double margin = std::min(row.tested.hi, 1.1);  // products of many stay finite
        const Tensor x = random(arguments, shape, std::max(row.tested.lo, -margin), margin);
        expect_like_reference({reduce(row.name, x, axes)}, arguments, 1e-4, 1e-6);
      }
}

TEST_F(Kernels, ReductionsOfIntegersAndBools) {
  for (DType type : {DType::i32, DType::u32, DType::boolean})
    for (const ops::ReduceRow& row : ops::reduce_rows()) {
      if (!ops::allows(row.dtypes, type)) continue;
      SCOPED_TRACE(fmt::format("{} {}", std::string_view(row.name), name_of(type)));
      Arguments arguments;
      const Tensor x = random(arguments, {4, 33}, type == DType::i32 ? -5 : 0, type == DType::boolean ? 1 : 5, type);
      expect_like_reference({reduce(row.name, x, {1}), reduce(row.name, x, {0})}, arguments, 1e-5, 1e-6);
    }
}

TEST_F(Kernels, ReductionsOfNothingAndOfLongRows) {
  Arguments arguments;
  const Tensor none = random(arguments, {3, 0}), rows = random(arguments, {2, 70001}),
               columns = random(arguments, {5001, 17});
  expect_like_reference({sum(none, {1}), prod(none, {1}), sum(none, {0}), mean(none, {1}), reduce("any", none, {1}),
                         reduce("all", none, {1})},
                        arguments);
  expect_like_reference({sum(rows, {1}), amax(rows, {1}), argmin(rows, 1), sum(rows)}, arguments, 1e-4, 1e-4);
  expect_like_reference({sum(columns, {0}), amax(columns, {0}), argmax(columns, 0), mean(columns)}, arguments, 1e-4,
                        1e-4);
}

TEST_F(Kernels, ExtremesOfNaNAndTies) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  Arguments arguments;
  const Tensor x = arguments.make({6, 4}, {1,    nan,  3,    nan,  2,   2,   1,   2,   -inf, inf, inf,  0,
                                           -inf, -inf, -inf, -inf, nan, nan, nan, nan, -0.0, 0,   -0.0, 0});
  const Tensor wide = arguments.make({1, 300}, [&] {
    std::vector<double> v(300, 1);
    v[170] = nan;
    v[260] = 5;
    return v;
  }());
  expect_like_reference(
      {amax(x, {1}), amin(x, {1}), argmax(x, 1), argmin(x, 1), amax(x, {0}), argmax(x, 0), sum(x, {1}), softmax(x, 1)},
      arguments);
  expect_like_reference({amax(wide, {1}), argmax(wide, 1), amin(wide, {1}), sum(wide, {1})}, arguments);
}

TEST_F(Kernels, MoreRowsThanOneRowOfWorkgroups) {
  Arguments arguments;
  const Extent rows = 70001;
  const Tensor x = random(arguments, {rows, 3});
  expect_like_reference({sum(x, {1}), softmax(x, 1)}, arguments);
  const Tensor a = random(arguments, {rows, 1, 2}), b = random(arguments, {rows, 2, 1});
  expect_like_reference({matmul(a, b)}, arguments);
}

TEST_F(Kernels, FewProductsNormsAndSums) {
  Arguments arguments;
  const Tensor a = random(arguments, {5, 33}), b = random(arguments, {33, 19}), w = random(arguments, {19});
  expect_like_reference({matmul(a, b), layer_norm(matmul(a, b), w, w), sum(a, {0}), softmax(a, 1)}, arguments, 1e-4,
                        1e-5);
  const Tensor q = random(arguments, {1, 2, 5, 8});
  expect_like_reference({attention(q, q, q)}, arguments, 1e-4, 1e-5);
}

TEST_F(Kernels, ProductsOfOddSizesInEveryForm) {
  for (const auto& [m, k, n] : {std::array<Extent, 3>{1, 1, 1},
                                {1, 7, 1},
                                {3, 5, 2},
                                {17, 33, 9},
                                {64, 64, 64},
                                {65, 3, 130},
                                {128, 65, 31},
                                {1, 300, 65},
                                {70, 1, 70},
                                {4, 0, 5},
                                {0, 3, 4}})
    for (const bool left : {false, true})
      for (const bool right : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{}x{}x{}{}{}", m, k, n, left ? ", left transposed" : "", right ? ", right transposed" : ""));
        Arguments arguments;
        const Tensor a = left ? transpose(random(arguments, {k, m})) : random(arguments, {m, k});
        const Tensor b = right ? transpose(random(arguments, {n, k})) : random(arguments, {k, n});
        const Tensor bias = random(arguments, {n});
        expect_like_reference({matmul(a, b), elementwise("gelu", {matmul(a, b) + bias})}, arguments, 1e-4, 1e-5);
      }
  Arguments arguments;
  const Tensor x = random(arguments, {3, 1, 5, 7}), y = random(arguments, {2, 7, 6}),
               i = random(arguments, {5, 7}, -9, 9, DType::i32);
  expect_like_reference({matmul(x, y), matmul(i, transpose(i)), matmul(select(select(x, 0, 0), 0, 0), select(y, 0, 1))},
                        arguments, 1e-4, 1e-5);
}

TEST_F(Kernels, LargeProducts) {
  Arguments arguments;
  const Tensor a = random(arguments, {130, 700}), b = random(arguments, {700, 140});
  expect_like_reference({matmul(a, b), matmul(transpose(b), transpose(a))}, arguments, 1e-4, 1e-4);
}

TEST_F(Kernels, Views) {
  Arguments arguments;
  const Tensor x = random(arguments, {3, 4, 5});
  using Pads = std::vector<std::pair<Extent, Extent>>;
  expect_like_reference(
      {permute(x, {2, 0, 1}), reshape(transpose(x), {6, 10}), flip(x, {0, 2}), slice(x, 2, -1, kEnd, -2),
       pad(x, Pads{{1, 0}, {0, 2}, {1, 1}}),
       pad(reshape(pad(x, Pads{{0, 0}, {1, 0}, {0, 1}}), {3, 30}), Pads{{0, 1}, {2, 0}}),
       expand(unsqueeze(x, 1), {3, 2, 4, 5}), concat(std::vector<Tensor>{x, x * 2.0, flip(x, {1})}, 1), tril(x),
       triu(x, 1), slice(x, 1, 2, 2)},
      arguments, 0, 0);
}

TEST_F(Kernels, GathersAndScatters) {
  Arguments arguments;
  const Tensor table = random(arguments, {11, 7}), indices = random(arguments, {4, 6}, -2, 12, DType::i32),
               x = random(arguments, {3, 8, 5});
  const Tensor along = random(arguments, {3, 4, 5}, -1, 8, DType::i32), to = random(arguments, {40}, -1, 9, DType::i32),
               updates = random(arguments, {40, 33});
  expect_like_reference({embedding(table, indices), take_along_axis(x, along, 1),
                         take_along_axis(transpose(x), transpose(along), 2), one_hot(indices, 12)},
                        arguments, 0, 0);
  expect_like_reference({scatter_add(to, updates, 9), grad(sum(embedding(table * 2.0, indices)), table)}, arguments,
                        1e-5, 1e-5);
  // Gradients of gathers with an index an element: of many lines along the axis, and of few.
  const Tensor many = random(arguments, {40, 9}), taken = random(arguments, {40, 12}, -1, 9, DType::i32),
               few = random(arguments, {2, 9, 3}), of_few = random(arguments, {2, 12, 3}, -1, 9, DType::i32),
               weights = random(arguments, {40, 12});
  expect_like_reference({grad(sum(take_along_axis(many, taken, 1) * weights), many),
                         grad(sum(square(take_along_axis(few, of_few, 1))), few)},
                        arguments, 1e-5, 1e-5);
  const Tensor none = arguments.make({0}, {}, DType::i32), nothing = arguments.make({0, 3}, {});
  expect_like_reference({scatter_add(none, nothing, 4), embedding(table, none)}, arguments);
}

TEST_F(Kernels, AttentionForwardAndBackward) {
  for (const bool causal : {false, true})
    for (const auto& [queries, keys, width] : {std::array<Extent, 3>{1, 1, 1},
                                               {3, 5, 4},
                                               {17, 17, 16},
                                               {33, 65, 32},
                                               {64, 64, 64},
                                               {5, 9, 128},
                                               {5, 3, 8},    // causal: the first two queries see no key
                                               {70, 2, 16},  // whole blocks of them
                                               {5, 3, 130},  // too wide for kernels
                                               {4, 0, 8},
                                               {2, 130, 20}}) {
      // Software adapters take minutes to compile.
      if (!is_cpu() && ((!causal && (queries * keys * width > 20000 || keys < queries)) || queries > 64)) continue;
      SCOPED_TRACE(fmt::format("{} queries, {} keys, width {}{}", queries, keys, width, causal ? ", causal" : ""));
      Arguments arguments;
      const Tensor q = random(arguments, {2, 2, queries, width}), k = random(arguments, {2, 2, keys, width}),
                   v = random(arguments, {2, 2, keys, width});
      const Tensor y = attention(q, k, v, causal), weights = random(arguments, y.shape());
      const Tensor inputs[] = {q, k, v};
      std::vector<Tensor> outputs = grad(sum(y * weights), inputs);
      outputs.push_back(y);
      expect_like_reference(outputs, arguments, 2e-4, 1e-5);
    }
}

// Masks, lengths, windows, shared heads and dropped shares, each alone and together, against the parts in f64.
TEST_F(Kernels, AttentionWithMasksLengthsAndDropout) {
  enum class Mask { none, bools, added, of_keys, of_heads };
  struct Case {
    const char* name;
    Extent batch, heads, kv_heads, queries, keys, width;
    bool causal;
    Extent window;
    Mask mask;
    int sequences;  // in each entry; 0: lengths are not given
    bool key_lengths;
    double dropout;
  };
  constexpr Case kCases[] = {
      {"all together", 2, 4, 2, 37, 41, 12, true, 19, Mask::added, 0, true, 0.3},
      {"sequences, dropout", 2, 2, 2, 40, 40, 16, true, 0, Mask::none, 3, false, 0.2},
      {"bools", 2, 2, 1, 21, 35, 8, false, 0, Mask::bools, 0, false, 0},
      // The others on the CPU only: software adapters take seconds to compile each.
      {"a mask of keys", 3, 2, 2, 70, 70, 20, true, 0, Mask::of_keys, 0, false, 0},
      {"a mask of heads, a window", 1, 4, 4, 130, 90, 33, false, 17, Mask::of_heads, 0, false, 0},
      {"sequences of both sides, a window", 2, 4, 2, 90, 140, 8, true, 9, Mask::none, 4, true, 0},
      {"sequences, all keys of each", 2, 2, 2, 65, 65, 24, false, 0, Mask::bools, 2, false, 0.5},
      {"lengths of keys", 4, 2, 1, 1, 300, 64, true, 0, Mask::none, 0, true, 0},
      {"one query, dropout", 1, 3, 1, 1, 77, 40, false, 0, Mask::added, 0, false, 0.9},
      {"as PyTorch aligns", 1, 2, 2, 33, 17, 200, true, 0, Mask::none, 0, false, 0.1},
  };
  for (std::size_t n = 0; n < (is_cpu() ? std::size(kCases) : 3); ++n) {
    const Case& c = kCases[n];
    SCOPED_TRACE(c.name);
    Arguments arguments;
    const Tensor q = random(arguments, {c.batch, c.heads, c.queries, c.width}),
                 k = random(arguments, {c.batch, c.kv_heads, c.keys, c.width}),
                 v = random(arguments, {c.batch, c.kv_heads, c.keys, c.width});
    AttentionOptions options{.causal = c.causal, .window = c.window};
    Tensor seed;
    switch (c.mask) {
      case Mask::none: break;
      case Mask::bools: options.mask = random(arguments, {c.queries, c.keys}, 0, 1, DType::boolean); break;
      case Mask::added: {
        std::vector<double> values;
        for (Extent i = 0; i < c.batch * c.queries * c.keys; ++i)
          values.push_back(i < c.keys || i % 7 == 3 ? -std::numeric_limits<double>::infinity()
                                                    : std::uniform_real_distribution<double>(-2, 2)(random_));
        options.mask = arguments.make({c.batch, 1, c.queries, c.keys}, std::move(values));
        break;
      }
      case Mask::of_keys: options.mask = random(arguments, {c.batch, 1, 1, c.keys}, 0, 1, DType::boolean); break;
      case Mask::of_heads: options.mask = random(arguments, {c.heads, 1, 1}); break;
    }
    const auto lengths_of = [&](Extent all, Extent n_each) {
      std::vector<double> values;
      for (Extent b = 0; b < c.batch; ++b)
        for (Extent i = 0; i < n_each; ++i)
          values.push_back(b == 1 && i == 0 ? 0
                                            : std::floor(static_cast<double>(all) / static_cast<double>(n_each)) -
                                                  static_cast<double>(i));
      return arguments.make({c.batch, n_each}, std::move(values), DType::i32);
    };
    if (c.sequences > 0) options.lengths = lengths_of(c.queries, c.sequences);
    if (c.key_lengths) options.key_lengths = lengths_of(c.keys, std::max(c.sequences, 1));
    // A seed of the test's own, because random state is not an argument.
    if (c.dropout > 0) seed = arguments.make({2}, {77, 6}, DType::u32);
    const Tensor y = graph::call(
        graph::public_attention_row(), {q, k, v, options.mask, options.lengths, options.key_lengths, seed, {}, {}},
        graph::PublicAttentionAttributes{options.causal, 0, options.window, c.dropout}, Where::current());
    const Tensor inputs[] = {q, k, v}, weights = random(arguments, y.shape());
    std::vector<Tensor> outputs = grad(sum(y * weights), inputs);
    outputs.push_back(y);
    expect_like_reference(outputs, arguments, 2e-4, 1e-5);
    if (c.mask != Mask::added || !is_cpu()) continue;
    expect_like_reference({grad(sum(y * weights), options.mask)}, arguments, 2e-4, 1e-5);
  }
}

TEST_F(Kernels, AttentionWithSinksAndSlopes) {
  struct Case {
    const char* name;
    Extent heads, kv_heads, queries, keys, width, window;
    bool causal, sinks, slopes;
  };
  constexpr Case kCases[] = {{"both, a window", 4, 2, 37, 41, 12, 19, true, true, true},
                             {"sinks to both sides", 2, 2, 70, 33, 16, 0, false, true, false},
                             {"slopes to both sides", 2, 1, 21, 35, 8, 0, false, false, true}};
  for (std::size_t n = 0; n < (is_cpu() ? std::size(kCases) : 1); ++n) {
    const Case& c = kCases[n];
    SCOPED_TRACE(c.name);
    Arguments arguments;
    const Tensor q = random(arguments, {2, c.heads, c.queries, c.width}),
                 k = random(arguments, {2, c.kv_heads, c.keys, c.width}),
                 v = random(arguments, {2, c.kv_heads, c.keys, c.width});
    AttentionOptions options{.causal = c.causal, .window = c.window};
    std::vector<Tensor> inputs = {q, k, v};
    if (c.sinks) inputs.push_back(options.sinks = random(arguments, {c.heads}, -1, 2));
    if (c.slopes) inputs.push_back(options.slopes = random(arguments, {c.heads}, 0, 1));
    const Tensor y = attention(q, k, v, options), weights = random(arguments, y.shape());
    std::vector<Tensor> outputs = grad(sum(y * weights), inputs);
    outputs.push_back(y);
    expect_like_reference(outputs, arguments, 3e-4, 2e-5);
  }
}

TEST_F(Kernels, AttentionAndCachesWithoutKernelsOfTheirOwn) {
  compiler::Target plain = target();
  plain.has_kernel = nullptr;
  Arguments arguments;
  const Tensor q = random(arguments, {1, 2, 5, 8}), k = random(arguments, {1, 2, 7, 8}),
               v = random(arguments, {1, 2, 7, 8}), cache = random(arguments, {9, 8}), rows = random(arguments, {3, 8}),
               at = arguments.make({3}, {4, -1, 0}, DType::i32), heads = random(arguments, {2, 4, 4}),
               first = arguments.make({2}, {0, 2}, DType::i32), length = arguments.make({2}, {6, 3}, DType::i32);
  const Tensor written = write_rows(cache, rows, at), y = attention(q, k, v, true);
  const std::vector<Tensor> outputs{
      y, written, cache_attention(heads, written, cache, first, length, 2, {.window = 4, .soft_cap = 2})};
  const Results expected = evaluate(outputs, arguments), actual = run(outputs, arguments, plain);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    expect_close(actual[o], expected[o], 2e-5, 2e-6, fmt::format("output {} in primitives", o));
  const Results whole = run(outputs, arguments);
  for (std::size_t o = 0; o < outputs.size(); ++o)
    expect_close(whole[o], expected[o], 2e-5, 2e-6, fmt::format("output {} from kernels", o));
}

TEST_F(Kernels, RandomNumbersAreTheSameBitsEverywhere) {
  Arguments arguments;
  const Tensor seed = arguments.make({}, {12345}, DType::u32), draw = arguments.make({}, {7}, DType::u32);
  const Extent n = 1000;
  scalar::Expression philox{3,
                            {{.op = scalar::Op::input, .slot = 0},
                             {.op = scalar::Op::input, .slot = 1},
                             {.op = scalar::Op::input, .slot = 2},
                             {.op = scalar::Op::philox, .type = DType::u32, .a = 0, .b = 1, .c = 2}}};
  const Tensor bits(
      graph::map(philox, {seed.node(), draw.node(), graph::iota({n}, 0, DType::u32, seed.device())}, "philox"));
  const auto actual = run({bits}, arguments)[0];
  for (Extent i = 0; i < n; ++i)
    ASSERT_EQ(actual[static_cast<std::size_t>(i)],
              static_cast<double>(reference::philox(12345, 7, static_cast<std::uint32_t>(i))))
        << i;
}

bool makes_nan(const std::vector<std::vector<double>>& results) {
  for (const auto& values : results)
    for (double v : values)
      if (std::isnan(v)) return true;
  return false;
}

TEST_F(Kernels, RandomGraphs) {
  const std::uint64_t count =
      std::strtoull(environment("WEFT_TEST_GRAPHS", is_cpu() ? "300" : "40").c_str(), nullptr, 10);
  const std::uint64_t first = std::strtoull(environment("WEFT_TEST_SEED", "1").c_str(), nullptr, 10);
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Arguments arguments;
    RandomGraph random(seed, RandomGraph::Smooth::yes);
    if (seed % 2 == 0) random.draw_windows();
    const std::vector<Tensor> outputs = random.make(arguments);
    // A graph that makes NaN out of finite numbers (the variance of one element: 0 times infinity) meets shader compilers
    // that fold x - x and 0 * x (Mesa's do); SpecialValues holds NaN and infinity to their rules.
    if (!is_cpu() && makes_nan(evaluate(outputs, arguments))) continue;
    expect_like_reference(outputs, arguments, 2e-3, 1e-4);
  }
}

}  // namespace
}  // namespace weft::test
