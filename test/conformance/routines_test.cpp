// Conformance of products with packed weights and of routines, each against its plain reference.
#include <bit>
#include <random>

#include "conformance/device_run.hpp"
#include "graph/cache.hpp"
#include "graph/convolution.hpp"
#include "graph/ctc.hpp"
#include "graph/delta_scan.hpp"
#include "graph/grouped.hpp"
#include "graph/linear_algebra.hpp"
#include "graph/packed.hpp"
#include "graph/poisson.hpp"
#include "graph/polynomials.hpp"
#include "graph/recurrence.hpp"
#include "graph/scatter.hpp"
#include "graph/state_scan.hpp"
#include "reference/routines.hpp"
#include "runtime/packed_matrix.hpp"
#include "weft/inference.hpp"
#include "weft/ops/grouped.hpp"
#include "weft/ops/linear_algebra.hpp"
#include "weft/ops/order.hpp"

namespace weft::test {
namespace {

/// The reference with kernels for all that it has a meaning for, instead of primitives.
compiler::Target whole_target() {
  compiler::Target target = reference_target();
  target.has_kernel = [](const graph::Call&) { return true; };
  target.computed_rows_max = 8;
  return target;
}

/// Every type that devices have products with.
const std::vector<DType> kPackedTypes = [] {
  std::vector<DType> types = {DType::f32, DType::f16, DType::bf16};
  std::copy_if(std::begin(kAllDTypes), std::end(kAllDTypes), std::back_inserter(types), is_block);
  return types;
}();

class Routines : public Conformance {
 protected:
  std::vector<double> noise(Extent count, double lo = -1, double hi = 1) {
    std::vector<double> values;
    for (Extent i = 0; i < count; ++i) values.push_back(std::uniform_real_distribution<double>(lo, hi)(random_));
    return values;
  }

  /// The arguments of one side: the reference reads blocks as files have them, the device its own packing.
  struct Side {
    Arguments arguments;
    bool is_device = false;
  };
  Tensor weights(Side& side, BlockType type, Extent n, Extent k, const std::vector<double>& values) {
    return weights(side, type, Shape{n, k}, values);
  }
  Tensor weights(Side& side, BlockType type, const Shape& shape, const std::vector<double>& values) {
    const std::vector<float> floats(values.begin(), values.end());
    std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(shape.numel()), "test"));
    quantise(type, floats, blocks);
    std::vector<double> words = reference::words_of(blocks);
    if (side.is_device) {
      const Tensor matrix = pack_matrix(type, blocks, shape, device());
      std::vector<std::uint32_t> packed(packed_size(matrix) / 4);
      backend().download(*runtime::buffer_of(*matrix.node()), 0, static_cast<Extent>(packed.size()), DType::u32,
                         packed.data());
      words.assign(packed.begin(), packed.end());
    }
    return side.arguments.make_packed(shape, std::move(words), type);
  }

  /// The values that `make(side)` gives, on the device and by the reference, whose kernels are then in `kernels_`.
  template <class Make>
  std::pair<Results, Results> both(Make make) {
    Side device, slow;
    device.is_device = true;
    const std::vector<Tensor> on_device = make(device), by_reference = make(slow);
    compiler::Request request;
    for (const Tensor& t : by_reference) request.outputs.push_back(t.node());
    request.may_overwrite.assign(by_reference.size(), nullptr);
    kernels_ = compiler::compile(request, whole_target(), {}).plan.kernels;
    return {run(on_device, device.arguments), evaluate(by_reference, slow.arguments, {}, whole_target())};
  }
  template <class Make>
  void expect_same(Make make, double relative = 2e-5, double absolute = 2e-6) {
    const auto [actual, expected] = both(make);
    for (std::size_t o = 0; o < expected.size(); ++o)
      expect_close(actual[o], expected[o], relative, absolute, fmt::format("output {}", o));
  }

  std::vector<kernel::Kernel> kernels_;
  std::mt19937_64 random_{17};
};

TEST_F(Routines, PackedProductsWithEpilogues) {
  const Extent n = 40, k = 256;
  for (const DType type : kPackedTypes)
    for (const Extent m : {Extent{1}, Extent{5}, Extent{20}}) {
      if (!is_cpu() && (type != BlockType::q8_0 || m == 1)) continue;  // software adapters take seconds for each shader
      SCOPED_TRACE(fmt::format("{} rows of {}", m, name_of(type)));
      const auto x = noise(m * k), w = noise(n * k), bias = noise(n);
      expect_same([&](Side& side) {
        const Tensor rows = side.arguments.make({m, k}, x), words = weights(side, type, n, k, w);
        return std::vector<Tensor>{silu(packed_linear(rows, words, {}, true) + side.arguments.make({n}, bias))};
      });
      ASSERT_EQ(kernels_.size(), 1u);
    }
}

// A gated unit of experts, with rows that share a token's, and one without an expert. Each expert has a bias.
TEST_F(Routines, ProductsOfExperts) {
  const Extent experts = 5, n = 48, k = 256, used = 2;
  for (const DType type : kPackedTypes)
    for (const Extent tokens : {Extent{1}, Extent{7}, Extent{60}}) {
      if (!is_cpu() && (type != BlockType::q8_0 || tokens == 7)) continue;  // software adapters take seconds a shader
      SCOPED_TRACE(fmt::format("{} tokens, {}", tokens, name_of(type)));
      const auto x = noise(tokens * k), gate = noise(experts * n * k), up = noise(experts * n * k),
                 down = noise(experts * k * 256), bias = noise(experts * n), wide = noise(tokens * used * 256);
      std::vector<double> numbers;
      for (Extent i = 0; i < tokens * used; ++i) numbers.push_back(static_cast<double>((i * i + i / 3) % experts));
      numbers[1] = -1;
      if (tokens > 1) numbers[5] = static_cast<double>(experts);
      expect_same([&](Side& side) {
        const Tensor rows = side.arguments.make({tokens, k}, x),
                     chosen = side.arguments.make({tokens, used}, numbers, DType::i32);
        const Shape shape{experts, n, k};
        const Tensor biases = reshape(
            embedding(side.arguments.make({experts, n}, bias), reshape(chosen, {tokens * used})), {tokens, used, n});
        const Tensor g = expert_linear(rows, weights(side, type, shape, gate), chosen, true) + biases,
                     u = expert_linear(rows, weights(side, type, shape, up), chosen, true);
        const Tensor other = side.arguments.make({tokens, used, 256}, wide);
        return std::vector<Tensor>{swiglu(g, u),
                                   expert_linear(other, weights(side, type, {experts, k, 256}, down), chosen, true)};
      });
      EXPECT_EQ(std::ranges::count_if(kernels_,
                                      [](const kernel::Kernel& k) {
                                        const auto* product = std::get_if<kernel::PackedMatmulKernel>(&k);
                                        return product && product->experts;
                                      }),
                3);
    }
}

