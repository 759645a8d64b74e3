// Mixed precision: which ops compute on what, gradients, and compiled functions.
#include "weft/autocast.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/op.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"

namespace weft {
namespace {

Tensor waves(const Shape& shape, double scale = 1, int seed = 0) {
  std::vector<float> values;
  for (Extent i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<float>(scale * std::sin(0.37 * static_cast<double>(i) + seed)));
  return tensor<float>(values, shape);
}

const DType kHalves[] = {DType::f16, DType::bf16};

TEST(Autocast, ScopesNestAndEnd) {
  EXPECT_EQ(autocast_type(), DType::f32);
  {
    const Autocast outer(DType::f16);
    EXPECT_EQ(autocast_type(), DType::f16);
    {
      const Autocast off(DType::f32);
      EXPECT_EQ(autocast_type(), DType::f32);
      EXPECT_EQ(matmul(waves({2, 3}), waves({3, 4})).dtype(), DType::f32);
    }
    EXPECT_EQ(autocast_type(), DType::f16);
  }
  EXPECT_EQ(autocast_type(), DType::f32);
  EXPECT_THROW(Autocast(DType::f64), UsageError);
  EXPECT_THROW(Autocast(DType::q8_0), UsageError);
  EXPECT_EQ(autocast_type(), DType::f32);
}

TEST(Autocast, TheTableNamesOps) {
  EXPECT_EQ(autocast_rule("matmul"), AutocastRule::narrow);
  EXPECT_EQ(autocast_rule("linear"), AutocastRule::narrow);
  EXPECT_EQ(autocast_rule("scaled_dot_product_attention"), AutocastRule::narrow);
  for (const char* name : {"softmax", "layer_norm", "rms_norm", "cross_entropy", "mse", "sum", "mean", "var", "cumsum",
                           "exp", "log", "pow", "rsqrt", "logsumexp"})
    EXPECT_EQ(autocast_rule(name), AutocastRule::wide) << name;
  for (const char* name :
       {"add", "mul", "gelu", "gelu_tanh", "relu", "tanh", "where", "dropout", "embedding", "swiglu"})
    EXPECT_EQ(autocast_rule(name), AutocastRule::as_given) << name;
  EXPECT_THROW(autocast_rule("no_such_op"), UsageError);
}

// By the ops' own cases: the types of its results inside a scope, from f32 and from narrow inputs.
TEST(Autocast, ResultsHaveTheTypeOfTheRule) {
  int seen = 0;
  for (const char* name :
       {"matmul", "linear", "attention", "fused_attention", "softmax", "log_softmax", "layer_norm", "rms_norm",
        "cross_entropy", "mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy", "nll_loss", "cumsum"}) {
    const graph::OpRow* row = &graph::op_row(name);
    const AutocastRule rule = autocast_rule(name);
    for (const graph::OpCase& each : row->cases) {
      if (!is_float(each.inputs[0].type)) continue;
      for (const DType given : {DType::f32, DType::f16}) {
        std::vector<Tensor> inputs;
        for (const graph::CaseInput& input : each.inputs) {
          if (input.absent) {
            inputs.emplace_back();
            continue;
          }
          inputs.push_back(cast(waves(input.shape), is_float(input.type) ? given : input.type));
        }
        const Autocast scope(DType::bf16);
        const Tensor result = graph::apply(*row, inputs, each.attributes).at(0);
        EXPECT_EQ(result.dtype(), rule == AutocastRule::narrow ? DType::bf16 : DType::f32)
            << row->name << " " << each.name;
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 40);
}

TEST(Autocast, ElementwiseOpsAndReductionsToo) {
  const Tensor x = cast(waves({4, 5}), DType::f16);
  const Autocast scope(DType::f16);
  EXPECT_EQ(elementwise("exp", {x}).dtype(), DType::f32);
  EXPECT_EQ(sum(x).dtype(), DType::f32);
  EXPECT_EQ(var(x).dtype(), DType::f32);
  EXPECT_EQ(elementwise("gelu", {x}).dtype(), DType::f16);
  EXPECT_EQ((x + x).dtype(), DType::f16);
  EXPECT_EQ((x + cast(x, DType::f32)).dtype(), DType::f32);
  EXPECT_EQ(softmax(x).dtype(), DType::f32);
}

TEST(Autocast, LeavesOtherTypesAlone) {
  const Autocast scope(DType::bf16);
  const Tensor d = cast(waves({3, 3}), DType::f64), i = cast(waves({3, 3}, 5), DType::i32);
  EXPECT_EQ(matmul(d, d).dtype(), DType::f64);
  EXPECT_EQ(linear(d, d).dtype(), DType::f64);
  EXPECT_EQ(matmul(i, i).dtype(), DType::i32);
  EXPECT_EQ(layer_norm(d, {}, {}).dtype(), DType::f64);
  EXPECT_THROW(matmul(d, waves({3, 3})), DTypeError);
}

// The product of what was rounded, with f32 sums and an exact bias, rounded once.
TEST(Autocast, ALinearRoundsItsInputsAndItsResultOnce) {
  const Tensor x = waves({6, 40}), w = waves({7, 40}, 1, 2), b = waves({7}, 1, 3);
  for (const DType type : kHalves) {
    Tensor y;
    {
      const Autocast scope(type);
      y = linear(x, w, b);
    }
    EXPECT_EQ(y.dtype(), type);
    const auto rounded = [&](const Tensor& t) { return cast(cast(t, type), DType::f32); };
    const Tensor wanted = cast(linear(rounded(x), rounded(w), b), type);
    EXPECT_EQ(cast(y, DType::f32).to_vector<float>(), cast(wanted, DType::f32).to_vector<float>());
  }
}

// A small network: embedding, norm, linear, attention, loss.
struct Network {
  Variable table{waves({11, 16}, 0.5), "table"}, gain{waves({16}, 0.1, 1), "gain"},
      qkv{waves({48, 16}, 0.25, 2), "qkv"}, bias{waves({48}, 0.1, 3), "bias"}, head{waves({11, 16}, 0.3, 4), "head"};
  std::vector<Variable> all() const { return {table, gain, qkv, bias, head}; }
  Tensor loss(const Tensor& inputs, const Tensor& wanted) const {
    const Tensor x = embedding(table, inputs);  // [2, 6, 16]
    const Tensor h = linear(layer_norm(x, gain, {}), qkv, bias);
    const Tensor heads = permute(reshape(h, {2, 6, 3, 2, 8}), {2, 0, 3, 1, 4});
    const Tensor mixed = attention(select(heads, 0, 0), select(heads, 0, 1), select(heads, 0, 2));
    const Tensor y = x + elementwise("gelu_tanh", {reshape(permute(mixed, {0, 2, 1, 3}), {2, 6, 16})});
    return cross_entropy(linear(y, head), wanted);
  }
};

Tensor tokens() { return tensor<std::int32_t>({1, 4, 9, 2, 0, 3, 8, 8, 1, 5, 10, 7}, {2, 6}); }
Tensor targets() { return tensor<std::int32_t>({4, 9, 2, 0, 3, 8, 8, 1, 5, 10, 7, 6}, {2, 6}); }

double relative_error(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<float>(), y = b.to_vector<float>();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - y[i], 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(Autocast, GradientsReachF32VariablesInF32) {
  const Network network;
  const std::vector<Variable> variables = network.all();
  const Tensor exact = network.loss(tokens(), targets());
  const std::vector<Tensor> wanted = grad(exact, variables);
  for (const DType type : kHalves) {
    const double unit = type == DType::f16 ? 0x1p-11 : 0x1p-8;
    Tensor loss;
    {
      const Autocast scope(type);
      loss = network.loss(tokens(), targets());
    }
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_NEAR(loss.item<float>(), exact.item<float>(), 4 * unit);
    const std::vector<Tensor> given = grad(loss, variables);
    bool beyond_narrow = false;
    for (std::size_t i = 0; i < given.size(); ++i) {
      EXPECT_EQ(given[i].dtype(), DType::f32);
      const double error = relative_error(given[i], wanted[i]);
      EXPECT_LT(error, 8 * unit) << variables[i].name();
      EXPECT_GT(error, 0) << variables[i].name() << ": nothing was narrow";
      const Tensor narrow = cast(cast(given[i], type), DType::f32);
      beyond_narrow |= narrow.to_vector<float>() != given[i].to_vector<float>();
    }
    EXPECT_TRUE(beyond_narrow);
  }
}

// Whether a scope lives while gradients are taken does not matter: they follow the forward pass.
TEST(Autocast, GradientsAreThoseOfTheForwardPass) {
  const Network network;
  const std::vector<Variable> variables = network.all();
  const Tensor plain = network.loss(tokens(), targets());
  const std::vector<Tensor> outside = grad(plain, variables);
  const Autocast scope(DType::bf16);
  const std::vector<Tensor> inside = grad(plain, variables);
  for (std::size_t i = 0; i < inside.size(); ++i)
    EXPECT_EQ(inside[i].to_vector<float>(), outside[i].to_vector<float>());
}

// Narrow gradients of a weight would lose the small one beside the large one.
TEST(Autocast, TheGradientOfAParameterIsNotRounded) {
  Variable w(tensor<float>({1, 1}, {1, 2}), "w");
  const Tensor x = tensor<float>({256, 1, 1, 256}, {2, 2});
  Tensor y;
  {
    const Autocast scope(DType::bf16);
    y = sum(linear(x, w));
  }
  EXPECT_EQ(grad(y, Tensor(w)).to_vector<float>(), (std::vector<float>{257, 257}));  // bf16 has 256 and 258
}

TEST(Autocast, CompiledFunctionsAreTracedForEachType) {
  const Network network;
  const auto step = compile([&](Tensor inputs, Tensor wanted) {
    const Tensor loss = network.loss(inputs, wanted);
    return std::vector<Tensor>{loss, grad(loss, network.all())[2]};
  });
  const std::vector<float> exact = step(tokens(), targets())[1].to_vector<float>();
  std::vector<float> narrow, again;
  {
    const Autocast scope(DType::bf16);
    narrow = step(tokens(), targets())[1].to_vector<float>();
    step(tokens(), targets());
    const Autocast f16(DType::f16);
    EXPECT_NE(step(tokens(), targets())[1].to_vector<float>(), narrow);
  }
  again = step(tokens(), targets())[1].to_vector<float>();
  EXPECT_NE(narrow, exact);
  EXPECT_EQ(again, exact);
  EXPECT_EQ(step.compiled().trace_count(), 3u);
}

// Eager and compiled agree by bits, also where a parameter's next value still waits to be computed.
TEST(Autocast, EagerAndCompiledAgree) {
  Network network;
  const auto gradients = [&](const Tensor& inputs, const Tensor& wanted) {
    const Autocast scope(DType::bf16);
    return grad(network.loss(inputs, wanted), network.all());
  };
  const std::vector<Tensor> compiled = compile(gradients)(tokens(), targets());
  network.qkv.assign(network.qkv.value() * 1.0);
  const std::vector<Tensor> eager = gradients(tokens(), targets());
  for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_LT(relative_error(eager[i], compiled[i]), 1e-6);
}

// The weights of all products become narrow in one kernel, and each product reads its slice of it.
TEST(Autocast, FlatWeightsAreCastOnce) {
  std::vector<Variable> weights;
  for (int i = 0; i < 4; ++i) weights.emplace_back(waves({64, 64}, 0.2, i), "w" + std::to_string(i));
  flatten_together(weights, "all");
  const auto chain = compile([&](Tensor x) {
    const Autocast scope(DType::bf16);
    for (const Variable& w : weights) x = elementwise("tanh", {linear(x, w)});
    return cast(x, DType::f32);
  });
  const Tensor x = waves({32, 64});
  const std::vector<float> once = chain(x).to_vector<float>();
  EXPECT_EQ(chain.compiled().kernel_count(), 6u) << chain.compiled().explain();  // x, the weights, four products
  compile_settings().disabled_rewrites = {"shared_casts"};
  const auto apart = compile([&](Tensor given) { return chain(given); });
  const std::vector<float> each = apart(x).to_vector<float>();
  compile_settings().disabled_rewrites.clear();
  EXPECT_EQ(once, each);
}

TEST(Autocast, ByNameAsByFunction) {
  const Tensor a = waves({3, 4}), b = waves({4, 5});
  const Autocast scope(DType::f16);
  const Tensor named = graph::apply(graph::op_row("matmul"), {a, b}, {}).at(0);
  EXPECT_EQ(named.node(), matmul(a, b).node());
}

// --- Products of bf16: views, windows, batches, epilogues and gradients. The values are small whole numbers, so sums in f32 are
// exact and every way to compute them gives the same bits.

Tensor whole(const Shape& shape, int seed) {
  std::vector<float> values;
  for (Extent i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>((i * 37 + i / 7 + seed) % 9 - 4));
  return tensor<float>(values, shape);
}

struct ProductCase {
  const char* name;
  Shape a, b;
  Tensor (*f)(const Tensor&, const Tensor&);
};

Tensor with_bias_and_relu(const Tensor& a, const Tensor& b) {
  const Tensor y = matmul(a, b);
  return relu(y + cast(whole(Shape{b.dim(1)}, 3), y.dtype())) * 0.5f;
}

const ProductCase kProductCases[] = {
    {"plain", {33, 65}, {65, 47}, [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
    {"odd depth", {5, 7}, {7, 3}, [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
    {"epilogue", {40, 15}, {15, 96}, with_bias_and_relu},
    {"transposed",
     {65, 33},
     {47, 65},
     [](const Tensor& a, const Tensor& b) { return matmul(transpose(a), transpose(b)); }},
    {"slices",
     {40, 80},
     {80, 60},
     [](const Tensor& a, const Tensor& b) { return matmul(slice(a, 1, 3, 70), slice(slice(b, 0, 3, 70), 1, 1, 58)); }},
    {"steps",
     {40, 80},
     {40, 60},
     [](const Tensor& a, const Tensor& b) { return matmul(slice(a, 1, 1, 80, 2), slice(b, 1, 0, 60, 3)); }},
    {"flipped",
     {20, 31},
     {31, 18},
     [](const Tensor& a, const Tensor& b) {
       return matmul(flip(a, {0}), flip(b, {0, 1}));
     }},
    {"padded",
     {20, 31},
     {37, 18},
     [](const Tensor& a, const Tensor& b) {
       return matmul(pad(a, {{0, 0}, {2, 4}}), b);
     }},
    {"batches", {3, 2, 17, 33}, {2, 33, 19}, [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
    {"heads",
     {2, 19, 4, 24},
     {2, 23, 4, 24},
     [](const Tensor& a, const Tensor& b) {
       return matmul(permute(a, {0, 2, 1, 3}), permute(b, {0, 2, 3, 1}));
     }},
    {"windows",
     {2, 5, 13, 11},
     {7, 5, 3, 3},
     [](const Tensor& a, const Tensor& b) { return conv2d(a, b, {}, {.padding = 1}); }},
    {"windows apart",
     {2, 6, 15, 14},
     {8, 3, 3, 2},
     [](const Tensor& a, const Tensor& b) {
       return conv2d(a, b, {}, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
     }},
};

class Bf16Ops : public testing::TestWithParam<ProductCase> {};

TEST_P(Bf16Ops, ValueAndGradientsAreThoseOfF32) {
  const ProductCase& c = GetParam();
  const Tensor a = whole(c.a, 1), b = whole(c.b, 5);
  const auto run = [&](DType type) {
    const Tensor x = cast(a, type), y = cast(b, type);
    x.eval(), y.eval();
    const Tensor value = c.f(x, y);
    const Tensor loss = sum(cast(value, DType::f32) * whole(value.shape(), 2));
    std::vector<Tensor> all{value};
    for (const Tensor& g : grad(loss, {x, y})) all.push_back(g);
    for (Tensor& t : all) t = cast(t, DType::bf16);
    return all;
  };
  const std::vector<Tensor> narrow = run(DType::bf16), wide = run(DType::f32);
  for (std::size_t i = 0; i < narrow.size(); ++i)
    EXPECT_EQ(cast(narrow[i], DType::f32).to_vector<float>(), cast(wide[i], DType::f32).to_vector<float>())
        << c.name << ", result " << i;
}

INSTANTIATE_TEST_SUITE_P(Forms, Bf16Ops, testing::ValuesIn(kProductCases), [](const auto& info) {
  std::string name = info.param.name;
  for (char& letter : name)
    if (letter == ' ') letter = '_';
  return name;
});

}  // namespace
}  // namespace weft
