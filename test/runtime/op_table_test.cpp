// What holds of every row of the op table: cases give what the decomposition gives, gradients agree with differences, and
// what a row refuses is refused with its message.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/gradient_check.hpp"
#include "runtime/op_cases.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using graph::OpCase;
using graph::OpRow;

// In primitives, on the same device.
struct InParts {
  InParts() { compile_settings().fused_composites = false; }
  ~InParts() { compile_settings().fused_composites = true; }
};

template <class Visit>
void for_each_case(Visit visit) {
  for (const OpRow* row : graph::op_rows())
    for (const OpCase& one : row->cases) {
      SCOPED_TRACE(fmt::format("{}: {}", row->name, one.name));
      try {
        visit(*row, one);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
}

bool has_gradients(const OpRow& row, const OpCase& one) { return row.differentiable && one.compares_gradients; }

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 1e-30;
  for (double x : b)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isnan(b[i])) {
      ASSERT_TRUE(std::isnan(a[i])) << "element " << i;
    } else if (a[i] != b[i]) {
      ASSERT_NEAR(a[i], b[i], relative * largest) << "element " << i;
    }
}

TEST(OpTable, CasesGiveWhatTheirDecompositionGives) {
  int compared = 0;
  for_each_case([&](const OpRow& row, const OpCase& one) {
    const DType type = DType::f32, exact = runtime::takes(row, one.inputs, DType::f64) ? DType::f64 : DType::f32;
    const auto got = runtime::case_results(row, one, type, has_gradients(row, one));
    std::vector<std::vector<double>> values;
    for (const Tensor& t : got) values.push_back(runtime::numbers_of(t));
    const InParts parts;
    const auto wanted = runtime::case_results(row, one, exact, has_gradients(row, one));
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(fmt::format("result {}", i));
      EXPECT_EQ(got[i].shape(), wanted[i].shape());
      expect_close(values[i], runtime::numbers_of(wanted[i]), 2e-5);
    }
    ++compared;
  });
  EXPECT_GT(compared, 90);
}

TEST(OpTable, GradientsAgreeWithDifferences) {
  GradientCheck check;
  for_each_case([&](const OpRow& row, const OpCase& one) {
    if (!has_gradients(row, one) || !runtime::takes(row, one.inputs, DType::f64)) return;
    Extent elements = 0;
    for (const graph::CaseInput& input : one.inputs) elements += input.shape.numel();
    if (elements > 20000) return;  // sums of so many lose what differences need
    const graph::Tensors inputs = runtime::case_inputs(one.inputs, DType::f64);
    std::vector<Leaf> leaves;
    for (const Tensor& x : inputs)
      if (x.defined() && is_float(x.dtype())) leaves.push_back({x.shape(), runtime::numbers_of(x)});
    if (leaves.empty()) return;
    check(
        row.name + ": " + one.name,
        [&](std::span<const Tensor> x) {
          graph::Tensors given = inputs;
          std::size_t next = 0;
          for (Tensor& input : given)
            if (input.defined() && is_float(input.dtype())) input = x[next++];
          return graph::apply(row, given, one.attributes)[0];
        },
        leaves, elements < 2000);
  });
  EXPECT_GT(check.count(), 90);
}

TEST(OpTable, WhatARowRefusesIsRefusedByName) {
  int refused = 0;
  for (const OpRow* row : graph::op_rows())
    for (const graph::ErrorCase& one : row->errors) {
      SCOPED_TRACE(fmt::format("{}: {}", row->name, one.name));
      ++refused;
      try {
        graph::apply(*row, runtime::case_inputs(one.inputs, DType::f32), one.attributes);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const InternalError& error) {
        ADD_FAILURE() << "an internal error: " << error.what();
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find(one.message), std::string::npos) << message;
        EXPECT_TRUE(message.find(row->name) != std::string::npos || message.find(':') != std::string::npos) << message;
      }
    }
  EXPECT_GT(refused, 50);
}

TEST(OpTable, RowsAreWhole) {
  std::set<std::string> names;
  for (const OpRow* row : graph::op_rows()) {
    SCOPED_TRACE(row->name);
    EXPECT_TRUE(names.insert(row->name).second);
    for (const std::string& alias : row->aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_FALSE(row->doc.empty());
    EXPECT_EQ(row->doc.back(), '.');
    EXPECT_FALSE(row->family.empty());
    EXPECT_TRUE(row->apply || row->infer);
    EXPECT_TRUE(!row->infer || row->decompose || row->form != graph::KernelForm::none);
    EXPECT_FALSE(row->is_composite() && row->cases.empty());
    for (const graph::AttributeSpec& attribute : row->attributes) EXPECT_FALSE(attribute.doc.empty());
  }
}

TEST(OpTable, AttributesAreCheckedByType) {
  const OpRow& row = graph::op_row("softmax");
  const Tensor x = ones({2, 3});
  auto message = [&](const graph::CaseAttributes& attributes) -> std::string {
    try {
      graph::apply(row, {x}, attributes);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message({{"axis", 1.0}}), "");
  EXPECT_EQ(message({{"dim", Extent{-1}}}), "");
  EXPECT_NE(message({{"axis", 0.5}}).find("softmax: attribute axis is \"0.5\", not an integer"), std::string::npos);
  EXPECT_NE(message({{"axes", Extent{0}}}).find("unknown attribute \"axes\"; softmax has axis"), std::string::npos);
  EXPECT_NE(message({{"axis", Extent{0}}, {"dim", Extent{1}}}).find("is given twice"), std::string::npos);
  EXPECT_THROW(graph::op_row("softmaxx"), UsageError);
  EXPECT_THROW(graph::apply(row, {x, x}, {}), UsageError);
  EXPECT_THROW(graph::apply(row, {}, {}), UsageError);
}

// Composites are written out in other ops; their names stay with what those ops become.
TEST(OpTable, NamesOfCompositesReachTheirKernels) {
  const Tensor x = rand({64, 32}).eval();
  EXPECT_NE(explain(layer_norm(x, ones({32}), zeros({32}))).find("layer_norm"), std::string::npos);
  const Tensor rows = softmax(x, 1);
  EXPECT_NE(explain(rows).find("softmax"), std::string::npos);
  const Tensor gradient = grad(sum(softmax(x, 1) * x), x);
  EXPECT_NE(explain(gradient).find("softmax.grad"), std::string::npos) << explain(gradient);
}

}  // namespace
}  // namespace weft::test