// GPUs may round rows to 16 bits, and CPUs to 8.
TEST_F(Routines, PackedProductsOfRoundedRows) {
  struct Case {
    BlockType type;
    Extent m, n, k;
    bool computed;
  };
  for (const Case& c : {Case{BlockType::q8_0, 1, 8200, 256, false}, Case{BlockType::q4_0, 1, 2048, 1056, false},
                        Case{BlockType::q4_k, 1, 4096, 512, true}, Case{BlockType::q6_k, 1, 2048, 1024, false},
                        Case{BlockType::q5_1, 3, 2048, 1024, false}, Case{BlockType::q5_k, 1, 8200, 256, true}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", c.m, name_of(c.type)));
    auto x = noise(c.m * c.k);
    std::fill(x.begin() + 32, x.begin() + 64, 0.0);
    std::fill(x.begin() + 64, x.begin() + 96, 1e-36);
    x[97] = 4;
    const auto w = noise(c.n * c.k), scale = noise(c.k);
    const auto product = [&](Side& side) {
      Tensor rows = side.arguments.make({c.m, c.k}, x);
      if (c.computed)
        rows = rows * elementwise("rsqrt", {mean(rows * rows, {1}, {.keepdims = true}) + 1e-5}) *
               side.arguments.make({c.k}, scale);
      return std::vector<Tensor>{packed_linear(rows, weights(side, c.type, c.n, c.k, w))};
    };
    expect_same(product, is_cpu() ? 0.1 : 4e-4);
    if (c.computed) continue;
    for (const double bad : {std::nan(""), double{INFINITY}}) {
      x[200] = bad;
      Side side;
      side.is_device = true;
      const std::vector<Tensor> results = product(side);
      EXPECT_FALSE(std::isfinite(run(results, side.arguments)[0][5])) << bad;
    }
  }
}

TEST_F(Routines, PackedProductsOfRowsThatAreComputedAsTheyAreRead) {
  const Extent m = 2, n = 24, k = 64;
  const auto x = noise(m * k), w = noise(n * k), scale = noise(k);
  expect_same([&](Side& side) {
    const Tensor rows = side.arguments.make({m, k}, x);
    const Tensor norm = rows * elementwise("rsqrt", {mean(rows * rows, {1}, {.keepdims = true}) + 1e-5}) *
                        side.arguments.make({k}, scale);
    return std::vector<Tensor>{packed_linear(norm, weights(side, BlockType::q8_0, n, k, w), {}, true)};
  });
  ASSERT_EQ(kernels_.size(), 1u);
  EXPECT_TRUE(std::get<kernel::PackedMatmulKernel>(kernels_[0]).rows);
}

TEST_F(Routines, RowsOfPackedWeights) {
  const Extent n = 12, k = 256;
  for (const DType type : kPackedTypes) {
    if (!is_cpu() && type != BlockType::q4_k) continue;
    SCOPED_TRACE(name_of(type));
    const auto w = noise(n * k);
    expect_same([&](Side& side) {
      const Tensor at = side.arguments.make({5}, {3, 11, -1, 12, 3}, DType::i32);
      return std::vector<Tensor>{packed_rows(weights(side, type, n, k, w), at)};
    });
    EXPECT_TRUE(std::holds_alternative<kernel::CallKernel>(kernels_[0]));
  }
}

TEST_F(Routines, ValuesThatAreRoundedToBlocks) {
  const Extent n = 19, k = 512;
  for (const DType type : kPackedTypes) {
    if (!is_block(type)) continue;
    SCOPED_TRACE(name_of(type));
    const auto x = noise(n * k), y = noise(3 * k);
    const auto make = [&](Side& side) {
      const Tensor blocks = cast(side.arguments.make({n, k}, x) * 2.0, type);
      return std::vector<Tensor>{cast(blocks, DType::f32), linear(side.arguments.make({3, k}, y), blocks)};
    };
    if (is_cpu()) {
      expect_same(make);
      continue;
    }
    try {
      (void)both(make);
      FAIL() << "rounded on a device without a kernel for it";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string_view(error.what()).find("round on the CPU and move the result"), std::string_view::npos);
    }
  }
}

TEST_F(Routines, CachesKeepRowsInEveryType) {
  const Extent rows = 20, kv_heads = 2, width = 32, tokens = 9;
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    const Extent words = graph::row_elements(type, kv_heads * width);
    const DType stored = graph::dtype_of_cache(type);
    const auto k = noise(tokens * kv_heads * width), v = noise(tokens * kv_heads * width), q = noise(2 * 4 * width);
    const std::vector<double> at{4, 5, 6, 7, 8, 9, 10, -1, 20};  // the last two are dropped
    for (const CacheAttentionOptions& options :
         {CacheAttentionOptions{.type = type}, CacheAttentionOptions{.type = type, .window = 3, .soft_cap = 0.5},
          CacheAttentionOptions{.type = type, .window = 4, .ring = 5}}) {
      if (!is_cpu() && options.ring == 0) continue;
      SCOPED_TRACE(fmt::format("cache type {}, window {}", static_cast<int>(type), options.window));
      const auto [actual, expected] = both([&](Side& side) {
        const auto written = [&](const std::vector<double>& values) {
          const std::vector<double> empty(static_cast<std::size_t>(rows * words), 0.0);
          return write_rows(side.arguments.make({rows, words}, empty, stored),
                            side.arguments.make({tokens, kv_heads * width}, values),
                            side.arguments.make({tokens}, at, DType::i32), type);
        };
        const Tensor keys = written(k), values = written(v), queries = side.arguments.make({2, 4, width}, q);
        return std::vector<Tensor>{cache_attention(queries, keys, values, side.arguments.make({2}, {4, 5}, DType::i32),
                                                   side.arguments.make({2}, {7, 6}, DType::i32), kv_heads, options),
                                   keys};
      });
      EXPECT_EQ(kernels_.size(), 3u);
      expect_close(actual[0], expected[0], 2e-5, 2e-6, "attention");
      if (type != CacheType::q8) {
        EXPECT_EQ(actual[1], expected[1]);
      }
    }
  }
}

