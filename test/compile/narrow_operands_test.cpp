// Products and attention that read narrow operands through the casts in front of them: which kernels are left, what they
// read, and that the values stay the same bit by bit.
#include "compile/narrow_operands.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "compile/evaluate_plan.hpp"
#include "compile/plan_check.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

constexpr DType kNarrow[] = {DType::f16,   DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1, DType::int4,
                             DType::uint4, DType::int2, DType::uint2,    DType::ternary,  DType::binary};

compiler::Target reading_all() {
  compiler::Target target = reference_target();
  target.product_reads = target.attention_reads = {std::begin(kNarrow), std::end(kNarrow)};
  return target;
}

compiler::Compiled compiled(const std::vector<Tensor>& outputs, const compiler::Target& target,
                            const compiler::Settings& settings = {}) {
  compiler::Request request;
  for (const Tensor& t : outputs) request.outputs.push_back(t.node());
  request.may_overwrite.assign(outputs.size(), nullptr);
  compiler::Compiled result = compiler::compile(request, target, settings);
  EXPECT_EQ(broken_promise(result, target), "") << kernel::to_string(result.plan);
  return result;
}

template <class Form>
std::vector<const Form*> kernels_of(const compiler::Compiled& c) {
  std::vector<const Form*> found;
  for (const kernel::Kernel& k : c.plan.kernels)
    if (const auto* form = std::get_if<Form>(&k)) found.push_back(form);
  return found;
}

class NarrowOperands : public testing::Test {
 protected:
  Tensor narrow_leaf(DType type, const Shape& shape) {
    std::vector<double> values;
    for (Extent i = 0; i < shape.numel(); ++i) values.push_back(std::uniform_real_distribution<double>(-3, 3)(random_));
    return arguments_.make(shape, std::move(values), type);
  }
  static Tensor wide(const Tensor& x) { return cast(x, DType::f32); }

  /// The plan of the outputs: `kernels` of them, or of those with the rule off `kernels_off`; the bits are the same.
  compiler::Compiled expect_kernels(const std::vector<Tensor>& outputs, std::size_t kernels, std::size_t kernels_off) {
    const compiler::Target target = reading_all();
    const compiler::Settings off{.disabled_rewrites = {"narrow_operands"}};
    compiler::Compiled on = compiled(outputs, target);
    const compiler::Compiled without = compiled(outputs, target, off);
    EXPECT_EQ(on.plan.kernels.size(), kernels) << kernel::to_string(on.plan);
    EXPECT_EQ(without.plan.kernels.size(), kernels_off) << kernel::to_string(without.plan);
    const auto a = run_plan(on, outputs, arguments_), b = run_plan(without, outputs, arguments_);
    for (std::size_t o = 0; o < a.size(); ++o) {
      EXPECT_EQ(a[o].size(), b[o].size());
      EXPECT_EQ(std::memcmp(a[o].data(), b[o].data(), a[o].size() * sizeof(double)), 0) << "output " << o;
    }
    return on;
  }

  Arguments arguments_;
  std::mt19937_64 random_{5};
};

TEST_F(NarrowOperands, EveryTypeIsReadByTheProductItself) {
  for (const DType type : kNarrow)
    for (const bool left : {false, true})
      for (const bool right : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(type), left, right));
        const Tensor a = narrow_leaf(type, left ? Shape{9, 5} : Shape{5, 9}),
                     b = narrow_leaf(type, right ? Shape{7, 9} : Shape{9, 7});
        const Tensor x = left ? transpose(wide(a)) : wide(a), y = right ? wide(transpose(b)) : wide(b);
        const compiler::Compiled c = expect_kernels({matmul(x, y) * 2.0}, 1, 3);
        const auto* product = kernels_of<kernel::MatmulKernel>(c).at(0);
        EXPECT_EQ(product->a.type, type);
        EXPECT_EQ(product->b.type, type);
        EXPECT_EQ(product->type(), DType::f32);
      }
}

TEST_F(NarrowOperands, ProductsOfHalvesHaveNoCastKernels) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Tensor a = narrow_leaf(type, {6, 8}), b = narrow_leaf(type, {8, 4}), bias = narrow_leaf(type, {4});
    const compiler::Compiled c = expect_kernels({matmul(matmul(a, b) + bias, transpose(b))}, 2, 4);
    for (const auto* product : kernels_of<kernel::MatmulKernel>(c)) {
      EXPECT_EQ(product->a.type, type);
      EXPECT_EQ(product->b.type, type);
      EXPECT_EQ(product->epilogue.outputs[0].type, type);
    }
  }
}

