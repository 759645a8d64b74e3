// Every gradient against central differences: the rows of the op table in several layouts, reductions, views, products,
// gathers and composites.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "ops/parse.hpp"
#include "ops/table.hpp"
#include "runtime/gradient_check.hpp"
#include "weft/ops/attention.hpp"

namespace weft::test {
namespace {

// ---- Rows ---------------------------------------------------------------------------------------------------------------

// The layouts of the inputs of a row in memory: the leaf's shape, and the view of it that the op reads.
struct Layout {
  const char* name;
  std::function<Shape(std::size_t input)> leaf_shape;
  std::function<Tensor(const Tensor&)> view;
  bool small = false;  // several leaf elements are read at once, or none
};

std::vector<Layout> layouts() {
  auto same = [](const Tensor& x) { return x; };
  return {
      {"contiguous",
       [](std::size_t) {
         return Shape{2, 3};
       },
       same},
      {"transposed",
       [](std::size_t) {
         return Shape{3, 2};
       },
       [](const Tensor& x) { return transpose(x); }},
      {"strided",
       [](std::size_t) {
         return Shape{2, 7};
       },
       [](const Tensor& x) { return slice(x, 1, -2, kEnd, -2); }},
      {"broadcast",
       [](std::size_t input) {
         return input == 0 ? Shape{2, 3} : input == 1 ? Shape{3} : Shape{2, 1};
       },
       same},
      {"broadcast first",
       [](std::size_t input) {
         return input == 0 ? Shape{1, 3} : Shape{2, 3};
       },
       same},
      {"expanded",
       [](std::size_t) {
         return Shape{1, 3};
       },
       [](const Tensor& x) {
         return expand(x, {2, 2, 3});
       }},
      {"rank 0", [](std::size_t) { return Shape{}; }, same},
      {"one element",
       [](std::size_t) {
         return Shape{1, 1, 1};
       },
       same},
      {"empty",
       [](std::size_t) {
         return Shape{2, 0};
       },
       same},
      {"one", [](std::size_t) { return Shape{5}; }, [](const Tensor& x) { return flip(x, {0}); }},
  };
}

// Points of the row's tested range, so that no pairing of broadcast elements is near a kink.
std::vector<Leaf> points(const ops::ElementwiseRow& row, const Layout& layout, std::mt19937_64& random) {
  std::vector<std::string> names(row.inputs.begin(), row.inputs.end());
  for (const auto& attribute : row.attributes) names.emplace_back(attribute.name);
  std::vector<scalar::Expression> kinks;
  for (std::string_view text : row.kinks) kinks.push_back(scalar::parse(text, names));
  std::vector<Leaf> leaves;
  for (int trial = 0; trial < 10000; ++trial) {
    leaves.clear();
    for (std::size_t i = 0; i < row.inputs.size(); ++i) {
      const ops::Range range = row.tested.of(i);
      // Large values of steep functions leave no digits to differences.
      leaves.push_back(random_leaf(layout.leaf_shape(i), random, std::max(range.lo, -20.0), std::min(range.hi, 20.0)));
    }
    bool near = false;
    std::vector<double> at(names.size());
    for (std::size_t a = 0; a < row.attributes.size(); ++a) at[row.inputs.size() + a] = row.attributes[a].tested;
    std::function<void(std::size_t)> every_pairing = [&](std::size_t input) {
      if (input == leaves.size()) {
        for (const auto& kink : kinks) near |= std::fabs(scalar::evaluate(kink, at)) < 2e-3;
        return;
      }
      for (double v : leaves[input].values) {
        at[input] = v;
        every_pairing(input + 1);
      }
    };
    if (!kinks.empty()) every_pairing(0);
    if (!near) return leaves;
  }
  ADD_FAILURE() << row.name << ": no points away from the kinks";
  return leaves;
}

TEST(GradientCheckOfRows, EveryLayoutFirstAndSecondOrder) {
  GradientCheck check;
  std::mt19937_64 random(3);
  for (const ops::ElementwiseRow* row : ops::elementwise_rows()) {
    if (!row->differentiable || !ops::allows(row->dtypes, DType::f64)) continue;
    std::vector<double> attributes;
    for (const auto& attribute : row->attributes) attributes.push_back(attribute.tested);
    for (const Layout& layout : layouts()) {
      const Function f = [&](std::span<const Tensor> leaves) {
        std::vector<Tensor> inputs;
        for (const Tensor& leaf : leaves) inputs.push_back(layout.view(leaf));
        return elementwise(row->name, inputs, attributes);
      };
      check(std::string(row->name) + ", " + layout.name, f, points(*row, layout, random), row->second_order);
    }
  }
  EXPECT_GE(check.count(), 1300);
}

// ---- Reductions ---------------------------------------------------------------------------------------------------------

TEST(GradientCheckOfReductions, EveryRowOverEveryKindOfAxes) {
  GradientCheck check;
  std::mt19937_64 random(5);
  const Axes axes_lists[] = {{}, {0}, {1}, {-1}, {0, 2}, {2, 1}, {0, 1, 2}};
  for (const ops::ReduceRow& row : ops::reduce_rows()) {
    if (!row.differentiable) continue;
    for (const Axes& axes : axes_lists)
      for (const bool keepdims : {false, true})
        for (const bool permuted : {false, true})
          check(fmt::format("{} over [{}]{}{}", std::string_view(row.name), fmt::join(axes, ", "),
                            keepdims ? ", kept" : "", permuted ? ", permuted" : ""),
                [&](std::span<const Tensor> x) {
                  return reduce(row.name, permuted ? permute(x[0], {2, 0, 1}) : x[0], axes, {.keepdims = keepdims});
                },
                {random_leaf({2, 3, 4}, random, row.tested.lo, row.tested.hi)});
    if (row.attributes.empty())  // the variance of one element has no value
      check(
          std::string(row.name) + " of one element",
          [&](std::span<const Tensor> x) { return reduce(row.name, x[0], {0}) * x[0]; },
          {random_leaf({1}, random, 0.5, 1)}, false);
  }
}

TEST(GradientCheckOfReductions, ProductsWithZerosAndExtremesWithTies) {
  GradientCheck check;
  check("one zero", [](std::span<const Tensor> x) { return prod(x[0], {1}); },
        {{{2, 4}, {1, 0, 3, -2, 0.5, 2, -1, 4}}});
  check("two zeros", [](std::span<const Tensor> x) { return prod(x[0]); }, {{{4}, {1, 0, 3, 0}}});
  // Ties share the gradient evenly, as a subgradient: checked by value.
  const Tensor x = tensor<double>({3, 1, 3, 2}, {4});
  EXPECT_EQ(grad(amax(x), x).to_vector<double>(), (Values{0.5, 0, 0.5, 0}));
  EXPECT_EQ(grad(amin(x * -1.0), x).to_vector<double>(), (Values{-0.5, 0, -0.5, 0}));
}

// ---- Views --------------------------------------------------------------------------------------------------------------

TEST(GradientCheckOfViews, EveryView) {
  GradientCheck check;
  std::mt19937_64 random(11);
  using Pads = std::vector<std::pair<Extent, Extent>>;
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> views = {
      {"reshape",
       [](const Tensor& x) {
         return reshape(x, {4, -1});
       }},
      {"permute",
       [](const Tensor& x) {
         return permute(x, {1, 2, 0});
       }},
      {"transpose", [](const Tensor& x) { return transpose(x, 0, -1); }},
      {"expand",
       [](const Tensor& x) {
         return expand(unsqueeze(x, 1), {2, 5, 3, 4});
       }},
      {"slice", [](const Tensor& x) { return slice(x, 1, 1); }},
      {"slice step 2", [](const Tensor& x) { return slice(x, 2, 1, kEnd, 2); }},
      {"slice step 3", [](const Tensor& x) { return slice(x, 2, 0, kEnd, 3); }},
      {"slice step -1", [](const Tensor& x) { return slice(x, 2, kEnd, kEnd, -1); }},
      {"slice step -2", [](const Tensor& x) { return slice(x, 2, -1, kEnd, -2); }},
      {"slice to nothing", [](const Tensor& x) { return slice(x, 1, 2, 1); }},
      {"narrow", [](const Tensor& x) { return narrow(x, 0, 1, 1); }},
      {"select", [](const Tensor& x) { return select(x, 2, -2); }},
      {"flip",
       [](const Tensor& x) {
         return flip(x, {0, 2});
       }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, Pads{{1, 0}, {0, 2}, {1, 1}});
       }},
      {"pad of a reshape",
       [](const Tensor& x) {
         return pad(reshape(pad(x, Pads{{0, 0}, {1, 0}, {0, 0}}), {4, 8}), Pads{{1, 0}, {0, 1}});
       }},
      {"squeeze", [](const Tensor& x) { return squeeze(narrow(x, 1, 0, 1), 1); }},
      {"flatten", [](const Tensor& x) { return flatten(x, 1, 2); }},
      {"concat",
       [](const Tensor& x) {
         return concat(std::vector<Tensor>{x, x * 2.0, x}, 1);
       }},
      {"stack",
       [](const Tensor& x) {
         return stack(std::vector<Tensor>{x, x * x}, -1);
       }},
      {"split",
       [](const Tensor& x) {
         const Extent lengths[] = {1, 3};
         const auto parts = split(x, lengths, 2);
         return parts[1] * expand(parts[0], {2, 3, 3});
       }},
      {"tril", [](const Tensor& x) { return tril(x); }},
      {"triu", [](const Tensor& x) { return triu(x, 1); }},
      {"a chain",
       [](const Tensor& x) {
         return slice(reshape(transpose(flip(x, {1})), {6, 4}), 0, kEnd, kEnd, -2);
       }},
  };
  for (const auto& [name, view] : views) {
    check(name, [&view = view](std::span<const Tensor> x) { return view(x[0]); }, {random_leaf({2, 3, 4}, random)});
    check(std::string(name) + " of a product",
          [&view = view](std::span<const Tensor> x) {
            const Tensor y = view(x[0] * x[0]);
            return y * y;
          },
          {random_leaf({2, 3, 4}, random)});
  }
}