TEST_F(Routines, AttentionTakesSinksAndSlopesOfItsHeads) {
  const Extent rows = 300, heads = 6, kv_heads = 2, width = 32;
  for (const Extent tokens : {Extent{1}, Extent{40}})
    for (const Extent ring : {Extent{0}, Extent{64}})
      for (const bool has_sinks : {true, false}) {
        SCOPED_TRACE(fmt::format("{} tokens, ring {}, sinks {}", tokens, ring, has_sinks));
        const auto q = noise(tokens * heads * width), k = noise(rows * kv_heads * width),
                   v = noise(rows * kv_heads * width), sinks = noise(heads, -2, 2), slopes = noise(heads, 0, 1);
        std::vector<double> first(static_cast<std::size_t>(tokens), 3), length;
        for (Extent t = 0; t < tokens; ++t) length.push_back(static_cast<double>(200 + t));
        length[0] = tokens > 1 ? 0 : 200;
        const auto [actual, expected] = both([&](Side& side) {
          CacheAttentionOptions options{.window = ring > 0 ? Extent{24} : Extent{0}, .ring = ring};
          if (has_sinks) options.sinks = side.arguments.make({heads}, sinks);
          if (!has_sinks || tokens > 1) options.slopes = side.arguments.make({heads}, slopes);
          return std::vector<Tensor>{cache_attention(
              side.arguments.make({tokens, heads, width}, q), side.arguments.make({rows, kv_heads * width}, k),
              side.arguments.make({rows, kv_heads * width}, v), side.arguments.make({tokens}, first, DType::i32),
              side.arguments.make({tokens}, length, DType::i32), kv_heads, options)};
        });
        expect_close(actual[0], expected[0], 2e-5, 2e-6, "attention");
      }
}

// Keys that are values too, in rows as wide as those of latent attention.
TEST_F(Routines, AttentionOverWideRowsThatAllHeadsShare) {
  const Extent rows = 90, heads = 8, width = 576;
  for (const Extent tokens : {Extent{1}, Extent{3}, Extent{20}}) {
    SCOPED_TRACE(fmt::format("{} tokens", tokens));
    const auto q = noise(tokens * heads * width), k = noise(rows * width);
    std::vector<double> first(static_cast<std::size_t>(tokens), 0), length;
    for (Extent t = 0; t < tokens; ++t) length.push_back(static_cast<double>(60 + t));
    const auto [actual, expected] = both([&](Side& side) {
      const Tensor cache = side.arguments.make({rows, width}, k);
      return std::vector<Tensor>{cache_attention(side.arguments.make({tokens, heads, width}, q), cache, cache,
                                                 side.arguments.make({tokens}, first, DType::i32),
                                                 side.arguments.make({tokens}, length, DType::i32), 1)};
    });
    expect_close(actual[0], expected[0], 4e-5, 4e-6, "attention");
  }
}

// A workgroup reads keys and values in groups, which may reach into the rows of another sequence.
TEST_F(Routines, FewQueriesDoNotSeeInfinitiesOfOtherSequences) {
  const Extent rows = 40, heads = 4, kv_heads = 2, width = 32;
  const std::vector<double> first{8, 24}, length{5, 9};
  for (const CacheAttentionOptions& options :
       {CacheAttentionOptions{}, CacheAttentionOptions{.window = 3}, CacheAttentionOptions{.window = 4, .ring = 16}}) {
    SCOPED_TRACE(fmt::format("window {}, ring {}", options.window, options.ring));
    const auto q = noise(2 * heads * width);
    std::vector<double> k = noise(rows * kv_heads * width), v = noise(rows * kv_heads * width);
    for (Extent row = 0; row < rows; ++row) {
      const bool is_seen = (row >= 8 && row < 13) || (row >= 24 && row < 33);
      if (is_seen) continue;
      for (Extent c = 0; c < kv_heads * width; ++c) {
        const auto at = static_cast<std::size_t>(row * kv_heads * width + c);
        v[at] = row % 2 ? INFINITY : NAN;
        k[at] = row % 3 ? -INFINITY : NAN;
      }
    }
    const auto [actual, expected] = both([&](Side& side) {
      return std::vector<Tensor>{
          cache_attention(side.arguments.make({2, heads, width}, q), side.arguments.make({rows, kv_heads * width}, k),
                          side.arguments.make({rows, kv_heads * width}, v), side.arguments.make({2}, first, DType::i32),
                          side.arguments.make({2}, length, DType::i32), kv_heads, options)};
    });
    for (const double value : expected[0]) ASSERT_TRUE(std::isfinite(value));
    expect_close(actual[0], expected[0], 2e-5, 2e-6, "attention");
  }
}

TEST_F(Routines, CumulativeSums) {
  struct Scan {
    Shape shape;
    int axis;
    bool exclusive, reverse;
    DType type;
  };
  for (const Scan& scan :
       {Scan{{4, 37}, 1, false, false, DType::f32}, Scan{{3, 50, 5}, 1, true, true, DType::f32},
        Scan{{2, 3000}, -1, false, true, DType::f32}, Scan{{70, 3}, 0, true, false, DType::i32},
        Scan{{5, 40}, 1, false, false, DType::boolean}, Scan{{1, 40000}, 1, false, false, DType::f32},
        Scan{{2, 70001}, 1, true, true, DType::i32}}) {
    SCOPED_TRACE(fmt::format("[{}] over axis {}{}{}", scan.shape.to_string(), scan.axis,
                             scan.exclusive ? ", exclusive" : "", scan.reverse ? ", reverse" : ""));
    std::vector<double> x = noise(scan.shape.numel(), -9, 9);
    if (scan.type != DType::f32)
      for (double& v : x) v = std::round(v);
    expect_same([&](Side& side) {
      return std::vector<Tensor>{
          cumsum(side.arguments.make(scan.shape, x, scan.type), scan.axis, scan.exclusive, scan.reverse)};
    });
    ASSERT_EQ(kernels_.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<kernel::CallKernel>(kernels_[0]));
  }
}