TEST_F(NarrowOperands, GradientsReadTheSameValues) {
  const Tensor x = narrow_leaf(DType::f16, {6, 8}), w = narrow_leaf(DType::f16, {8, 4}),
               g = narrow_leaf(DType::f16, {6, 4});
  const Tensor inputs[] = {x, w};
  const std::vector<Tensor> back = grad(sum(cast(matmul(x, w) * g, DType::f32)), inputs);
  const compiler::Compiled c = expect_kernels(back, 3, 5);
  for (const auto* product : kernels_of<kernel::MatmulKernel>(c)) {
    EXPECT_EQ(product->a.type, DType::f16);
    EXPECT_EQ(product->b.type, DType::f16);
  }
}

TEST_F(NarrowOperands, ViewsOnBothSidesBecomeOne) {
  for (const DType type : {DType::bf16, DType::int4, DType::binary}) {
    SCOPED_TRACE(name_of(type));
    const Tensor x = narrow_leaf(type, {4, 6, 40}), y = narrow_leaf(DType::f16, {40, 3});
    // A slice that begins within a byte, permuted after the cast.
    const Tensor part = permute(wide(slice(x, 2, 3, 34)), {1, 0, 2});
    expect_kernels({matmul(part, wide(slice(y, 0, 2, 33)))}, 1, 3);
    // Repeated for each matrix of the batch.
    expect_kernels({matmul(wide(x), expand(wide(unsqueeze(y, 0)), {4, 40, 3}))}, 1, 3);
    // Heads of a longer row, and every other row.
    const Tensor heads = permute(reshape(wide(x), {4, 6, 2, 20}), {0, 2, 1, 3});
    expect_kernels({matmul(heads, transpose(heads))}, 1, 2);
    expect_kernels({matmul(slice(wide(x), 1, 1, 6, 2), wide(y))}, 1, 3);
  }
}

TEST_F(NarrowOperands, PackedOperandsBeginAtAWholeByte) {
  const Tensor x = narrow_leaf(DType::int2, {40}), y = narrow_leaf(DType::f16, {5, 4});
  for (const Extent begin : {Extent{0}, Extent{3}, Extent{9}, Extent{18}}) {
    const Tensor rows = reshape(slice(x, 0, begin, begin + 20), {4, 5});
    const compiler::Compiled c = expect_kernels({matmul(wide(rows), wide(y))}, 1, 3);
    const kernel::MatmulKernel& product = *kernels_of<kernel::MatmulKernel>(c).at(0);
    EXPECT_EQ(product.a.offset % 8, 0);
    EXPECT_EQ(product.a.offset + product.a_view.at.batch.offset, begin);
    EXPECT_LE(product.a.count, begin % 8 + 20);
  }
}

TEST_F(NarrowOperands, PadsAndWindowsAreRead) {
  for (const DType type : {DType::bf16, DType::uint4}) {
    const Tensor row = narrow_leaf(type, {2, 40}), filter = narrow_leaf(DType::f16, {3, 5});
    const Tensor windows = unfold(pad(wide(row), {{0, 0}, {1, 1}}), 1, 3);
    const compiler::Compiled c = expect_kernels({matmul(reshape(windows, {80, 3}), wide(filter))}, 1, 3);
    const kernel::MatmulKernel& product = *kernels_of<kernel::MatmulKernel>(c).at(0);
    EXPECT_EQ(product.a.type, type);
    EXPECT_FALSE(product.a_view.edges.empty());
  }
  // Binary numbers have no 0.
  const Tensor row = narrow_leaf(DType::binary, {2, 40}), filter = narrow_leaf(DType::f16, {3, 5});
  const Tensor windows = unfold(pad(wide(row), {{0, 0}, {1, 1}}), 1, 3);
  expect_kernels({matmul(reshape(windows, {80, 3}), wide(filter))}, 2, 3);
}

TEST_F(NarrowOperands, ACastThatOthersReadIsComputedForThem) {
  const Tensor x = narrow_leaf(DType::f16, {6, 8}), w = narrow_leaf(DType::int4, {8, 4});
  const Tensor values = wide(x);
  const compiler::Compiled c = expect_kernels({matmul(values, wide(w)), values}, 2, 3);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(0)->a.type, DType::f16);
  EXPECT_EQ(kernels_of<kernel::LoopKernel>(c).size(), 1u);
}