// ---- Products and gathers -----------------------------------------------------------------------------------------------

TEST(GradientCheckOfProducts, EveryFormOfMatmul) {
  GradientCheck check;
  std::mt19937_64 random(13);
  const std::pair<Shape, Shape> forms[] = {{{3}, {3}},
                                           {{3}, {3, 2}},
                                           {{2, 3}, {3}},
                                           {{2, 3}, {3, 4}},
                                           {{5, 2, 3}, {3, 4}},
                                           {{2, 3}, {5, 3, 4}},
                                           {{5, 2, 3}, {5, 3, 4}},
                                           {{1, 2, 3}, {5, 3, 4}},
                                           {{2, 1, 2, 3}, {5, 3, 2}},
                                           {{5, 2, 3}, {3}},
                                           {{3}, {5, 3, 2}},
                                           {{1, 1}, {1, 1}},
                                           {{2, 0}, {0, 3}},
                                           {{0, 2}, {2, 3}},
                                           {{4, 1, 2, 3}, {1, 4, 3, 1}}};
  for (const auto& [a, b] : forms) {
    const std::string name = a.to_string() + " by " + b.to_string();
    check(name, [](std::span<const Tensor> x) { return matmul(x[0], x[1]); },
          {random_leaf(a, random), random_leaf(b, random)});
    check(name + ", with epilogue",
          [](std::span<const Tensor> x) { return elementwise("tanh", {matmul(x[0], x[1]) * 0.5}); },
          {random_leaf(a, random), random_leaf(b, random)});
    if (a.rank() < 2 || b.rank() < 2) continue;
    auto turned = [](Shape s) {
      std::swap(s[s.rank() - 1], s[s.rank() - 2]);
      return s;
    };
    check(name + ", both transposed",
          [](std::span<const Tensor> x) { return matmul(transpose(x[0]), transpose(x[1])); },
          {random_leaf(turned(a), random), random_leaf(turned(b), random)});
  }
  check("a matrix by itself", [](std::span<const Tensor> x) { return matmul(x[0], matmul(transpose(x[0]), x[0])); },
        {random_leaf({3, 2}, random)});
  check("linear", [](std::span<const Tensor> x) { return linear(x[0], x[1], x[2]); },
        {random_leaf({2, 5, 3}, random), random_leaf({4, 3}, random), random_leaf({4}, random)});
}

