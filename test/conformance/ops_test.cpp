// Conformance of the rows for which a device has its own kernels: the row's cases on the device against their
// decomposition on the CPU.
#include <gtest/gtest.h>

#include "conformance/device_run.hpp"
#include "graph/linear_algebra.hpp"
#include "runtime/op_cases.hpp"
#include "weft/compile.hpp"

namespace weft::test {
namespace {

class Ops : public Conformance {};

TEST_F(Ops, CasesOfRowsWithKernelsOfTheirOwn) {
  const Device device = parse_device(is_cpu() ? "cpu" : environment("WEFT_TEST_DEVICE", "cpu"));
  const Device before = default_device();
  int compared = 0;
  for (const graph::OpRow* row : graph::op_rows())
    for (const graph::OpCase& one : row->cases) {
      if (row->form != graph::KernelForm::routine) continue;
      if (!is_cpu() && (row->family == graph::kDecompositionFamily || row->family == "recurrent"))
        continue;  // no kernels
      SCOPED_TRACE(row->name + ": " + one.name);
      const bool with_gradients = row->differentiable && one.compares_gradients && is_cpu();
      set_default_device(device);
      std::vector<std::vector<double>> got;
      for (const Tensor& t : runtime::case_results(*row, one, DType::f32, with_gradients))
        got.push_back(runtime::numbers_of(t));
      set_default_device(kCpu);
      compile_settings().fused_composites = false;
      const DType exact = runtime::takes(*row, one.inputs, DType::f64) ? DType::f64 : DType::f32;
      const graph::Tensors wanted = runtime::case_results(*row, one, exact, with_gradients);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::vector<double> values = runtime::numbers_of(wanted[i]);
        double largest = 1e-30;
        for (double v : values)
          if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
        ASSERT_EQ(got[i].size(), values.size());
        for (std::size_t e = 0; e < values.size(); ++e) {
          const bool same = got[i][e] == values[e] || (std::isnan(got[i][e]) && std::isnan(values[e]));
          if (!same) {
            ASSERT_NEAR(got[i][e], values[e], 2e-5 * largest) << "result " << i << ", element " << e;
          }
        }
      }
      compile_settings().fused_composites = true;
      ++compared;
    }
  compile_settings().fused_composites = true;
  set_default_device(before);
  EXPECT_GE(compared, 10);
}

}  // namespace
}  // namespace weft::test