TEST_F(NarrowOperands, AComputedValueIsStoredNarrow) {
  const Tensor x = narrow_leaf(DType::f16, {6, 8}), w = narrow_leaf(DType::f16, {8, 4});
  const compiler::Compiled c = expect_kernels({matmul(tanh(x), w)}, 2, 3);
  EXPECT_EQ(kernels_of<kernel::LoopKernel>(c).at(0)->outputs[0].type, DType::f16);
}

TEST_F(NarrowOperands, ACastThatComputesStays) {
  const Tensor x = narrow_leaf(DType::int4, {6, 8}), w = narrow_leaf(DType::f16, {8, 4});
  const Tensor scaled = wide(x) * 0.5;  // computed, and so not only converted
  const Tensor rounded =
      cast(cast(arguments_.make({4, 8}, std::vector<double>(32, 1.2345678)), DType::bf16), DType::f32);
  const compiler::Compiled c = expect_kernels({matmul(scaled, wide(w)), matmul(rounded, wide(w))}, 4, 4);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(0)->a.type, DType::f32);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(1)->a.type, DType::bf16);
}

TEST_F(NarrowOperands, ACastThatRoundsStays) {
  const Tensor x = narrow_leaf(DType::f16, {6, 8}), w = narrow_leaf(DType::f16, {8, 4});
  const compiler::Compiled c = expect_kernels({matmul(wide(cast(x, DType::bf16)), wide(w))}, 2, 3);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(0)->a.type, DType::bf16);
}

TEST_F(NarrowOperands, ACastStaysWhereNoStridesLeadThrough) {
  // Rows and columns are both far apart: the value is copied, and the copy converts it.
  const Tensor x = narrow_leaf(DType::f16, {6, 3, 8, 3}), w = narrow_leaf(DType::f16, {8, 4});
  const Tensor picked = select(select(x, 3, 1), 1, 0);
  const compiler::Compiled c = expect_kernels({matmul(wide(picked), wide(w))}, 2, 3);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(0)->a.type, DType::f32);
  EXPECT_EQ(kernels_of<kernel::MatmulKernel>(c).at(0)->b.type, DType::f16);
}

TEST_F(NarrowOperands, ADeviceReadsItsOwnTypesOnly) {
  const Tensor x = narrow_leaf(DType::f16, {6, 8}), w = narrow_leaf(DType::int4, {8, 4});
  const std::vector<Tensor> outputs{matmul(x, cast(w, DType::f16))};  // an int4 behind two conversions
  const auto types_with = [&](std::vector<DType> reads, std::size_t kernels) {
    compiler::Target target = reference_target();
    target.product_reads = std::move(reads);
    const compiler::Compiled c = compiled(outputs, target);
    EXPECT_EQ(c.plan.kernels.size(), kernels) << kernel::to_string(c.plan);
    const kernel::MatmulKernel& product = *kernels_of<kernel::MatmulKernel>(c).at(0);
    return std::pair(product.a.type, product.b.type);
  };
  EXPECT_EQ(types_with({}, 3), std::pair(DType::f32, DType::f32));
  EXPECT_EQ(types_with({DType::f16}, 2), std::pair(DType::f16, DType::f16));
  EXPECT_EQ(types_with({DType::int4}, 2), std::pair(DType::f32, DType::int4));
  EXPECT_EQ(types_with({DType::f16, DType::int4}, 1), std::pair(DType::f16, DType::int4));
}

// A product of i32 reads eight-bit integers where both operands are such, in any mixture of signs.
TEST_F(NarrowOperands, IntegersOfEightBits) {
  compiler::Target target = reference_target();
  target.integer_product_reads = {DType::i8, DType::u8};
  const Tensor signed_x = narrow_leaf(DType::i8, {6, 8}), unsigned_y = narrow_leaf(DType::u8, {8, 4}),
               wide_y = narrow_leaf(DType::i32, {8, 4});
  const auto types_of = [&](const Tensor& output, std::size_t kernels) {
    const compiler::Compiled c = compiled({output}, target);
    EXPECT_EQ(c.plan.kernels.size(), kernels) << kernel::to_string(c.plan);
    const kernel::MatmulKernel& product = *kernels_of<kernel::MatmulKernel>(c).at(0);
    return std::pair(product.a.type, product.b.type);
  };
  EXPECT_EQ(types_of(int_matmul(signed_x, unsigned_y), 1), std::pair(DType::i8, DType::u8));
  EXPECT_EQ(types_of(int_matmul(transpose(unsigned_y), transpose(signed_x)), 1), std::pair(DType::u8, DType::i8));
  EXPECT_EQ(types_of(matmul(signed_x, transpose(signed_x)), 1), std::pair(DType::i8, DType::i8))
      << "whose sums are cast to i8";
  EXPECT_EQ(types_of(int_matmul(signed_x, wide_y), 2), std::pair(DType::i32, DType::i32)) << "only one is narrow";
  EXPECT_EQ(int_matmul(signed_x, unsigned_y).dtype(), DType::i32);
}

