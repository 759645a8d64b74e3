// Random graphs must give the same values however they are compiled: fusion, rewrites and fused composites on or off,
// buffers shared or kept apart, results written over old values or not.
#include "compile/random_graph.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "compile/evaluate_plan.hpp"
#include "compile/plan_check.hpp"
#include "compile/rewrite.hpp"

namespace weft::test {
namespace {

using Results = std::vector<std::vector<double>>;

void expect_equal(const Results& a, const Results& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t o = 0; o < a.size(); ++o) {
    ASSERT_EQ(a[o].size(), b[o].size()) << what;
    for (std::size_t i = 0; i < a[o].size(); ++i) {
      if (a[o][i] == b[o][i] || (std::isnan(a[o][i]) && std::isnan(b[o][i]))) continue;
      ASSERT_NEAR(a[o][i], b[o][i], 3e-4 * (1 + std::abs(b[o][i]))) << what << ", output " << o << " element " << i;
    }
  }
}

compiler::Request request_of(const std::vector<Tensor>& outputs) {
  compiler::Request request;
  for (const Tensor& t : outputs) request.outputs.push_back(t.node());
  request.may_overwrite.assign(outputs.size(), nullptr);
  return request;
}

Results run(const compiler::Request& request, const std::vector<Tensor>& outputs, const Arguments& arguments,
            const compiler::Settings& settings, const compiler::Target& target, std::size_t* kernels = nullptr) {
  const compiler::Compiled compiled = compiler::compile(request, target, settings);
  const std::string broken = broken_promise(compiled, target);
  EXPECT_EQ(broken, "") << kernel::to_string(compiled.plan);
  if (kernels) *kernels += compiled.plan.kernels.size();
  return run_plan(compiled, outputs, arguments);
}

// Every output may take over the buffer of a leaf of its shape, as updates of Variables do.
compiler::Request overwriting(compiler::Request request) {
  std::set<const graph::Node*> taken;
  const auto leaves = graph::topological_order(request.outputs);
  for (std::size_t o = 0; o < request.outputs.size(); ++o)
    for (const graph::Node* leaf : leaves)
      if (leaf->kind == graph::Kind::input && leaf->shape == request.outputs[o]->shape &&
          leaf->type == request.outputs[o]->type && taken.insert(leaf).second) {
        request.may_overwrite[o] = leaf;
        break;
      }
  return request;
}

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomGraph, CompilesToTheSameValuesInEveryWay) {
  const std::uint64_t count = environment_number("WEFT_TEST_GRAPHS", 500),
                      first = environment_number("WEFT_TEST_SEED", 1);
  std::vector<std::string> all_rewrites{"narrow_operands"};
  for (const auto& rule : compiler::rewrites()) all_rewrites.emplace_back(rule.name);
  constexpr DType kNarrow[] = {DType::f16,  DType::bf16, DType::fp8_e4m3, DType::fp4_e2m1,
                               DType::int4, DType::int2, DType::ternary,  DType::binary};
  compiler::Target apart = reference_target();
  apart.prefers_separate_buffers = true;
  apart.offset_alignment = 4;
  apart.operands_max = 9;
  compiler::Target plain_target = reference_target();
  plain_target.has_kernel = nullptr;
  compiler::Target reading = reference_target();
  reading.product_reads = reading.attention_reads = {std::begin(kNarrow), std::end(kNarrow)};
  apart.product_reads = {DType::f16, DType::int4};
  std::size_t fused_kernels = 0, plain_kernels = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    Arguments arguments;
    std::vector<Tensor> outputs;
    try {
      RandomGraph random(seed);
      if (seed % 2 == 0) random.draw_narrow_operands_from(kNarrow);
      if (seed % 3 == 0) random.draw_windows();
      outputs = random.make(arguments);
      const compiler::Request request = request_of(outputs);
      const Results plain = run(request, outputs, arguments,
                                {.fusion = false, .fused_composites = false, .disabled_rewrites = all_rewrites},
                                plain_target, &plain_kernels);
      expect_equal(run(request, outputs, arguments, {}, reading, &fused_kernels), plain, "fused");
      expect_equal(
          run(request, outputs, arguments, {.disabled_rewrites = {all_rewrites[seed % all_rewrites.size()]}}, apart),
          plain, "separate buffers");
      expect_equal(run(overwriting(request), outputs, arguments, {.fused_composites = seed % 2 == 0},
                       seed % 3 ? apart : reference_target()),
                   plain, "in place");
    } catch (const std::exception& error) {
      std::vector<graph::NodeRef> roots;
      for (const Tensor& t : outputs) roots.push_back(t.node());
      FAIL() << error.what() << "\n" << graph::to_string(roots);
    }
    if (HasFailure()) {
      std::vector<graph::NodeRef> roots;
      for (const Tensor& t : outputs) roots.push_back(t.node());
      FAIL() << graph::to_string(roots);
    }
  }
  EXPECT_LT(fused_kernels, plain_kernels);
}

}  // namespace
}  // namespace weft::test