TEST(GradientCheckOfGathers, RowsAndElementsAndTheirSums) {
  GradientCheck check;
  std::mt19937_64 random(17);
  const Tensor rows = tensor<std::int32_t>({2, 0, 2, 5, -1, 1}, {2, 3});
  check("embedding", [&](std::span<const Tensor> x) { return embedding(x[0], rows); }, {random_leaf({4, 3}, random)});
  check("embedding, squared",
        [&](std::span<const Tensor> x) {
          const Tensor y = embedding(x[0] * x[0], rows);
          return y * y;
        },
        {random_leaf({4, 3}, random)});
  for (int axis = 0; axis < 3; ++axis) {
    Shape shape{2, 3, 4};
    shape[axis] = 5;
    std::vector<std::int32_t> positions;
    for (Extent i = 0; i < shape.numel(); ++i) positions.push_back(static_cast<std::int32_t>(i * 7 % 5) - 1);
    const Tensor indices = tensor<std::int32_t>(std::span<const std::int32_t>(positions), shape);
    check(fmt::format("take_along_axis {}", axis),
          [&](std::span<const Tensor> x) { return take_along_axis(x[0] * x[0], indices, axis); },
          {random_leaf({2, 3, 4}, random)});
  }
  // One index for many elements: along the axis of rows that is an embedding, along others it is not.
  for (int axis = 0; axis < 2; ++axis) {
    const Tensor one = expand(tensor<std::int32_t>({2, 0, 1, 1}, {4, 1}), {4, 4});
    check(fmt::format("take_along_axis {}, expanded indices", axis),
          [&](std::span<const Tensor> x) { return take_along_axis(x[0] * x[0], one, axis) * x[0]; },
          {random_leaf({4, 4}, random)});
  }
  for (int axis = 0; axis < 2; ++axis) {
    const Tensor one = expand(tensor<std::int32_t>({2}, {1, 1}), {4, 4});
    check(fmt::format("take_along_axis {}, one index for all", axis),
          [&](std::span<const Tensor> x) { return take_along_axis(x[0] * x[0], one, axis) * x[0]; },
          {random_leaf({4, 4}, random)});
  }
  const Tensor to = tensor<std::int32_t>({1, 1, 4, 0, -2});
  check("scatter_add",
        [&](std::span<const Tensor> x) {
          const Tensor y = scatter_add(to, x[0], 3);
          return y * y;
        },
        {random_leaf({5, 2, 2}, random)});
}