TEST_F(Routines, ScansOfEveryKind) {
  // Software adapters take seconds for each shader: a short axis and a long one there.
  struct Lines {
    Shape shape;
    int axis;
    bool reverse;
  };
  for (const Lines& lines :
       {Lines{{70, 3}, 0, false}, Lines{{3, 50, 5}, 1, true}, Lines{{2, 3000}, 1, false}, Lines{{1, 33001}, 1, true}}) {
    if (!is_cpu() && lines.shape.rank() == 3) continue;
    SCOPED_TRACE(fmt::format("{} over axis {}", lines.shape.to_string(), lines.axis));
    const auto x = noise(lines.shape.numel(), -1.1, 1.1), y = noise(lines.shape.numel());
    const auto made = [&](Side& side, const std::vector<double>& values) {
      return side.arguments.make(lines.shape, values);
    };
    expect_same([&](Side& side) {
      const Tensor a = made(side, x), b = made(side, y);
      return std::vector<Tensor>{cumprod(a, lines.axis, false, lines.reverse),
                                 logcumsumexp(a, lines.axis, lines.reverse),
                                 linear_recurrence(a, b, lines.axis, lines.reverse)};
    });
    EXPECT_EQ(kernels_.size(), 3u);
    const auto [actual, expected] = both([&](Side& side) {
      const Tensor a = made(side, x);
      const auto most = cummax(a, lines.axis, lines.reverse), least = cummin(a, lines.axis, lines.reverse);
      return std::vector<Tensor>{most.values, most.positions, least.values, least.positions};
    });
    EXPECT_EQ(actual, expected);
  }
}

TEST_F(Routines, Sorts) {
  struct Lines {
    Shape shape;
    bool descending;
    DType type;
  };
  for (const Lines& lines :
       {Lines{{5, 100}, false, DType::f32}, Lines{{3, 3000}, true, DType::f32}, Lines{{1, 5000}, false, DType::i32},
        Lines{{40, 7}, true, DType::u32}, Lines{{2, 1025}, true, DType::u32}, Lines{{2, 8192}, false, DType::f32},
        Lines{{1, 8191}, true, DType::i32}, Lines{{2, 9000}, true, DType::f32},
        Lines{{2, 300000}, false, DType::f32}}) {
    if (!is_cpu() && lines.shape[1] > 9000) continue;
    SCOPED_TRACE(fmt::format("{} of {}", lines.shape.to_string(), name_of(lines.type)));
    auto x = noise(lines.shape.numel(), lines.type == DType::u32 ? 0 : -99, 99);
    if (lines.type != DType::f32)
      for (double& v : x) v = std::round(v);
    for (std::size_t i = 0; i < x.size() && lines.type == DType::f32; i += 7)
      x[i] = i % 3 == 0 ? std::nan("") : i % 2 == 0 ? -0.0 : 0.0;
    const auto [actual, expected] = both([&](Side& side) {
      const Tensor values = side.arguments.make(lines.shape, x, lines.type);
      const auto all = sort(values, -1, lines.descending), some = topk(values, 5, -1, lines.descending);
      const bool has_nan = lines.type == DType::f32;
      return std::vector<Tensor>{all.positions, some.positions,
                                 has_nan ? weft::where(isnan(all.values), 0.5, all.values) : all.values};
    });
    EXPECT_EQ(actual, expected);
  }
}

/// A recurrence of sequences with these lengths, and its gradient.
struct RecurrenceSize {
  graph::RecurrentCell cell;
  bool reverse;
  Extent steps, width;
  std::vector<double> lengths;  // of the sequences
  bool has_lengths = true;
};
std::vector<RecurrenceSize> recurrence_sizes() {
  using graph::RecurrentCell;
  const std::vector<double> lengths{7, 1, 0, 4, 6};
  std::vector<RecurrenceSize> sizes;
  for (const RecurrentCell cell :
       {RecurrentCell::rnn, RecurrentCell::relu_rnn, RecurrentCell::gru, RecurrentCell::lstm})
    for (const bool reverse : {false, true}) sizes.push_back({cell, reverse, 7, 19, lengths});
  // So wide that several workgroups of a GPU share a step: rows of whole vectors and others, one sequence, and one step.
  sizes.push_back({RecurrentCell::lstm, false, 5, 72, {5, 2, 5, 4}, false});
  sizes.push_back({RecurrentCell::lstm, true, 4, 75, {1, 4}});
  sizes.push_back({RecurrentCell::gru, true, 5, 96, std::vector<double>(37, 3)});
  sizes.push_back({RecurrentCell::gru, false, 3, 90, {3}, false});
  sizes.push_back({RecurrentCell::rnn, false, 6, 160, {6, 5}});
  sizes.push_back({RecurrentCell::lstm, false, 1, 80, {1, 1}, false});
  return sizes;
}

TEST_F(Routines, RecurrentCellsAndTheirGradients) {
  for (const auto& [cell, reverse, steps, width, sequences, has_lengths] : recurrence_sizes()) {
    SCOPED_TRACE(fmt::format("cell {}, {}, {} steps of {}", static_cast<int>(cell),
                             reverse ? "from the end" : "from the start", steps, width));
    const bool is_lstm = cell == graph::RecurrentCell::lstm, is_gru = cell == graph::RecurrentCell::gru;
    const Extent batch = static_cast<Extent>(sequences.size()), gates = graph::gates_of(cell);
    const Shape all{steps, batch, width}, state{batch, width};
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const auto x = noise(steps * batch * gates * width), h = noise(batch * width), c = noise(batch * width),
               w = noise(gates * width * width, -scale, scale), b = noise(gates * width), d_h = noise(all.numel()),
               d_c = noise(all.numel());
    const auto run_cells = [&](Side& side) {
      const auto made = [&](const Shape& shape, const std::vector<double>& values, DType type = DType::f32) {
        return side.arguments.make(shape, values, type);
      };
      const graph::RecurrenceAttributes attributes{cell, reverse, is_gru, has_lengths, is_lstm};
      const Tensor lengths = has_lengths ? made({batch}, sequences, DType::i32) : Tensor(), first = made(state, h),
                   weight = made({gates * width, width}, w);
      graph::Tensors inputs{made({steps, batch, gates * width}, x), first};
      if (is_lstm) inputs.push_back(made(state, c));
      inputs.push_back(weight);
      if (is_gru) inputs.push_back(made({gates * width}, b));
      if (has_lengths) inputs.push_back(lengths);
      const auto call = [&](const graph::OpRow& row, const graph::Tensors& operands) {
        std::vector<Tensor> results;
        for (const graph::NodeRef& node : graph::call_nodes(row, operands, graph::words_of(row.attributes, attributes)))
          results.emplace_back(node);
        return results;
      };
      std::vector<Tensor> results = call(graph::recurrence_row(), inputs);
      graph::Tensors back{results[0]};
      if (is_lstm) back.push_back(results[1]);
      if (is_lstm || is_gru) back.push_back(results.back());
      back.push_back(first);
      if (is_lstm) back.push_back(inputs[2]);
      back.push_back(weight);
      if (has_lengths) back.push_back(lengths);
      back.push_back(made(all, d_h));
      if (is_lstm) back.push_back(made(all, d_c));
      const std::vector<Tensor> gradients = call(graph::recurrence_backward_row(), back);
      results.insert(results.end(), gradients.begin(), gradients.end());
      return results;
    };
    expect_same(run_cells);
    EXPECT_EQ(kernels_.size(), 2u);
  }
}

