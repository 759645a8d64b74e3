// Runs plans on the software renderer lavapipe and compares every element of every buffer with the reference.
// WEFT_TEST_WEBGPU=required makes a missing adapter a failure.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/webgpu/backend.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "kernel_reference.hpp"
#include "tensor/element.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

#if WEFT_HAS_WEBGPU
#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/command_sequence.hpp"

namespace weft::webgpu {

/// The backend that all render tests share; null where there is no adapter.
inline backend::Backend* test_backend(std::string* reason = nullptr) {
  static std::string why;
  static const std::unique_ptr<backend::Backend> backend = [&]() -> std::unique_ptr<backend::Backend> {
    test::choose_lavapipe();
    try {
      return make_webgpu_backend(0, {.validate = true, .cache_folder = std::filesystem::path()});
    } catch (const DeviceError& error) {
      why = error.what();
      return nullptr;
    }
  }();
  if (reason) *reason = why;
  return backend.get();
}

class RenderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (test_backend(&reason)) return;
    const char* required = std::getenv("WEFT_TEST_WEBGPU");
    if (required && std::string(required) == "required") FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

/// The cases that a test runs. lavapipe takes seconds to compile a shader, so only the first `few` run there, unless
/// WEFT_TEST_ALL_SHADERS is set; other adapters run all.
template <class Case, std::size_t count>
std::span<const Case> cases_to_run(const Case (&cases)[count], std::size_t few) {
  static const bool compiles_slowly = list_adapters().at(0).name.find("llvmpipe") != std::string::npos;
  return std::span(cases).first(compiles_slowly && !std::getenv("WEFT_TEST_ALL_SHADERS") ? few : count);
}

/// A buffer of a test plan: its elements before the run, and their type.
struct TestBuffer {
  DType type = DType::f32;
  reference::Values values;
};

inline std::vector<unsigned char> to_host(const TestBuffer& buffer) {
  std::vector<unsigned char> host(bytes_of(buffer.type, buffer.values.size()));
  for (std::size_t i = 0; i < buffer.values.size(); ++i) write_element(buffer.type, buffer.values[i], host.data(), i);
  return host;
}

inline reference::Values from_host(DType type, const std::vector<unsigned char>& host, std::size_t count) {
  reference::Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = read_element(type, host.data(), i);
  return values;
}

/// In the layout of the device, where a bool is a word.
inline std::vector<unsigned char> to_device(const TestBuffer& buffer) {
  return to_host(buffer.type == DType::boolean ? TestBuffer{DType::u32, buffer.values} : buffer);
}

/// Runs the plan over the buffers on the device; returns them as they are afterwards.
inline std::vector<reference::Values> run_on_device(backend::Backend& backend, kernel::Plan plan,
                                                    const std::vector<TestBuffer>& buffers,
                                                    std::string* source = nullptr) {
  std::vector<backend::BufferPtr> externals;
  plan.buffers.clear();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::vector<unsigned char> host = to_host(buffers[i]);
    plan.buffers.push_back({static_cast<int>(i), buffers[i].values.size() * 4, "buffer " + std::to_string(i)});
    externals.push_back(backend.allocate(buffers[i].values.size() * 4, plan.buffers.back().label));
    if (!host.empty())
      backend.upload(*externals.back(), 0, static_cast<Extent>(buffers[i].values.size()), buffers[i].type, host.data());
  }
  const std::unique_ptr<backend::Program> program = backend.compile(plan);
  if (source) *source = program->source();
  program->run(externals);
  std::vector<reference::Values> results;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::size_t count = buffers[i].values.size();
    std::vector<unsigned char> host(bytes_of(buffers[i].type, count));
    if (!host.empty()) backend.download(*externals[i], 0, static_cast<Extent>(count), buffers[i].type, host.data());
    results.push_back(from_host(buffers[i].type, host, count));
  }
  return results;
}

/// Elements that no kernel writes must be untouched, so that a write beside a range shows.
inline void expect_same(const kernel::Plan& plan, const std::vector<TestBuffer>& buffers, double tolerance = 1e-5) {
  std::string source;
  std::vector<reference::Values> wanted;
  for (const TestBuffer& buffer : buffers) wanted.push_back(buffer.values);
  reference::run(plan, wanted);
  const std::vector<reference::Values> got = run_on_device(*test_backend(), plan, buffers, &source);
  int shown = 0;
  for (std::size_t b = 0; b < wanted.size(); ++b)
    for (std::size_t i = 0; i < wanted[b].size() && shown < 5; ++i) {
      const double w = wanted[b][i], g = got[b][i];
      if (w == g || (std::isnan(w) && std::isnan(g))) continue;
      if (compute_type(buffers[b].type) == DType::f32 && std::abs(w - g) <= tolerance * (1 + std::abs(w))) continue;
      ADD_FAILURE() << "buffer " << b << " element " << i << ": got " << g << ", wanted " << w;
      ++shown;
    }
  if (shown > 0) ADD_FAILURE() << source;
}