TEST_F(NarrowOperands, NothingAndRepeatedRows) {
  const Tensor none = narrow_leaf(DType::f16, {4, 0}), w = narrow_leaf(DType::f16, {0, 3});
  const auto zeros = run_plan(compiled({matmul(none, w)}, reading_all()), {matmul(none, w)}, arguments_);
  EXPECT_EQ(zeros[0], std::vector<double>(12, 0.0));
  const Tensor row = narrow_leaf(DType::f16, {1, 8}), y = narrow_leaf(DType::f16, {8, 3});
  const Tensor outputs[] = {matmul(expand(wide(row), {5, 8}), wide(y))};
  const auto with = evaluate({outputs[0]}, arguments_, {}, reading_all()), without = evaluate({outputs[0]}, arguments_);
  EXPECT_EQ(with, without);
}

TEST_F(NarrowOperands, BytesMovedAreThoseOfTheNarrowTypes) {
  const Tensor x = narrow_leaf(DType::f16, {32, 64}), w = narrow_leaf(DType::int4, {64, 16});
  const auto bytes = [&](const compiler::Settings& settings) {
    double sum = 0;
    for (const kernel::Kernel& k : compiled({matmul(wide(x), wide(w))}, reading_all(), settings).plan.kernels)
      sum += kernel::bytes_moved(k);
    return sum;
  };
  const double result = 32 * 16 * 4, a = 32 * 64, b = 64 * 16;
  EXPECT_EQ(bytes({}), 2 * a + b / 2 + result);
  EXPECT_EQ(bytes({.disabled_rewrites = {"narrow_operands"}}), 2 * a + b / 2 + 8 * a + 8 * b + result);
}

TEST_F(NarrowOperands, AttentionReadsThem) {
  for (const DType type : {DType::f16, DType::bf16, DType::fp8_e5m2}) {
    SCOPED_TRACE(name_of(type));
    const Shape shape{2, 2, 6, 8};
    const Tensor q = wide(narrow_leaf(type, shape)), k = wide(narrow_leaf(type, shape)),
                 v = wide(narrow_leaf(type, shape));
    // The second kernel puts heads before positions.
    const compiler::Compiled c = expect_kernels({attention(q, k, v)}, 2, 3);
    const auto* attended = kernels_of<kernel::AttentionKernel>(c).at(0);
    for (const auto* tensor : {&attended->q, &attended->k, &attended->v}) EXPECT_EQ(tensor->operand.type, type);
    EXPECT_EQ(attended->o.operand.type, DType::f32);
    EXPECT_EQ(attended->type(), DType::f32);
    EXPECT_NE(kernel::to_string(c.plan).find(fmt::format("x{}", name_of(type))), std::string::npos);
  }
}

TEST_F(NarrowOperands, AttentionReadsThemGoingBackward) {
  const Shape shape{1, 2, 6, 8};
  const Tensor q = narrow_leaf(DType::f16, shape), k = narrow_leaf(DType::f16, shape),
               v = narrow_leaf(DType::f16, shape), g = narrow_leaf(DType::f16, shape);
  const Tensor inputs[] = {q, k, v};
  const std::vector<Tensor> back = grad(sum(cast(attention(q, k, v) * g, DType::f32)), inputs);
  // Forward, what flows in, backward, the gradients as f16. With the rule off one kernel casts all, as they are small.
  const compiler::Compiled c = expect_kernels(back, 4, 4);
  for (const auto* attended : kernels_of<kernel::AttentionKernel>(c)) {
    EXPECT_EQ(attended->q.operand.type, DType::f16);
    EXPECT_EQ(attended->v.operand.type, DType::f16);
    if (attended->backward) {
      EXPECT_EQ(attended->d_o.operand.type, DType::f16);
    }
    EXPECT_EQ(attended->o.operand.type, DType::f32);
  }
}

}  // namespace
}  // namespace weft::test