/// The results of a call with several.
std::vector<Tensor> results_of(const graph::OpRow& row, graph::Tensors operands, graph::Words words = {}) {
  std::vector<Tensor> results;
  for (const graph::NodeRef& node : graph::call_nodes(row, std::move(operands), std::move(words)))
    results.emplace_back(node);
  return results;
}

/// Sizes of a scan: some whole vectors and tiles, and some that are not.
struct ScanSize {
  Extent batch, steps, heads, width, groups, states;
  bool shares_rate;
};
std::vector<ScanSize> scan_sizes(bool is_cpu) {
  std::vector<ScanSize> sizes = {{2, 37, 19, 1, 1, 16, false}, {1, 5, 6, 20, 2, 24, true}, {3, 1, 4, 8, 1, 5, true}};
  if (!is_cpu) return sizes;  // software adapters take seconds for each shader
  sizes.insert(sizes.end(), {{1, 100, 40, 1, 1, 8, false},
                             {2, 66, 3, 17, 3, 9, false},
                             {1, 33, 16, 1, 4, 3, true},
                             {1, 64, 2, 32, 1, 128, true},
                             {1, 1, 33, 1, 1, 16, false}});
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    const auto below = [&](Extent n) { return static_cast<Extent>(random() % static_cast<unsigned>(n)); };
    const Extent groups = 1 + below(3);
    sizes.push_back(
        {1 + below(3), 1 + below(70), groups * (1 + below(5)), 1 + below(20), groups, 1 + below(40), below(2) == 0});
  }
  return sizes;
}

TEST_F(Routines, ScansOfStatesAndTheirGradients) {
  for (const ScanSize& size : scan_sizes(is_cpu())) {
    const auto [batch, steps, heads, width, groups, states, shares] = size;
    SCOPED_TRACE(fmt::format("{} x {} steps, {} heads of {}, {} groups, {} states{}", batch, steps, heads, width,
                             groups, states, shares ? ", one rate a head" : ""));
    const Shape all{batch, steps, heads, width}, shared{batch, steps, groups, states},
        state{batch, heads, width, states};
    const Shape by_head{batch, steps, heads}, rates{heads, shares ? 1 : states};
    const auto x = noise(all.numel()), dt = noise(by_head.numel(), 0.05, 1), a = noise(rates.numel(), -2, -0.1),
               b = noise(shared.numel()), c = noise(shared.numel()), s = noise(state.numel()),
               d_s = noise(state.numel()), d_y = noise(all.numel());
    expect_same(
        [&](Side& side) {
          graph::Tensors operands{side.arguments.make(all, x),    side.arguments.make(by_head, dt),
                                  side.arguments.make(rates, a),  side.arguments.make(shared, b),
                                  side.arguments.make(shared, c), side.arguments.make(state, s)};
          std::vector<Tensor> results =
              results_of(graph::state_scan_row(), operands,
                         graph::words_of(graph::state_scan_row().attributes, graph::StateScanAttributes{}));
          operands.push_back(side.arguments.make(state, d_s));
          operands.push_back(side.arguments.make(all, d_y));
          for (Tensor& each : results_of(graph::state_scan_backward_row(), operands))
            results.push_back(std::move(each));
          return results;
        },
        5e-5, 2e-5);
    EXPECT_EQ(kernels_.size(), 2u);
  }
}

TEST_F(Routines, ScansOfTheGatedDeltaRule) {
  struct Size {
    Extent batch, steps, groups, keys, heads, width;
  };
  for (const Size& z : {Size{1, 1, 2, 128, 4, 128},
                        {2, 3, 1, 5, 3, 1},
                        {1, 33, 2, 16, 2, 33},
                        {2, 9, 3, 33, 6, 70},
                        {1, 70, 1, 64, 2, 64},
                        {1, 17, 1, 256, 1, 8}}) {
    SCOPED_TRACE(fmt::format("{} x {} steps, {} groups of {} keys, {} heads of {}", z.batch, z.steps, z.groups, z.keys,
                             z.heads, z.width));
    const Shape keys{z.batch, z.steps, z.groups, z.keys}, values{z.batch, z.steps, z.heads, z.width},
        each{z.batch, z.steps, z.heads}, state{z.batch, z.heads, z.keys, z.width};
    // Keys are no longer than 1: else a step pushes the state past its value, and errors grow.
    const double most = 1 / std::sqrt(static_cast<double>(z.keys));
    const auto q = noise(keys.numel()), k = noise(keys.numel(), -most, most), v = noise(values.numel()),
               decay = noise(each.numel(), -1, -0.05), beta = noise(each.numel(), 0.1, 0.9), s = noise(state.numel());
    expect_same(
        [&](Side& side) {
          const auto made = [&](const Shape& shape, const std::vector<double>& list) {
            return side.arguments.make(shape, list);
          };
          const graph::OpRow& row = graph::delta_scan_row();
          return results_of(
              row, {made(keys, q), made(keys, k), made(values, v), made(each, decay), made(each, beta), made(state, s)},
              graph::words_of(row.attributes, graph::DeltaScanAttributes{}));
        },
        5e-5, 2e-5);
    EXPECT_EQ(kernels_.size(), 1u);
  }
}