/// Runs dispatches over the buffers; returns those as they are afterwards. `rewrite`: changes the text of each shader first.
inline std::vector<reference::Values> results_of(const Rendered& rendered, const std::vector<TestBuffer>& buffers,
                                                 std::string (*rewrite)(std::string) = nullptr) {
  static const std::shared_ptr<Device> device = Device::open(0, {.validate = true, .cache_folder = {}});
  Recording recording;
  std::vector<std::shared_ptr<Buffer>> own;
  for (const TestBuffer& buffer : buffers) {
    own.push_back(Buffer::create(device, buffer.values.size() * 4, "buffer"));
    const std::vector<unsigned char> host = to_device(buffer);
    own.back()->upload(0, host.data(), host.size());
    recording.slots.push_back({own.back()});
  }
  for (std::uint64_t bytes : rendered.scratch_bytes)
    recording.slots.push_back({Buffer::create(device, bytes, "scratch")});
  for (const RenderedDispatch& dispatch : rendered.dispatches) {
    Shader shader{dispatch.name, dispatch.shader.text(), {}};
    if (rewrite) shader.text = rewrite(std::move(shader.text));
    Dispatch command{
        dispatch.name, static_cast<int>(recording.shaders.size()), {}, fold_workgroups(dispatch.workgroups)};
    for (const BoundRange& range : dispatch.bindings) {
      shader.read_only.push_back(!range.written);
      command.bindings.push_back({range.buffer, range.offset, range.bytes});
    }
    command.repeats = dispatch.repeats;
    recording.shaders.push_back(shader);
    recording.commands.emplace_back(command);
  }
  CommandSequence(device, recording).run({});
  std::vector<reference::Values> results;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const DType type = buffers[b].type == DType::boolean ? DType::u32 : buffers[b].type;
    std::vector<unsigned char> host(bytes_of(type, buffers[b].values.size()));
    own[b]->download(0, host.data(), host.size());
    results.push_back(from_host(type, host, buffers[b].values.size()));
  }
  return results;
}

/// Runs dispatches made of `kernel` and compares with the reference, as expect_same does for a plan.
inline void replay(const Rendered& rendered, const kernel::Plan& plan, const std::vector<TestBuffer>& buffers,
                   double tolerance, std::string (*rewrite)(std::string) = nullptr) {
  const std::vector<reference::Values> results = results_of(rendered, buffers, rewrite);
  std::vector<reference::Values> wanted;
  for (const TestBuffer& buffer : buffers) wanted.push_back(buffer.values);
  reference::run(plan, wanted);
  int shown = 0;
  for (std::size_t b = 0; b < wanted.size(); ++b) {
    for (std::size_t i = 0; i < results[b].size() && shown < 5; ++i) {
      const double got = results[b][i];
      if (got == wanted[b][i] || (std::isnan(got) && std::isnan(wanted[b][i]))) continue;
      if (std::abs(got - wanted[b][i]) <= tolerance * (1 + std::abs(wanted[b][i]))) continue;
      ADD_FAILURE() << "buffer " << b << " element " << i << ": got " << got << ", wanted " << wanted[b][i];
      ++shown;
    }
  }
  if (shown > 0) ADD_FAILURE() << rendered.dispatches.at(0).shader.text();
}
inline void replay(const Rendered& rendered, const kernel::Kernel& kernel, const std::vector<TestBuffer>& buffers,
                   double tolerance, std::string (*rewrite)(std::string) = nullptr) {
  kernel::Plan plan;
  plan.kernels.push_back(kernel);
  replay(rendered, plan, buffers, tolerance, rewrite);
}

inline kernel::View contiguous(std::vector<Extent> extents) {
  kernel::View view;
  view.strides.assign(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * extents[d];
  view.extents = std::move(extents);
  return view;
}

inline TestBuffer random_buffer(std::mt19937& random, DType type, Extent count) {
  TestBuffer buffer{type, reference::Values(static_cast<std::size_t>(count))};
  std::normal_distribution<float> normal;
  for (double& value : buffer.values)
    value = type == DType::f32                 ? normal(random)
            : type == DType::boolean           ? static_cast<double>(random() % 2)
            : compute_type(type) == DType::f32 ? rounded_to(type, normal(random))
            : type == DType::i32               ? static_cast<double>(static_cast<int>(random() % 41) - 20)
                                               : static_cast<double>(random() % 40);
  return buffer;
}

}  // namespace weft::webgpu
#endif
