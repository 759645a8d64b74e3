// Runs compiled graphs on the device under test through the backend contract, with guard regions around every buffer that
// is given to it, and on the slow reference.
// WEFT_TEST_DEVICE names the device (default cpu), WEFT_TEST_DRIVER the Vulkan driver (webgpu_driver.hpp).
// WEFT_TEST_WEBGPU=required makes a missing adapter a failure.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "compile/evaluate_plan.hpp"
#include "runtime/devices.hpp"
#include "tensor/element.hpp"
#include "webgpu_driver.hpp"
#include "weft/device.hpp"

namespace weft::test {

inline std::string environment(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

/// The device under test; `problem` says why there is none.
inline std::optional<Device> device_under_test(std::string* problem) {
  const std::string name = environment("WEFT_TEST_DEVICE", "cpu");
  if (name != "cpu") {
    if (choose_driver().empty()) {
      *problem = "WEFT_TEST_DRIVER names a driver that is not there";
      return std::nullopt;
    }
  }
  try {
    const Device device = parse_device(name);
    runtime::backend_of(device);
    return device;
  } catch (const Error& error) {
    *problem = error.what();
    return std::nullopt;
  }
}

class Conformance : public testing::Test {
 protected:
  void SetUp() override {
    static std::string problem;
    static const std::optional<Device> found = device_under_test(&problem);
    if (!found) {
      if (environment("WEFT_TEST_WEBGPU", "") == "required") FAIL() << problem;
      GTEST_SKIP() << problem;
    }
    device_ = *found;
  }
  backend::Backend& backend() { return runtime::backend_of(device_); }
  bool computes(DType type) {
    const auto& types = backend().describe().dtypes;
    return std::find(types.begin(), types.end(), type) != types.end();
  }
  Device device() const { return device_; }
  bool is_cpu() const { return device_.kind == Device::Kind::cpu; }

  using Results = std::vector<std::vector<double>>;

  /// Values of the outputs as the device computes them.
  Results run(const std::vector<Tensor>& outputs, const Arguments& arguments) {
    return run(outputs, arguments, target());
  }
  /// What the device says of itself; a test may take kernels away from it.
  compiler::Target target() const { return runtime::target_of(device_); }
  Results run(const std::vector<Tensor>& outputs, const Arguments& arguments, const compiler::Target& target) {
    compiler::Request request;
    for (const Tensor& t : outputs) request.outputs.push_back(t.node());
    compiler::Compiled compiled = compiler::compile(request, target, {});
    // Every external buffer gets a guard on both sides: operands move up by it.
    const Extent guard =
        static_cast<Extent>(std::max<std::size_t>(target.offset_alignment, 256));  // elements: whole alignments
    std::vector<Operand> externals(static_cast<std::size_t>(compiled.external_count));
    for (std::size_t i = 0; i < compiled.leaves.size(); ++i)
      if (const auto& values = arguments.of(compiled.leaves[i].get()); graph::has_packed_layout(*compiled.leaves[i]))
        externals[i] = {DType::u32, static_cast<Extent>(values.size()), &values};
      else
        externals[i] = {compiled.leaves[i]->type, compiled.leaves[i]->shape.numel(), &values};
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      auto& external = externals[static_cast<std::size_t>(compiled.output_external[o])];
      if (!external.values) external = {outputs[o].dtype(), outputs[o].numel(), nullptr};
    }
    for (kernel::Kernel& k : compiled.plan.kernels) shift(k, compiled.plan, guard);
    for (auto& buffer : compiled.plan.buffers)
      if (buffer.external >= 0) {
        const Operand& external = externals[static_cast<std::size_t>(buffer.external)];
        buffer.bytes = target.storage_bytes(external.type, external.count + 2 * guard);
      }
    std::vector<backend::BufferPtr> buffers;
    for (const Operand& external : externals) {
      const std::size_t count = static_cast<std::size_t>(external.count + 2 * guard);
      buffers.push_back(backend().allocate(target.storage_bytes(external.type, external.count + 2 * guard), "guarded"));
      std::vector<double> values(count, sentinel(external.type));
      if (external.values) std::copy(external.values->begin(), external.values->end(), values.begin() + guard);
      upload(*buffers.back(), external.type, values);
    }
    const auto program = backend().compile(compiled.plan);
    for (int repeat = 0; repeat < 2; ++repeat) program->run(buffers);  // a replay must give the same
    backend().synchronize();
    std::vector<std::vector<double>> found;
    for (std::size_t e = 0; e < externals.size(); ++e) {
      const Operand& external = externals[e];
      std::vector<double> values = download(*buffers[e], external.type, external.count + 2 * guard);
      for (Extent i = 0; i < guard; ++i)
        if (values[static_cast<std::size_t>(i)] != sentinel(external.type) ||
            values[static_cast<std::size_t>(guard + external.count + i)] != sentinel(external.type)) {
          ADD_FAILURE() << "buffer " << e << ": a kernel wrote outside of its operand, near element " << i
                        << " of a guard\n"
                        << kernel::to_string(compiled.plan);
          break;
        }
      values = std::vector<double>(values.begin() + guard, values.begin() + guard + external.count);
      if (external.values)
        for (std::size_t i = 0; i < values.size(); ++i)
          if (std::bit_cast<std::uint64_t>(values[i]) != std::bit_cast<std::uint64_t>((*external.values)[i]) &&
              !(std::isnan(values[i]) && std::isnan((*external.values)[i]))) {
            ADD_FAILURE() << "operand " << e << " was changed";
            break;
          }
      found.push_back(std::move(values));
    }
    Results results;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      results.push_back(found[static_cast<std::size_t>(compiled.output_external[o])]);
    return results;
  }

  /// Compares with the reference: NaN and infinities exactly, the rest within relative and absolute tolerance.
  void expect_like_reference(const std::vector<Tensor>& outputs, const Arguments& arguments, double relative = 2e-5,
                             double absolute = 2e-6) {
    const Results expected = evaluate(outputs, arguments), actual = run(outputs, arguments);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      expect_close(actual[o], expected[o], relative, absolute, fmt::format("output {}", o));
  }
  static void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double relative,
                           double absolute, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    double scale = 0;  // of the whole result: sums cancel
    for (double v : expected)
      if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
    int shown = 0;
    for (std::size_t i = 0; i < actual.size() && shown < 3; ++i) {
      const double a = actual[i], e = expected[i];
      const bool same = a == e || (std::isnan(a) && std::isnan(e));
      const bool close = std::isfinite(a) && std::isfinite(e) &&
                         std::fabs(a - e) <= absolute + relative * std::max(std::fabs(e), 0.1 * scale);
      if (same || close) continue;
      ++shown;
      ADD_FAILURE() << what << ", element " << i << " of " << actual.size() << ": " << a << ", expected " << e;
    }
  }