// ---- Composites ---------------------------------------------------------------------------------------------------------

TEST(GradientCheckOfComposites, SoftmaxNormsAndLosses) {
  GradientCheck check;
  std::mt19937_64 random(19);
  const Tensor targets = tensor<std::int32_t>({2, 0, -100, 1}, {2, 2});
  for (int axis = 0; axis < 3; ++axis) {
    check("softmax", [&](std::span<const Tensor> x) { return softmax(x[0], axis); },
          {random_leaf({2, 3, 4}, random, -3, 3)});
    check("log_softmax", [&](std::span<const Tensor> x) { return log_softmax(x[0], axis); },
          {random_leaf({2, 3, 4}, random, -3, 3)});
  }
  check("layer_norm", [](std::span<const Tensor> x) { return layer_norm(x[0], x[1], x[2], 1e-3); },
        {random_leaf({2, 3, 5}, random), random_leaf({5}, random), random_leaf({5}, random)});
  check("layer_norm without weights", [](std::span<const Tensor> x) { return layer_norm(x[0], {}, {}, 1e-3); },
        {random_leaf({3, 5}, random)});
  check("rms_norm", [](std::span<const Tensor> x) { return rms_norm(x[0], x[1]); },
        {random_leaf({2, 5}, random, 0.2, 1), random_leaf({5}, random)});
  check("cross_entropy", [&](std::span<const Tensor> x) { return cross_entropy(x[0], targets); },
        {random_leaf({2, 2, 3}, random, -3, 3)});
  check("mse_loss", [](std::span<const Tensor> x) { return mse_loss(x[0], x[1]); },
        {random_leaf({2, 3}, random), random_leaf({2, 3}, random)});
  check("rope", [](std::span<const Tensor> x) { return rope(x[0], 100, 2); }, {random_leaf({2, 3, 4}, random)});
  check("swiglu", [](std::span<const Tensor> x) { return swiglu(x[0], x[1]); },
        {random_leaf({2, 3}, random), random_leaf({2, 3}, random)});
}

