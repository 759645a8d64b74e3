// Gradients through checkpoints are those without, by bits.
#include "weft/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/autocast.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

Tensor ramp(const Shape& shape, int seed) {
  std::vector<float> values;
  for (Extent i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<float>(std::sin(0.61 * static_cast<double>(i) + seed)));
  return tensor<float>(values, shape);
}

struct Block {
  explicit Block(int seed)
      : qkv(ramp({24, 8}, seed + 1), "qkv"),
        up(ramp({16, 8}, seed + 2), "up"),
        down(ramp({8, 16}, seed + 3), "down"),
        gain_1(ramp({8}, seed + 4), "gain_1"),
        gain_2(ramp({8}, seed + 5), "gain_2") {}
  Tensor operator()(const Tensor& x) const {
    const Tensor h = reshape(linear(layer_norm(x, gain_1, {}), qkv), {2, 5, 3, 2, 4});
    const auto heads = [&](Extent i) { return permute(select(h, 2, i), {0, 2, 1, 3}); };
    const Tensor mixed = x + reshape(permute(attention(heads(0), heads(1), heads(2)), {0, 2, 1, 3}), {2, 5, 8});
    return mixed + linear(elementwise("gelu", {linear(rms_norm(mixed, gain_2), up)}), down);
  }
  Variable qkv, up, down, gain_1, gain_2;
};

struct Deep {
  std::vector<Block> blocks{Block(0), Block(10), Block(20)};
  std::vector<Variable> all() const {
    std::vector<Variable> list;
    for (const Block& b : blocks) list.insert(list.end(), {b.qkv, b.up, b.down, b.gain_1, b.gain_2});
    return list;
  }
  Tensor loss(Tensor x, bool again, bool nested = false) const {
    for (const Block& block : blocks) {
      const auto one = [&](std::span<const Tensor> in) { return block(in[0]); };
      const auto two = [&](std::span<const Tensor> in) { return nested ? checkpoint(one, {in[0]}) : block(in[0]); };
      x = again ? checkpoint(two, {x}) : block(x);
    }
    return sum(x * x);
  }
};

TEST(Checkpoint, GradientsAreTheSameBits) {
  const Deep deep;
  const Tensor x = ramp({2, 5, 8}, 5);
  std::vector<Tensor> inputs{x};
  for (const Variable& v : deep.all()) inputs.push_back(v);
  compile_settings().fusion = false;  // plans that fuse other neighbours sum columns in another order
  const std::vector<Tensor> wanted = grad(deep.loss(x, false), inputs);
  for (const bool nested : {false, true}) {
    const std::vector<Tensor> given = grad(deep.loss(x, true, nested), inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(given[i].to_vector<float>(), wanted[i].to_vector<float>()) << i << (nested ? " nested" : "");
  }
  compile_settings().fusion = true;
}

TEST(Checkpoint, InCompiledFunctionsAndInNarrowTypes) {
  const Deep deep;
  const Tensor x = ramp({2, 5, 8}, 5);
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool again : {false, true}) {
      const auto step = compile([&](Tensor given) {
        const Autocast scope(type);
        return grad(deep.loss(given, again), deep.all());
      });
      const std::vector<Tensor> compiled = step(x);
      const Autocast scope(type);
      const std::vector<Tensor> wanted = grad(deep.loss(x, false), deep.all());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto a = compiled[i].to_vector<float>(), b = wanted[i].to_vector<float>();
        for (std::size_t j = 0; j < a.size(); ++j)
          EXPECT_NEAR(a[j], b[j], (type == DType::f32 ? 1e-5 : 1e-2) * (1 + std::abs(b[j])));
      }
    }
}

// A gradient of a gradient, through the checkpoint and through what it computed again.
TEST(Checkpoint, SecondDerivatives) {
  const Tensor x = ramp({6}, 1);
  const auto cube = [](std::span<const Tensor> in) { return elementwise("tanh", {in[0] * in[0] * in[0]}); };
  const auto second = [&](const Tensor& y) { return grad(sum(grad(sum(y), x) * ramp({6}, 2)), x).to_vector<float>(); };
  const std::vector<float> wanted = second(cube(std::vector<Tensor>{x})), given = second(checkpoint(cube, {x}));
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(given[i], wanted[i], 1e-5f * (1 + std::abs(wanted[i])));
}

// Gradients of integers end, several inputs each get theirs, and an input may be given twice.
TEST(Checkpoint, SeveralInputs) {
  const Tensor table = ramp({5, 3}, 1), scale = ramp({3}, 2), rows = tensor<std::int32_t>({4, 0, 4, 2});
  const auto f = [](std::span<const Tensor> in) {
    return elementwise("exp", {embedding(in[0], in[1]) * in[2] + in[3]});
  };
  const std::vector<Tensor> inputs{table, rows, scale, scale}, wanted_of{table, scale};
  const std::vector<Tensor> wanted = grad(sum(f(inputs)), wanted_of);
  const std::vector<Tensor> given = grad(sum(checkpoint(f, inputs)), wanted_of);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(given[i].to_vector<float>(), wanted[i].to_vector<float>());
}

}  // namespace
}  // namespace weft