 private:
  struct Operand {
    DType type = DType::f32;
    Extent count = 0;
    const std::vector<double>* values = nullptr;
  };
  static double sentinel(DType type) {
    if (type == DType::boolean) return 1;
    const Element& row = element(type);
    if (is_storage(type)) return row.highest;
    if (row.bits <= 16) return row.is_signed ? -112 : 177;  // every type of few bits has these
    return row.is_signed ? -12345678 : 3735928559.0;
  }

  static void shift(kernel::Kernel& k, const kernel::Plan& plan, Extent by) {
    kernel::visit_operands(k, [&](kernel::Operand& operand, bool) {
      if (plan.buffers[static_cast<std::size_t>(operand.buffer)].external >= 0) operand.offset += by;
    });
  }

  void upload(backend::Buffer& to, DType type, const std::vector<double>& values) {
    std::vector<std::byte> host(bytes_of(type, values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) write_element(type, values[i], host.data(), i);
    backend().upload(to, 0, static_cast<Extent>(values.size()), type, host.data());
  }
  std::vector<double> download(backend::Buffer& from, DType type, Extent count) {
    std::vector<std::byte> host(bytes_of(type, static_cast<std::size_t>(count)));
    backend().download(from, 0, count, type, host.data());
    std::vector<double> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      values.push_back(read_element(type, host.data(), i));
    return values;
  }

  Device device_;
};

}  // namespace weft::test
