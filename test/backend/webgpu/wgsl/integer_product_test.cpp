// Products of eight-bit integers on a GPU: every bit, by dot products and on subgroup matrices (emulated where there are none).
#include "backend/webgpu/wgsl/matmul/integer_product.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using reference::Values;

bool has_integer_matrices() {
  static const bool has = test_facts(Device::open(0, {.validate = true, .cache_folder = {}})).integer_matrices;
  return has;
}

Product integer_product(std::mt19937& random, const char* layout, Extent batch, Extent m, Extent n, Extent k, DType a,
                        DType b, bool extreme = false) {
  Product p = product(random, layout, batch, m, n, k, DType::i8);
  p.kernel.a.type = p.buffers[0].type = a;
  p.kernel.b.type = p.buffers[1].type = b;
  for (int o = 0; o < 2; ++o) {
    const DType type = o == 0 ? a : b;
    const double least = type == DType::i8 ? -128 : 0;
    for (double& x : p.buffers[static_cast<std::size_t>(o)].values)
      x = extreme ? (type == DType::i8 ? -128 : 255) : least + static_cast<double>(random() % 256);
  }
  return p;
}

void expect_exact(const Product& p, IntegerForm form) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = running_matrix_gpu();
  render_integers(p.kernel, form, target, scratch, rendered);
  const bool emulate = form == IntegerForm::matrices && !has_integer_matrices();
  const std::vector<Values> got = results_of(rendered, p.buffers, emulate ? emulated : nullptr);
  std::vector<Values> wanted;
  for (const TestBuffer& buffer : p.buffers) wanted.push_back(buffer.values);
  kernel::Plan plan;
  plan.kernels.emplace_back(p.kernel);
  reference::run(plan, wanted);
  for (std::size_t i = 0; i < wanted[2].size(); ++i) ASSERT_EQ(got[2][i], wanted[2][i]) << "element " << i;
}

using WgslMatricesIntegerTest = RenderTest;

TEST_F(WgslMatricesIntegerTest, EveryTypeLayoutAndEdge) {
  std::mt19937 random(91);
  struct Trial {
    const char* layout;
    Extent batch, m, n, k;
    DType a, b;
    bool extreme = false;
  };
  const Trial trials[] = {
      {"nt", 1, 64, 64, 64, DType::i8, DType::i8},        {"nn", 2, 37, 45, 83, DType::i8, DType::u8},
      {"tn", 1, 70, 130, 129, DType::u8, DType::i8},      {"tt", 1, 65, 63, 200, DType::u8, DType::u8},
      {"nt", 1, 66, 68, 150, DType::i8, DType::i8, true}, {"nn", 1, 20, 24, 1000, DType::u8, DType::u8, true}};
  for (const IntegerForm form : {IntegerForm::dots, IntegerForm::matrices})
    for (const Trial& t : trials) {
      // Emulation is slow: a product of both signs, and one of the other kind.
      if (form == IntegerForm::matrices && !has_integer_matrices() && &t != &trials[1] && &t != &trials[4]) continue;
      SCOPED_TRACE(
          fmt::format("{} {} x {} x {}, {}", t.layout, t.m, t.n, t.k, form == IntegerForm::dots ? "dots" : "matrices"));
      expect_exact(integer_product(random, t.layout, t.batch, t.m, t.n, t.k, t.a, t.b, t.extreme), form);
    }
}

TEST_F(WgslMatricesIntegerTest, ManySizes) {
  std::mt19937 random(92);
  const bool on_matrices = has_integer_matrices();
  const Extent step = on_matrices ? 7 : 39;  // each size is a shader more
  for (Extent size = 5; size <= 200; size += step) {
    const Extent other = 5 + static_cast<Extent>(random() % 60), depth = 1 + static_cast<Extent>(random() % 200);
    SCOPED_TRACE(fmt::format("{} x {} x {}", size, other, depth));
    const DType a = random() % 2 ? DType::i8 : DType::u8, b = random() % 2 ? DType::i8 : DType::u8;
    expect_exact(integer_product(random, random() % 2 ? "nn" : "nt", 1, size, other, depth, a, b), IntegerForm::dots);
    if (on_matrices)
      expect_exact(integer_product(random, random() % 2 ? "nt" : "tn", 1, other, size, depth, a, b),
                   IntegerForm::matrices);
  }
}

TEST_F(WgslMatricesIntegerTest, AsAReductionToo) {
  std::mt19937 random(93);
  const Product p = integer_product(random, "nn", 1, 3, 20, 50, DType::u8, DType::i8);
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  Target target = kLargeGpu;
  target.subgroup_size = 0;  // those of software adapters are small
  render(p.kernel, target, scratch, rendered);
  EXPECT_EQ(rendered.dispatches.size(), 1u);
  replay(rendered, p.kernel, p.buffers, 0);
}

TEST(WgslMatricesIntegerChoiceTest, FactsDecide) {
  std::mt19937 random(94);
  const Product p = integer_product(random, "nn", 1, 64, 64, 64, DType::i8, DType::i8);
  const auto last = [&](bool matrices, bool dots) {
    Target target = kLargeGpu;
    target.lists_integer_matrices = true;
    target.tested.integer_matrices = matrices;
    target.tested.integer_dots = dots;
    Rendered rendered;
    Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
    render(p.kernel, target, scratch, rendered);
    return rendered.dispatches.back().name;
  };
  EXPECT_EQ(last(true, true), "matmul.matrices");
  EXPECT_EQ(last(false, true), "matmul.dots");
  EXPECT_EQ(last(false, false), "matmul");
}

}  // namespace
}  // namespace weft::webgpu
#endif