// Two sequences of a cache of four go on, one begins, and one is padding; their rows may hold anything.
TEST_F(Routines, ScansAndConvolutionsOfRowsOfACache) {
  const Extent batch = 4, rows = 4, heads = 3, width = 8, states = 16, channels = heads * width, kernel = 4;
  for (const Extent steps : {Extent{1}, Extent{12}}) {
    SCOPED_TRACE(fmt::format("{} steps", steps));
    const Extent sequences = steps == 1 ? batch : 1;
    const std::vector<double> places = steps == 1 ? std::vector<double>{2, 0, -1, 3} : std::vector<double>{1},
                              begins = steps == 1 ? std::vector<double>{0, 1, 1, 0} : std::vector<double>{0};
    auto cache = noise(rows * channels * states), before = noise(rows * (kernel - 1) * channels);
    for (Extent i = 0; i < channels * states; ++i)
      cache[static_cast<std::size_t>(i)] = NAN;  // of the sequence that begins
    if (steps > 1) cache = noise(rows * channels * states);
    const auto x = noise(sequences * steps * channels), dt = noise(sequences * steps * heads, 0.05, 1),
               a = noise(heads, -2, -0.1), b = noise(sequences * steps * states), c = noise(sequences * steps * states),
               w = noise(channels * kernel), bias = noise(channels),
               short_keys = noise(sequences * steps * states, -0.25, 0.25),
               decay = noise(sequences * steps * heads, -1, -0.05);
    const auto [actual, expected] = both([&](Side& side) {
      const auto made = [&](const Shape& shape, const std::vector<double>& values, DType type = DType::f32) {
        return side.arguments.make(shape, values, type);
      };
      const Tensor at = made({sequences}, places, DType::i32), first = made({sequences}, begins, DType::i32);
      const graph::OpRow &scan = graph::state_scan_row(), &convolution = graph::state_convolution_row();
      std::vector<Tensor> results =
          results_of(scan,
                     {made({sequences, steps, heads, width}, x), made({sequences, steps, heads}, dt),
                      made({heads, 1}, a), made({sequences, steps, 1, states}, b),
                      made({sequences, steps, 1, states}, c), made({rows, channels * states}, cache), at, first},
                     graph::words_of(scan.attributes, graph::StateScanAttributes{.cached = true}));
      for (Tensor& each :
           results_of(convolution,
                      {made({sequences, steps, channels}, x), made({channels, kernel}, w), made({channels}, bias),
                       made({rows, (kernel - 1) * channels}, before), at, first,
                       made({1}, {steps == 1 ? 1.0 : 5.0}, DType::i32)},
                      graph::words_of(convolution.attributes, graph::StateConvolutionAttributes{.cached = true})))
        results.push_back(std::move(each));
      const graph::OpRow& delta = graph::delta_scan_row();
      const Shape keys{sequences, steps, 1, states}, by_head{sequences, steps, heads};
      for (Tensor& each :
           results_of(delta,
                      {made(keys, c), made(keys, short_keys), made({sequences, steps, heads, width}, x),
                       made(by_head, decay), made(by_head, dt), made({rows, channels * states}, cache), at, first},
                      graph::words_of(delta.attributes, graph::DeltaScanAttributes{.cached = true})))
        results.push_back(std::move(each));
      return results;
    });
    EXPECT_EQ(kernels_.size(), 3u);
    for (std::size_t o = 0; o < expected.size(); ++o)
      expect_close(actual[o], expected[o], 5e-5, 1e-5, fmt::format("output {}", o));
  }
}

TEST_F(Routines, ScatterAddsAlongAnAxis) {
  // Lines of few updates, of neighbouring columns, and long rows: many updates of a place, and few.
  for (const auto& [shape, axis, extent] : {std::tuple<Shape, int, Extent>{{40, 30}, 1, 7},
                                            {{3, 9, 20}, 1, 4},
                                            {{32, 300}, 1, 3},
                                            {{33, 1001}, 1, 5000},
                                            {{32, 2049}, 1, 16},
                                            {{32, 9000}, 1, 40}}) {
    SCOPED_TRACE(fmt::format("[{}] along axis {}", shape.to_string(), axis));
    std::vector<double> at = noise(shape.numel(), -2, static_cast<double>(extent) + 1);
    for (double& v : at) v = std::round(v);
    const auto updates = noise(shape.numel());
    expect_same([&, along = axis, places = extent, of = shape](Side& side) {
      return std::vector<Tensor>{Tensor(graph::scatter_add_along(
          side.arguments.make(of, at, DType::i32).node(), side.arguments.make(of, updates).node(), along, places))};
    });
    ASSERT_EQ(kernels_.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<kernel::CallKernel>(kernels_[0]));
  }
}

TEST_F(Routines, PutsAlongAnAxis) {
  // Lines within rows and apart, columns in several blocks, lines in several parts, many short lines, more indices than a workgroup
  // marks, and lines that are too long for workgroup memory.
  for (const auto& [shape, axis, extent] : {std::tuple<Shape, int, Extent>{{40, 30}, 1, 7},
                                            {{3, 9, 20}, 1, 4},
                                            {{70, 200}, 0, 90},
                                            {{200000}, 0, 5000},
                                            {{3, 900}, 1, 9001},
                                            {{2, 50, 13}, 1, 1500},
                                            {{3000, 5}, 1, 3},
                                            {{999, 4, 3}, 1, 5},
                                            {{2, 17000}, 1, 11},
                                            {{2, 70}, 1, 70000},
                                            {{60, 9}, 0, 9999}}) {
    SCOPED_TRACE(fmt::format("[{}] along axis {}", shape.to_string(), axis));
    std::vector<double> at = noise(shape.numel(), -2, static_cast<double>(extent) + 1);
    for (double& v : at) v = std::round(v);
    Shape result = shape;
    result[axis] = extent;
    std::vector<double> updates = noise(shape.numel(), -9, 9), x = noise(result.numel(), -9, 9);
    for (std::vector<double>* values : {&updates, &x})
      for (double& v : *values) v = std::round(v);
    for (const DType type : {DType::f32, DType::i32})
      expect_same([&, along = axis, places = extent, of = shape](Side& side) {
        const Tensor indices = side.arguments.make(of, at, DType::i32), from = side.arguments.make(result, x, type),
                     put = side.arguments.make(of, updates, type);
        return std::vector<Tensor>{Tensor(graph::call_nodes(graph::last_along_row(), {indices}, {along, places})[0]),
                                   Tensor(graph::call_nodes(graph::put_along_row(), {from, indices, put}, {along})[0])};
      });
  }
}

