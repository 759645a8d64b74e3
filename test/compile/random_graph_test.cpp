// Random graphs must give the same values however they are compiled: fusion, rewrites and fused composites on or off,
// buffers shared or kept apart.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "compile/evaluate_plan.hpp"
#include "compile/rewrite.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(std::uint64_t seed) : random_(seed) {}

  std::vector<Tensor> make(Arguments& arguments) {
    const int leaves = pick(2, 4);
    for (int i = 0; i < leaves; ++i) {
      Shape shape;
      for (int d = pick(0, 4); d > 0; --d) shape.push_back(pick(0, 20) == 0 ? 0 : pick(1, 5));
      values_.push_back(leaf(arguments, shape));
    }
    for (int i = pick(4, 22); i > 0; --i) grow(arguments);
    std::vector<Tensor> outputs;
    for (int i = pick(1, 4); i > 0; --i) outputs.push_back(any());
    outputs.push_back(values_.back());
    if (pick(0, 1)) {
      const Tensor y = sum(values_.back());
      for (int i = 0; i < leaves; ++i) outputs.push_back(grad(y, values_[static_cast<std::size_t>(i)]));
    }
    return outputs;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  Tensor any() { return values_[static_cast<std::size_t>(pick(0, static_cast<int>(values_.size()) - 1))]; }
  Tensor leaf(Arguments& arguments, const Shape& shape) {
    std::vector<double> values;
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (Extent i = 0; i < shape.numel(); ++i) values.push_back(uniform(random_));
    return arguments.make(shape, std::move(values));
  }

  void grow(Arguments& arguments) {
    const Tensor x = any();
    const int rank = x.rank();
    Tensor y;
    switch (pick(0, 15)) {
      case 0: y = elementwise("tanh", {x}); break;
      case 1: y = x * 0.5 + 0.25; break;
      case 2: y = elementwise("sigmoid", {x}) * x; break;
      case 3: case 4: {  // with another value of a shape that broadcasts
        Shape shape = x.shape();
        if (rank > 0 && pick(0, 1)) shape[pick(0, rank - 1)] = 1;
        for (const Tensor& other : values_)
          if (Shape joined; graph::broadcast_shapes(x.shape(), other.shape(), joined) && joined.numel() <= 4000 && pick(0, 1)) y = x + other * 0.5;
        if (!y.defined()) y = x * leaf(arguments, shape);
        break;
      }
      case 5: case 6:
        if (rank == 0) return;
        y = pick(0, 1) ? sum(x, {pick(0, rank - 1)}, {.keepdims = pick(0, 1) == 1}) * 0.3 : mean(x, {pick(0, rank - 1)}, {.keepdims = true});
        if (x.numel() == 0) y = sum(x, {0});
        break;
      case 7:
        if (rank == 0 || x.numel() == 0) return;
        y = softmax(x, pick(0, rank - 1));
        break;
      case 8: {
        Axes order(static_cast<std::size_t>(rank));
        for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = i;
        std::shuffle(order.begin(), order.end(), random_);
        y = permute(x, order);
        break;
      }
      case 9: y = rank > 1 && pick(0, 1) ? flatten(x, 0, 1) : unsqueeze(x, pick(0, rank)); break;
      case 10: {
        if (rank == 0) return;
        const int axis = pick(0, rank - 1);
        y = slice(x, axis, pick(0, 2), pick(0, 1) ? kEnd : 3, pick(1, 2));
        if (pick(0, 2) == 0) y = flip(x, {axis});
        break;
      }
      case 11: {
        std::vector<std::pair<Extent, Extent>> padding;
        for (int i = 0; i < rank; ++i) padding.emplace_back(pick(0, 1), pick(0, 1));
        y = pad(x, padding);
        break;
      }
      case 12: {
        if (rank == 0) return;
        const Tensor parts[] = {x, elementwise("neg", {x}), x};
        y = concat(parts, pick(0, rank - 1));
        break;
      }
      case 13: {
        if (rank < 2) return;
        y = matmul(x, pick(0, 1) ? transpose(x) : leaf(arguments, {x.dim(-1), pick(1, 4)}));
        break;
      }
      case 14: y = layer_or_norm(x); break;
      case 15:
        if (rank != 2 || x.dim(0) == 0) return;
        {
          std::vector<double> indices;
          for (int i = 0; i < 5; ++i) indices.push_back(pick(0, static_cast<int>(x.dim(0)) - 1));
          y = embedding(x, arguments.make({5}, indices, DType::i32));
        }
        break;
    }
    if (!y.defined() || y.numel() > 4000) return;
    values_.push_back(y);
  }
  Tensor layer_or_norm(const Tensor& x) {
    if (x.rank() == 0 || x.numel() == 0) return {};
    return layer_norm(x, {}, {}, 1e-2);
  }

  std::mt19937_64 random_;
  std::vector<Tensor> values_;
};

void expect_equal(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b, std::uint64_t seed, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t o = 0; o < a.size(); ++o) {
    ASSERT_EQ(a[o].size(), b[o].size()) << what << " seed " << seed;
    for (std::size_t i = 0; i < a[o].size(); ++i) {
      if (std::isnan(a[o][i]) && std::isnan(b[o][i])) continue;
      ASSERT_NEAR(a[o][i], b[o][i], 2e-4 * (1 + std::abs(a[o][i]))) << what << " seed " << seed << " output " << o << " element " << i;
    }
  }
}

TEST(RandomGraph, CompilesToTheSameValuesInEveryWay) {
  const char* count_text = std::getenv("WEFT_TEST_GRAPHS");
  const char* first_text = std::getenv("WEFT_TEST_SEED");
  const std::uint64_t count = count_text ? std::strtoull(count_text, nullptr, 10) : 500, first = first_text ? std::strtoull(first_text, nullptr, 10) : 1;
  std::vector<std::string> all_rewrites;
  for (const auto& rule : compiler::rewrites()) all_rewrites.emplace_back(rule.name);
  std::size_t fused_kernels = 0, plain_kernels = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    Arguments arguments;
    const std::vector<Tensor> outputs = RandomGraph(seed).make(arguments);
    std::size_t kernels = 0;
    std::vector<std::vector<double>> plain;
    try {
      plain = evaluate(outputs, arguments, {.fusion = false, .fused_composites = false, .disabled_rewrites = all_rewrites}, reference_target(), &kernels);
      plain_kernels += kernels;
      expect_equal(evaluate(outputs, arguments, {}, reference_target(), &kernels), plain, seed, "fused");
      fused_kernels += kernels;
      compiler::Target apart = reference_target();
      apart.prefers_separate_buffers = true;
      apart.offset_alignment = 4;
      apart.operands_max = 8;
      expect_equal(evaluate(outputs, arguments, {}, apart), plain, seed, "separate buffers");
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what() << "\n" << graph::to_string([&] { std::vector<graph::NodeRef> r; for (auto& t : outputs) r.push_back(t.node()); return r; }());
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(fused_kernels, plain_kernels);
}

}  // namespace
}  // namespace weft::test