TEST(GradientCheckOfComposites, Attention) {
  GradientCheck check;
  std::mt19937_64 random(23);
  for (const bool causal : {false, true})
    for (const Extent key_heads : {2, 1})
      for (const Extent keys : {1, 3, 5})  // 1: two queries see no key when causal
        check(fmt::format("attention{}, {} key heads, {} keys", causal ? ", causal" : "", key_heads, keys),
              [&](std::span<const Tensor> x) { return attention(x[0], x[1], x[2], causal, 0.7); },
              {random_leaf({2, 2, 3, 4}, random), random_leaf({2, key_heads, keys, 4}, random),
               random_leaf({2, key_heads, keys, 4}, random)});
  check("attention's gradient",  // so that third derivatives are met too
        [](std::span<const Tensor> x) {
          const Tensor y = attention(x[0], x[1], x[1]);
          return grad(sum(y * y), x)[1];
        },
        {random_leaf({1, 2, 2, 3}, random), random_leaf({1, 2, 2, 3}, random)});
  check(
      "attention with a mask, shared heads and a window",
      [](std::span<const Tensor> x) { return attention(x[0], x[1], x[2], {.scale = 0.7, .window = 3, .mask = x[3]}); },
      {random_leaf({2, 2, 3, 4}, random), random_leaf({2, 1, 4, 4}, random), random_leaf({2, 1, 4, 4}, random),
       random_leaf({2, 1, 1, 4}, random)});
  check("attention of sequences that drops shares",
        [](std::span<const Tensor> x) {
          manual_seed(3);  // the same shares each time
          return attention(x[0], x[1], x[2],
                           {.mask = x[3], .lengths = tensor<std::int32_t>({2, 3}, {1, 2}), .dropout = 0.4});
        },
        {random_leaf({1, 2, 5, 3}, random), random_leaf({1, 2, 5, 3}, random), random_leaf({1, 2, 5, 3}, random),
         random_leaf({2, 5, 1}, random)});
  check("self-attention", [](std::span<const Tensor> x) { return attention(x[0], x[0], x[0] * x[0]); },
        {random_leaf({1, 2, 3, 2}, random)});
}

TEST(GradientCheckOfComposites, APerceptronAndABlock) {
  GradientCheck check;
  std::mt19937_64 random(29);
  check("perceptron",
        [](std::span<const Tensor> x) { return linear(elementwise("gelu", {linear(x[0], x[1], x[2])}), x[3]); },
        {random_leaf({4, 3}, random), random_leaf({5, 3}, random), random_leaf({5}, random),
         random_leaf({2, 5}, random)});
  check("block",
        [](std::span<const Tensor> x) {
          const Tensor h = layer_norm(x[0], x[1], {}, 1e-3);
          const Tensor q = permute(reshape(linear(h, x[2]), {2, 3, 2, 2}), {0, 2, 1, 3});
          return x[0] + reshape(permute(attention(q, q, q), {0, 2, 1, 3}), {2, 3, 4});
        },
        {random_leaf({2, 3, 4}, random), random_leaf({4}, random), random_leaf({4, 4}, random)});
}

}  // namespace
}  // namespace weft::test