TEST_F(Routines, GroupedProducts) {
  struct Case {
    Extent n, k, m;
    std::vector<double> ends;
  };
  for (const Case& c : {Case{37, 19, 70, {0, 9, 10, 33}}, {64, 33, 5, {64}}, {3, 1, 1, {2, 1, 7}}, {8, 6, 9, {-4, 5}}})
    for (const bool transposed : {false, true}) {
      const auto groups = static_cast<Extent>(c.ends.size());
      const auto x = noise(c.n * c.k), weights = noise(groups * c.k * c.m), y = noise(c.n * c.m);
      expect_same([&](Side& side) {
        const Tensor rows = side.arguments.make({c.n, c.k}, x),
                     ends = side.arguments.make({groups}, c.ends, DType::i32);
        const Shape shape = transposed ? Shape{groups, c.m, c.k} : Shape{groups, c.k, c.m};
        return std::vector<Tensor>{grouped_matmul(rows, side.arguments.make(shape, weights), ends, transposed),
                                   grouped_outer(rows, side.arguments.make({c.n, c.m}, y), ends)};
      });
      EXPECT_EQ(kernels_.size(), 2u);
    }
}

TEST_F(Routines, AdjointsOfConvolutionsWithSteps) {
  if (!is_cpu()) GTEST_SKIP() << "the op is decomposed";
  struct Case {
    Shape x, weight, y;
    std::vector<Extent> stride, before;
    Extent groups = 1;
  };
  for (const Case& c : {Case{{3, 20, 9, 17}, {20, 45, 3, 3}, {3, 45, 18, 33}, {2, 2}, {1, 1}},
                        {{2, 33, 7, 7}, {33, 70, 1, 1}, {2, 70, 14, 13}, {2, 2}, {0, 0}},
                        {{2, 6, 5, 8}, {6, 16, 5, 4}, {2, 32, 17, 20}, {3, 2}, {2, 5}, 2},
                        {{1, 4, 3, 4}, {4, 8, 2, 7}, {1, 8, 20, 9}, {5, 1}, {1, 3}},
                        {{4, 300, 11}, {300, 18, 4}, {4, 18, 33}, {3}, {2}},
                        // rows that no tap reaches, and more in front than there are rows
                        {{1, 2, 2, 30}, {2, 3, 1, 9}, {1, 3, 9, 70}, {4, 2}, {3, 0}},
                        {{9, 64, 20, 40}, {64, 33, 3, 2}, {9, 33, 40, 80}, {2, 2}, {1, 0}}}) {
    SCOPED_TRACE(fmt::format("[{}] to [{}]", c.x.to_string(), c.y.to_string()));
    const auto x = noise(c.x.numel()), weight = noise(c.weight.numel());
    expect_same(
        [&](Side& side) {
          const std::vector<Extent> extents(c.y.begin() + 2, c.y.end());
          return std::vector<Tensor>{graph::call(
              graph::conv_adjoint_row(), {side.arguments.make(c.x, x), side.arguments.make(c.weight, weight)},
              graph::ConvAdjointAttributes{c.stride, c.before, extents, c.groups}, Where::current())};
        },
        1e-4, 1e-5);
    ASSERT_EQ(kernels_.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<kernel::CallKernel>(kernels_[0]));
  }
}

// Labels 1 2 and 3 3 in six and four steps, none in three, and two of three labels in the fewest steps.
TEST_F(Routines, AlignmentsOfLabels) {
  const Extent count = 6, sequences = 4, classes = 4, places = 7;
  const auto x = noise(count * sequences * classes, -3, -0.1), d = noise(sequences);
  const std::vector<double> at{0, 1, 0, 2, 0, 0, 0, 0, 3, 0, 3, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0},
      skips{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0};
  expect_same(
      [&](Side& side) {
        graph::Tensors inputs{side.arguments.make({count, sequences, classes}, x),
                              side.arguments.make({sequences, places}, at, DType::i32),
                              side.arguments.make({sequences, places}, skips, DType::i32),
                              side.arguments.make({sequences}, {6, 4, 3, 3}, DType::i32),
                              side.arguments.make({sequences}, {2, 2, 0, 3}, DType::i32)};
        const auto results = graph::call_nodes(graph::ctc_alignment_row(), inputs, {});
        inputs.emplace_back(results[1]);
        inputs.push_back(side.arguments.make({sequences}, d));
        return std::vector<Tensor>{Tensor(results[0]), maximum(Tensor(results[1]), -1e4),
                                   Tensor(graph::call_nodes(graph::ctc_alignment_backward_row(), inputs, {})[0])};
      },
      1e-4, 1e-5);
}

// More places than a workgroup has threads, and more than workgroup memory has room for. Places of one class are far apart.
TEST_F(Routines, AlignmentsOfManyLabels) {
  for (const auto& [count, sequences, classes, places] :
       {std::tuple<Extent, Extent, Extent, Extent>{9, 2, 7, 301}, {4, 1, 5, 12501}}) {
    SCOPED_TRACE(fmt::format("{} places", places));
    const auto x = noise(count * sequences * classes, -3, -0.1), d = noise(sequences);
    std::vector<double> at, skips, labels(static_cast<std::size_t>(sequences), 4.0);
    labels[0] = 3;
    for (Extent i = 0; i < sequences * places; ++i) {
      const Extent p = i % places;
      at.push_back(p % 2 == 0 ? 0 : static_cast<double>(1 + p / 2 % (classes - 1)));
      skips.push_back(p > 2 && p % 2 == 1 ? 1 : 0);
    }
    expect_same([&, count = count, sequences = sequences, classes = classes, places = places](Side& side) {
      graph::Tensors inputs{
          side.arguments.make({count, sequences, classes}, x), side.arguments.make({sequences, places}, at, DType::i32),
          side.arguments.make({sequences, places}, skips, DType::i32),
          side.arguments.make({sequences}, std::vector<double>(labels.size(), static_cast<double>(count)), DType::i32),
          side.arguments.make({sequences}, labels, DType::i32)};
      const auto results = graph::call_nodes(graph::ctc_alignment_row(), inputs, {});
      inputs.emplace_back(results[1]);
      inputs.push_back(side.arguments.make({sequences}, d));
      return std::vector<Tensor>{Tensor(results[0]), Tensor(results[1]),
                                 Tensor(graph::call_nodes(graph::ctc_alignment_backward_row(), inputs, {})[0])};
    });
    EXPECT_EQ(kernels_.size(), 2u);
  }
}

// In the middle of an interval, where rounding cannot choose its neighbour.
TEST_F(Routines, CountsOfThePoissonDistribution) {
  std::vector<double> rates, units;
  for (const double rate : {0.0, 0.01, 0.5, 1.0, 3.7, 12.0, 80.5, 1000.0}) {
    double begin = 0;
    for (const auto& [count, end] : reference::poisson_intervals(rate)) {
      if (end - begin < 1e-4) break;
      rates.push_back(static_cast<float>(rate));
      units.push_back(static_cast<float>((begin + end) / 2));
      begin = end;
    }
  }
  for (const double bad : {-1.0, 2e6, static_cast<double>(NAN)}) rates.push_back(bad), units.push_back(0.5);
  const Shape shape{static_cast<Extent>(rates.size())};
  expect_same([&](Side& side) {
    return std::vector<Tensor>{Tensor(graph::call_nodes(
        graph::poisson_quantile_row(), {side.arguments.make(shape, rates), side.arguments.make(shape, units)}, {})[0])};
  });
}

TEST_F(Routines, OrthogonalPolynomialsAndTheirDerivatives) {
  const std::vector<double> degrees{-2, -1, -0.5, 0, 0.9, 1, 2, 3, 4, 6, 9, 12, 1e5, static_cast<double>(NAN)};
  const Extent rows = 3, columns = static_cast<Extent>(degrees.size());
  std::vector<double> n;
  for (Extent row = 0; row < rows; ++row) n.insert(n.end(), degrees.begin(), degrees.end());
  for (int kind = 0; kind <= static_cast<int>(graph::PolynomialKind::legendre_p); ++kind)
    for (const Extent derivative : {Extent{0}, Extent{1}, Extent{3}}) {
      if (!is_cpu() && derivative != kind % 3) continue;  // software adapters take long for each shader
      SCOPED_TRACE(fmt::format("kind {}, derivative {}", kind, derivative));
      const auto x = noise(rows * columns, -1.2, 1.2);
      const graph::PolynomialAttributes attributes{static_cast<graph::PolynomialKind>(kind), derivative};
      expect_same(
          [&](Side& side) {
            return std::vector<Tensor>{
                graph::call(graph::orthogonal_polynomial_row(),
                            {side.arguments.make({rows, columns}, x), side.arguments.make({rows, columns}, n)},
                            attributes, Where::current())};
          },
          5e-5, 5e-5);
    }
}

TEST_F(Routines, ExponentialsOfMatrices) {
  for (const auto& [n, size] : {std::pair<Extent, double>{1, 3}, {3, 0.002}, {4, 0.4}, {5, 4}, {9, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {}, elements up to {}", n, n, size));
    const auto a = noise(3 * n * n, -size, size), e = noise(3 * n * n, -1, 1);
    expect_same(
        [&, n = n](Side& side) {
          const Tensor x = side.arguments.make({3, n, n}, a);
          return std::vector<Tensor>{matrix_exp(x), matrix_exp_frechet(x, side.arguments.make({3, n, n}, e))};
        },
        5e-5, 5e-5);
  }
}

TEST_F(Routines, EveryOneHasAReference) {
  const std::vector<reference::RoutineReference> references = reference::routine_references();
  for (const graph::OpRow* row : graph::op_rows())
    if (row->form == graph::KernelForm::routine && row->family != graph::kDecompositionFamily) {
      EXPECT_TRUE(std::any_of(references.begin(), references.end(), [&](const auto& r) { return r.row == row; }))
          << row->name << ": add its meaning to reference/routines.hpp, and a test of it here";
    }
}

TEST_F(Routines, DrawsOfTokens) {
  const Extent vocabulary = 300;
  // Temperature, top-k, typical, top-p, min-p, repetition, frequency, presence, log-probability.
  const std::vector<std::vector<double>> settings = {
      {1, 0, 1, 1, 0, 1, 0, 0, 1},          {0, 0, 1, 1, 0, 1, 0, 0, 1},       {0.7, 12, 1, 0.9, 0, 1, 0, 0, 0},
      {1.3, 0, 0.6, 0.8, 0.05, 1, 0, 0, 1}, {1, 0, 1, 1, 0.2, 1.5, 0.5, 1, 1}, {0.5, 40, 0.9, 1, 0, 1.1, 0, 0.25, 1}};
  const auto rows = static_cast<Extent>(settings.size());
  std::vector<double> all, draws;
  for (Extent b = 0; b < rows; ++b) {
    all.insert(all.end(), settings[static_cast<std::size_t>(b)].begin(), settings[static_cast<std::size_t>(b)].end());
    draws.insert(draws.end(), {5, 9, static_cast<double>(b), 0});
  }
  std::vector<double> history, tokens;
  for (Extent b = 0; b < rows; ++b) {
    history.insert(history.end(), {-1, 7, 7, 20, 299});
    tokens.insert(tokens.end(), {3, -1});
  }
  const auto logits = noise(rows * vocabulary, -4, 4), bias = noise(rows * 2, 0, 3);
  const auto [actual, expected] = both([&](Side& side) {
    return std::vector<Tensor>{sample_token(
        side.arguments.make({rows, vocabulary}, logits), side.arguments.make({rows, kSampleSettings}, all),
        side.arguments.make({rows, 5}, history, DType::i32), side.arguments.make({rows, 2}, tokens, DType::i32),
        side.arguments.make({rows, 2}, bias), side.arguments.make({rows, 4}, draws, DType::u32))};
  });
  const auto log_probability = [](double bits) { return std::bit_cast<float>(static_cast<std::int32_t>(bits)); };
  for (std::size_t b = 0; b < static_cast<std::size_t>(rows); ++b) {
    EXPECT_EQ(actual[0][2 * b], expected[0][2 * b]) << "row " << b;
    EXPECT_NEAR(log_probability(actual[0][2 * b + 1]), log_probability(expected[0][2 * b + 1]), 1e-5) << "row " << b;
  }
}

}  // namespace
}  // namespace weft::test
