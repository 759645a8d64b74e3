// The WebGPU device layer on the software renderer lavapipe: adapters, buffers, pipelines, replay, faults.
// WEFT_TEST_WEBGPU=required makes a missing adapter a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "backend/webgpu/adapter.hpp"
#include "base/log.hpp"
#include "base/message_of.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

#if WEFT_HAS_WEBGPU
#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/staging.hpp"
#include "base/sanitized.hpp"

namespace weft::webgpu {
namespace {

using test::message_of;
namespace fs = std::filesystem;

// The driver is read when the library makes its first instance, so the choice is made before any test.
const std::string kDriver = test::choose_lavapipe();

// A new folder that goes with the object.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "weft-webgpu-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

std::shared_ptr<Device> open_device(DeviceOptions options) { return Device::open(0, options); }

// One checked device for all tests that do not break it.
std::shared_ptr<Device> shared_device() {
  static const std::shared_ptr<Device> device = open_device({.validate = true, .cache_folder = {}});
  return device;
}

class WebgpuTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason = "no adapter";
    try {
      if (!list_adapters().empty()) return;
    } catch (const DeviceError& error) {
      reason = error.what();
    }
    const char* required = std::getenv("WEFT_TEST_WEBGPU");
    if (required && std::string(required) == "required") FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
}

std::vector<float> read_floats(const Buffer& buffer, std::size_t count) {
  std::vector<float> values(count);
  buffer.download(0, values.data(), count * sizeof(float));
  return values;
}

std::shared_ptr<Buffer> float_buffer(const std::shared_ptr<Device>& device, const std::vector<float>& values,
                                     const char* label) {
  auto buffer = Buffer::create(device, values.size() * sizeof(float), label);
  buffer->upload(0, values.data(), values.size() * sizeof(float));
  return buffer;
}

const Shader kDouble{"double",
                     "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
                     "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n"
                     "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {\n"
                     "  if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * x[id.x]; }\n"
                     "}\n",
                     {true, false}};
const Shader kIncrement{"increment",
                        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"
                        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {\n"
                        "  if (id.x < arrayLength(&y)) { y[id.x] += 1.0; }\n"
                        "}\n",
                        {false}};

// In processes of their own, because a process loads the library once.
void print_library_error_and_exit(const char* file) {
  setenv("WEFT_WEBGPU_LIBRARY", file, 1);
  fmt::print(stderr, "{}", message_of<Error>([] { list_adapters(); }));
  std::exit(3);
}

// What the library says where the system has no driver at all.
void count_messages_and_exit() {
  setenv("VK_ICD_FILENAMES", "/nowhere/driver.json", 1);
  setenv("VK_DRIVER_FILES", "/nowhere/driver.json", 1);
  int count = 0;
  set_log_sink([&](LogLevel level, std::string_view source, std::string_view) {
    if (level == LogLevel::warning && source == "webgpu") ++count;
  });
  list_adapters();
  fmt::print(stderr, "{} messages", count);
  std::exit(3);
}

TEST(WebgpuLibraryDeathTest, WarningsGoToTheLog) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  try {
    if (!library().is_dawn) GTEST_SKIP() << "only Dawn prints";
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_EXIT(count_messages_and_exit(), testing::ExitedWithCode(3), "^[1-9][0-9]* messages$");
}

TEST_F(WebgpuTest, NothingIsPrinted) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  list_adapters();
  const auto device = open_device({.validate = true, .cache_folder = {}});
  EXPECT_EQ(read_floats(*float_buffer(device, {1, 2}, "two"), 2), (std::vector<float>{1, 2}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(WebgpuLibraryDeathTest, WhatWasTriedIsListed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(print_library_error_and_exit("/nowhere/libdawn.so"), testing::ExitedWithCode(3),
              "/nowhere/libdawn.so: no such file(.|\n)*script/setup(.|\n)*WEFT_WEBGPU_LIBRARY");
  EXPECT_EXIT(print_library_error_and_exit("libm.so.6"), testing::ExitedWithCode(3),
              "libm.so.6: lacks wgpuCreateInstance");
  EXPECT_EXIT(print_library_error_and_exit("/proc/self/status"), testing::ExitedWithCode(3), "/proc/self/status: ");
}

// y = 2 x of two externals.
Recording double_recording(std::uint64_t bytes) {
  return {.slots = {{.external = 0}, {.external = 1}},
          .shaders = {kDouble},
          .commands = {Dispatch{.label = "twice",
                                .shader = 0,
                                .bindings = {{0, 0, bytes}, {1, 0, bytes}},
                                .workgroups = {static_cast<std::uint32_t>((bytes / 4 + 63) / 64), 1, 1}}}};
}

std::size_t resident_bytes() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(WebgpuTest, AdaptersTellWhatTheyAre) {
  const std::vector<AdapterInfo> adapters = list_adapters();
  const AdapterInfo& adapter = adapters.at(0);
  EXPECT_EQ(adapter.index, 0);
  EXPECT_EQ(adapter.backend, "Vulkan");
  EXPECT_FALSE(adapter.name.empty() || adapter.driver.empty());
  EXPECT_TRUE(adapter.f16);
  EXPECT_TRUE(adapter.subgroups);
  EXPECT_TRUE(adapter.timestamps);
  if (std::getenv("WEFT_TEST_ADAPTER")) {
    EXPECT_NE(adapter.type, AdapterType::unknown);
  } else {
    EXPECT_EQ(adapter.type, AdapterType::software);
    EXPECT_TRUE(contains(adapter.name, "llvmpipe"));
    EXPECT_TRUE(contains(adapter.driver, "Mesa"));
    EXPECT_EQ(adapter.subgroup_size_max, 8u);
  }
  EXPECT_GE(adapter.limits.binding_bytes, 128u << 20);
  EXPECT_GE(adapter.limits.workgroup_bytes, 32u << 10);
  EXPECT_GE(adapter.limits.immediate_bytes, 64u);
}

TEST(WebgpuAdapter, SoftwareIsUsedOnlyWhenNamed) {
  AdapterInfo software, real;
  software.index = 1, software.name = "llvmpipe", software.type = AdapterType::software;
  real.index = 0, real.name = "H200", real.type = AdapterType::discrete;
  EXPECT_EQ(choose_adapter(std::vector{software, real}), 1u);
  EXPECT_EQ(choose_adapter(std::vector{real, software}, 1), 1u);
  EXPECT_TRUE(contains(message_of<Error>([&] { choose_adapter(std::vector{software}); }), "webgpu:1  llvmpipe"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { choose_adapter(std::vector{real}, 5); }), "webgpu:5: there is no such adapter"));
  EXPECT_TRUE(contains(message_of<Error>([&] { choose_adapter({}); }), "no adapter was found"));
}

TEST_F(WebgpuTest, DeviceHasTheSwitchesItWasGiven) {
  const auto has = [](const Device& device, const char* toggle) {
    const std::vector<std::string> toggles = device.toggles();
    return std::find(toggles.begin(), toggles.end(), toggle) != toggles.end();
  };
  if (shared_device()->toggles().empty()) GTEST_SKIP() << "this library does not tell its switches";
  EXPECT_FALSE(has(*shared_device(), "skip_validation"));
  EXPECT_FALSE(has(*shared_device(), "disable_robustness"));
  EXPECT_TRUE(has(*shared_device(), "disable_workgroup_init"));
  EXPECT_FALSE(has(*shared_device(), "timestamp_quantization"));
  const auto fast = open_device({.validate = false, .robust = false, .cache_folder = {}});
  EXPECT_TRUE(has(*fast, "skip_validation"));
  EXPECT_TRUE(has(*fast, "disable_robustness"));
}

TEST_F(WebgpuTest, BytesComeBackAtAnyOffsetAndSize) {
  // 0 to 9 cover every position of edges in a word; the last sizes go through the small and the large staging memory.
  for (const std::uint64_t size : {0ull, 1ull, 2ull, 3ull, 5ull, 9ull, 4097ull, (64ull << 10) + 1, (17ull << 20) + 3})
    for (const std::uint64_t offset : {0ull, 1ull, 2ull, 3ull, 4ull}) {
      const auto buffer = Buffer::create(shared_device(), offset + size + 5, "bytes");
      std::vector<std::uint8_t> sent(offset + size + 5, 0xAA), expected = sent, got(sent.size(), 0);
      buffer->upload(0, sent.data(), sent.size());
      std::vector<std::uint8_t> part(size);
      for (std::size_t i = 0; i < size; ++i) part[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
      std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
      buffer->upload(offset, part.data(), size);
      buffer->download(0, got.data(), got.size());
      EXPECT_TRUE(got == expected) << "whole, size " << size << " offset " << offset;
      std::vector<std::uint8_t> again(size, 0);
      buffer->download(offset, again.data(), size);
      EXPECT_TRUE(again == part) << "part, size " << size << " offset " << offset;
    }
}

TEST_F(WebgpuTest, ReadingsHoldWhatWasThereWhenTheyBegan) {
  constexpr std::uint64_t kSizes[] = {8, 4096, 200 << 10, 64 << 10, 9 << 20, 200 << 10};
  for (int round = 0; round < 2; ++round) {  // the second in memory of the first
    std::vector<std::unique_ptr<Reading>> readings;
    const auto buffer = Buffer::create(shared_device(), 9 << 20, "changing");
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const std::vector<std::uint8_t> sent(kSizes[i], static_cast<std::uint8_t>(i + 1));
      buffer->upload(0, sent.data(), sent.size());
      const std::lock_guard lock(shared_device()->mutex());
      readings.push_back(shared_device()->staging().start_download(buffer->handle(), 0, kSizes[i]));
    }
    buffer->clear();
    for (const std::size_t i : {std::size_t{4}, std::size_t{0}, std::size_t{5}, std::size_t{1}, std::size_t{2}}) {
      std::vector<std::uint8_t> got(kSizes[i], 0);
      {
        const std::lock_guard lock(shared_device()->mutex());
        readings[i]->finish(got.data());
      }
      EXPECT_EQ(got, std::vector<std::uint8_t>(kSizes[i], static_cast<std::uint8_t>(i + 1))) << i;
    }  // and one that nobody waits for
  }
}

TEST_F(WebgpuTest, NewAndClearedBuffersAreZero) {
  const auto buffer = Buffer::create(shared_device(), 400, "zeros");
  EXPECT_EQ(read_floats(*buffer, 100), std::vector<float>(100, 0.0f));
  buffer->upload(0, std::vector<float>(100, 3.0f).data(), 400);
  buffer->clear();
  EXPECT_EQ(read_floats(*buffer, 100), std::vector<float>(100, 0.0f));
}

TEST_F(WebgpuTest, RangesOutsideABufferAreRefused) {
  const auto buffer = Buffer::create(shared_device(), 10, "ten");
  std::uint32_t word = 0;
  EXPECT_TRUE(contains(message_of<Error>([&] { buffer->upload(8, &word, 4); }), "\"ten\", which has 10"));
  EXPECT_TRUE(contains(message_of<Error>([&] { buffer->download(UINT64_MAX, &word, 4); }), "\"ten\", which has 10"));
}

TEST_F(WebgpuTest, ABufferOverTheLimitNamesLabelBytesAndLimit) {
  const std::uint64_t limit = shared_device()->info().limits.buffer_bytes;
  for (const std::uint64_t bytes : {limit + 1, std::uint64_t{UINT64_MAX}}) {
    const std::string message = message_of<Error>([&] { Buffer::create(shared_device(), bytes, "embedding.weight"); });
    EXPECT_TRUE(contains(message, "embedding.weight"));
    EXPECT_TRUE(contains(message, std::to_string(bytes)));
    EXPECT_TRUE(contains(message, std::to_string(limit)));
  }
  shared_device()->check();
}

TEST_F(WebgpuTest, AnOperandOverTheBindingLimitNamesItself) {
  const std::uint64_t bytes = shared_device()->info().limits.binding_bytes + 4;
  if (bytes > 1ull << 30 || bytes > shared_device()->info().limits.buffer_bytes) GTEST_SKIP() << "the limit is too far";
  const auto big = Buffer::create(shared_device(), bytes, "big");
  const auto small = Buffer::create(shared_device(), 64, "small");
  Recording recording = double_recording(64);
  std::get<Dispatch>(recording.commands[0]).bindings[0].bytes = bytes;
  CommandSequence program(shared_device(), recording);
  const std::string message = message_of<Error>([&] { program.run(std::vector<backend::BufferPtr>{big, small}); });
  EXPECT_TRUE(contains(message, "operand 0 (\"big\")"));
  EXPECT_TRUE(contains(message, std::to_string(bytes)));
}

TEST_F(WebgpuTest, AKernelComputes) {
  std::vector<float> values(1001);
  std::iota(values.begin(), values.end(), 0.0f);
  const auto x = float_buffer(shared_device(), values, "x");
  const auto y = Buffer::create(shared_device(), values.size() * 4, "y");
  CommandSequence program(shared_device(), double_recording(values.size() * 4));
  program.run(std::vector<backend::BufferPtr>{x, y});
  for (float& value : values) value *= 2;
  EXPECT_EQ(read_floats(*y, values.size()), values);
}

TEST_F(WebgpuTest, ImmediatesReachTheKernelAndCanBeReplaced) {
  const Shader shader{"affine",
                      shared_device()->info().immediates_directive +
                          "struct Parameters { count: u32, scale: f32, shift: f32 }\n"
                          "var<immediate> p: Parameters;\n"
                          "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"
                          "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {\n"
                          "  if (id.x < p.count) { y[id.x] = f32(id.x) * p.scale + p.shift; }\n"
                          "}\n",
                      {false},
                      12};
  const auto words = [](std::uint32_t count, float scale, float shift) {
    return std::vector<std::uint32_t>{count, std::bit_cast<std::uint32_t>(scale), std::bit_cast<std::uint32_t>(shift)};
  };
  const auto y = Buffer::create(shared_device(), 400, "y");
  CommandSequence program(
      shared_device(),
      {.slots = {{.buffer = y}},
       .shaders = {shader},
       .commands = {Dispatch{
           .label = "affine", .bindings = {{0, 0, 400}}, .workgroups = {2, 1, 1}, .immediates = words(90, 3, 2)}}});
  program.run({});
  std::vector<float> expected(100, 0.0f);
  for (int i = 0; i < 90; ++i) expected[i] = static_cast<float>(i) * 3 + 2;
  EXPECT_EQ(read_floats(*y, 100), expected);
  program.set_immediates(0, words(2, 5, 1));
  program.run({});
  expected[0] = 1, expected[1] = 6;
  EXPECT_EQ(read_floats(*y, 100), expected);
  EXPECT_THROW(program.set_immediates(0, std::vector<std::uint32_t>{1}), InternalError);
}

TEST(WebgpuFold, CoversTheCountWithinTheDimensions) {
  for (const std::uint64_t count : {0ull, 1ull, 65535ull, 65536ull, 65537ull, 131071ull, 1000003ull, 65535ull * 65535,
                                    65535ull * 65535 + 1, 1ull << 40}) {
    const Workgroups groups = fold_workgroups(count);
    const std::uint64_t total = std::uint64_t{groups.x} * groups.y * groups.z;
    EXPECT_LE(std::max({groups.x, groups.y, groups.z}), 65535u) << count;
    EXPECT_GE(total, count);
    EXPECT_LE(total - count, std::uint64_t{groups.y} * groups.z * 2) << count;
  }
  EXPECT_THROW(fold_workgroups(UINT64_MAX), DeviceError);
}

TEST_F(WebgpuTest, MoreWorkgroupsThanADimensionHolds) {
  const std::uint32_t count = 70001;  // of one invocation each
  const Workgroups groups = fold_workgroups(count);
  const Shader shader{"number",
                      "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n"
                      "@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3u,\n"
                      "                                    @builtin(num_workgroups) n: vec3u) {\n"
                      "  let i = (id.z * n.y + id.y) * n.x + id.x;\n"
                      "  if (i < 70001u) { y[i] += i; }\n"
                      "}\n",
                      {false}};
  const auto y = Buffer::create(shared_device(), count * 4, "y");
  CommandSequence program(
      shared_device(),
      {.slots = {{.buffer = y}},
       .shaders = {shader},
       .commands = {Dispatch{.label = "number", .bindings = {{0, 0, count * 4}}, .workgroups = groups}}});
  program.run({});
  std::vector<std::uint32_t> got(count), expected(count);
  y->download(0, got.data(), count * 4);
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_TRUE(got == expected);
}

TEST_F(WebgpuTest, AShaderThatDoesNotCompileIsShownWithItsLines) {
  for (const bool validate : {true, false}) {
    const auto device = open_device({.validate = validate, .cache_folder = {}});
    const Shader bad{"broken", "@compute @workgroup_size(1)\nfn main() { let x = nonsense; }\n", {}};
    const std::string message = message_of<Error>([&] { CommandSequence(device, {.shaders = {kIncrement, bad}}); });
    EXPECT_TRUE(contains(message, "shader \"broken\" does not compile"));
    EXPECT_TRUE(contains(message, "unresolved value 'nonsense'"));
    EXPECT_TRUE(contains(message, "   2 | fn main() { let x = nonsense; }"));
    device->check();  // a caught mistake leaves the device usable
    const auto y = Buffer::create(device, 16, "y");
  }
}

TEST_F(WebgpuTest, OneTextIsCompiledOnce) {
  const auto device = open_device({.validate = true, .cache_folder = {}});
  Shader renamed = kDouble;
  renamed.name = "other name";
  CommandSequence first(device, {.shaders = {kDouble, kIncrement, renamed}});
  EXPECT_EQ(device->pipelines().size(), 2u);
  CommandSequence second(device, {.shaders = {kIncrement}});
  EXPECT_EQ(device->pipelines().size(), 2u);
}

TEST_F(WebgpuTest, CopiesAndClearsRunInOrder) {
  const auto device = shared_device();
  const auto a = float_buffer(device, {1, 2, 3, 4}, "a");
  const auto b = Buffer::create(device, 16, "b");
  const Dispatch add{.label = "add", .bindings = {{0, 0, 16}}};
  CommandSequence program(device,
                          {.slots = {{.buffer = a}, {.buffer = b}},
                           .shaders = {kIncrement},
                           .commands = {add, Copy{{0, 0, 8}, {1, 8, 8}}, add, Clear{{0, 4, 4}}}},
                          {.first_chunk = 1, .chunk = 2});
  program.run({});
  EXPECT_EQ(read_floats(*a, 4), (std::vector<float>{3, 0, 5, 6}));
  EXPECT_EQ(read_floats(*b, 4), (std::vector<float>{0, 0, 2, 3}));
  const Copy within{{0, 0, 4}, {0, 8, 4}};
  EXPECT_TRUE(
      contains(message_of<Error>([&] { CommandSequence(device, {.slots = {{.buffer = a}}, .commands = {within}}); }),
               "of the same buffer"));
}

TEST_F(WebgpuTest, RulesOfBindingAreCheckedByLabel) {
  const auto device = shared_device();
  const auto a = Buffer::create(device, 4096, "a");
  const std::uint32_t step = device->info().limits.offset_alignment;
  const auto error = [&](Dispatch dispatch, const Shader& shader) {
    return message_of<Error>(
        [&] { CommandSequence(device, {.slots = {{.buffer = a}}, .shaders = {shader}, .commands = {dispatch}}); });
  };
  EXPECT_TRUE(contains(error({.label = "mix", .bindings = {{0, 0, 16}, {0, 2048, 16}}}, kDouble),
                       "dispatch \"mix\": operands 0 and 1 are read from and written to one buffer, \"a\""));
  Shader both_written = kDouble;
  both_written.text.replace(both_written.text.find("read>"), 4, "read_write");
  both_written.read_only = {false, false};
  EXPECT_TRUE(contains(error({.label = "lap", .bindings = {{0, 0, step + 4}, {0, step, 16}}}, both_written),
                       "dispatch \"lap\": operands 0 and 1 are overlapping written ranges of \"a\""));
  EXPECT_EQ(error({.label = "apart", .bindings = {{0, 0, 16}, {0, step, 16}}}, both_written), "no error");
  EXPECT_TRUE(contains(error({.label = "odd", .bindings = {{0, 4, 16}}}, kIncrement), "not a multiple"));
  EXPECT_TRUE(contains(error({.label = "far", .bindings = {{0, 4096, 16}}}, kIncrement), "\"far\" uses bytes"));
  EXPECT_TRUE(contains(error({.label = "few", .bindings = {}}, kIncrement), "\"few\": 0 bindings"));
  EXPECT_TRUE(contains(error({.label = "wide", .bindings = {{0, 0, 16}}, .workgroups = {65536, 1, 1}}, kIncrement),
                       "\"wide\": 65536 x 1 x 1 workgroups"));
  device->check();
}

// On several threads at once: errors of one shader stay with it, and the first bad one in order is shown.
TEST_F(WebgpuTest, ShadersBesideABadOneAreKept) {
  for (const bool validate : {true, false}) {
    const auto device = open_device({.validate = validate, .cache_folder = {}});
    std::vector<Shader> shaders;
    for (int i = 0; i < 24; ++i) {
      Shader shader = kIncrement;
      shader.name = fmt::format("shader {}", i);
      shader.text += fmt::format("// {}\n", std::string(static_cast<std::size_t>(i) * 10, 'x'));
      if (i == 7 || i == 20) shader.text += "fn wrong() { let x = nonsense; }\n";
      shaders.push_back(shader);
    }
    const std::lock_guard lock(device->mutex());
    const std::string message = message_of<Error>([&] { device->pipelines().compile(shaders); });
    EXPECT_TRUE(contains(message, "shader \"shader 7\" does not compile"));
    EXPECT_EQ(device->pipelines().size(), 22u);
    shaders.erase(shaders.begin() + 20);
    shaders.erase(shaders.begin() + 7);
    EXPECT_EQ(device->pipelines().compile(shaders).size(), 22u);
    EXPECT_EQ(device->pipelines().size(), 22u);
    device->check();
  }
}

TEST_F(WebgpuTest, MistakesThatOnlyTheLibrarySeesComeUpWithTheLabel) {
  const auto device = open_device({.validate = true, .cache_folder = {}});
  const auto a = Buffer::create(device, 64, "a");
  Shader wrong = kIncrement;  // the text writes what the layout says is only read
  wrong.read_only = {true};
  const std::string message = message_of<Error>([&] {
    CommandSequence(device,
                    {.slots = {{.buffer = a}}, .shaders = {wrong}, .commands = {Dispatch{.bindings = {{0, 0, 64}}}}});
  });
  EXPECT_TRUE(contains(message, "shader \"increment\" does not compile"));

  // A buffer was destroyed without the program's knowledge: the submission and all later calls fail.
  CommandSequence program(device, {.slots = {{.buffer = a}},
                                   .shaders = {kIncrement},
                                   .commands = {Dispatch{.label = "late", .bindings = {{0, 0, 64}}}}});
  library().BufferDestroy(a->handle());
  const std::string late = message_of<Error>([&] { program.run({}), device->synchronize(); });
  EXPECT_TRUE(contains(late, "\"a\""));
  EXPECT_TRUE(contains(late, "an earlier operation failed"));
  EXPECT_THROW(Buffer::create(device, 16, "after"), DeviceError);
}

TEST_F(WebgpuTest, AfterALossEveryOperationSaysSo) {
  const auto device = open_device({.validate = false, .cache_folder = {}});
  const auto x = Buffer::create(device, 64, "x"), y = Buffer::create(device, 64, "y");
  CommandSequence program(device, double_recording(64));
  program.run(std::vector<backend::BufferPtr>{x, y});
  device->destroy();
  float value = 0;
  const auto lost = [](auto&& operation) {
    try {
      operation();
    } catch (const DeviceError& error) {
      return contains(error.what(), "the device was lost: it was destroyed");
    }
    return ::testing::AssertionFailure() << "no DeviceError";
  };
  EXPECT_TRUE(lost([&] { x->upload(0, &value, 4); }));
  EXPECT_TRUE(lost([&] { x->download(0, &value, 4); }));
  EXPECT_TRUE(lost([&] { x->clear(); }));
  EXPECT_TRUE(lost([&] { Buffer::create(device, 16, "z"); }));
  EXPECT_TRUE(lost([&] { CommandSequence(device, double_recording(64)); }));
  EXPECT_TRUE(lost([&] { program.run(std::vector<backend::BufferPtr>{x, y}); }));
  EXPECT_TRUE(lost([&] { program.profile(std::vector<backend::BufferPtr>{x, y}); }));
  EXPECT_TRUE(lost([&] { device->synchronize(); }));
}

TEST_F(WebgpuTest, OperandsOfAnotherDeviceAreRefused) {
  const auto other = open_device({.cache_folder = {}});
  const auto x = Buffer::create(other, 64, "x"), y = Buffer::create(shared_device(), 64, "y");
  CommandSequence program(shared_device(), double_recording(64));
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         program.run(std::vector<backend::BufferPtr>{x, y});
                       }),
                       "operand 0 (\"x\") is on"));
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         program.run(std::vector<backend::BufferPtr>{nullptr, y});
                       }),
                       "another device"));
  EXPECT_TRUE(contains(message_of<Error>([&] { program.run({}); }), "2 external buffers was run with 0"));
}

TEST_F(WebgpuTest, ReplayKeepsMemoryConstant) {
  const auto device = open_device({.validate = false, .cache_folder = {}});
  const std::size_t count = 64;
  const auto y = Buffer::create(device, count * 4, "y");
  Recording recording{.slots = {{.external = 0}}, .shaders = {kIncrement}};
  for (int i = 0; i < 20; ++i) recording.commands.push_back(Dispatch{.label = "add", .bindings = {{0, 0, count * 4}}});
  CommandSequence program(device, recording);
  const std::vector<backend::BufferPtr> externals{y};
  for (int i = 0; i < 500; ++i) program.run(externals);
  device->synchronize();
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 1000; ++i) program.run(externals);
  device->synchronize();
  const std::size_t after = resident_bytes();
  // 100 bytes a dispatch would be 2 MB.
  constexpr std::size_t kSlack = (2 << 20) + test::kFreedMemoryKept;
  EXPECT_LT(after, before + kSlack);
  EXPECT_EQ(read_floats(*y, 1), std::vector<float>{1500 * 20});
  EXPECT_EQ(program.bind_group_count(), 1u);
}

TEST_F(WebgpuTest, NewExternalsGetNewBindGroupsAndOldOnesGo) {
  const auto device = shared_device();
  CommandSequence program(device, double_recording(64));
  const auto x = float_buffer(device, std::vector<float>(16, 3.0f), "x");
  for (int i = 0; i < 300; ++i) {
    const auto y = Buffer::create(device, 64, "y");
    program.run(std::vector<backend::BufferPtr>{x, y});
    EXPECT_EQ(read_floats(*y, 16), std::vector<float>(16, 6.0f)) << "run " << i;
  }
  EXPECT_LT(program.bind_group_count(), 100u);
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         program.run(std::vector<backend::BufferPtr>{x, x});
                       }),
                       "one buffer, \"x\""));
  const auto y = Buffer::create(device, 64, "y");  // a failed run leaves the program usable
  program.run(std::vector<backend::BufferPtr>{x, y});
  EXPECT_EQ(read_floats(*y, 16), std::vector<float>(16, 6.0f));
}

TEST_F(WebgpuTest, ThreadsShareADevice) {
  const auto device = open_device({.validate = true, .cache_folder = {}});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const float value = static_cast<float>(100 * t + i);
        const auto x = float_buffer(device, std::vector<float>(1000, value), "x");
        const auto y = Buffer::create(device, 4000, "y");
        CommandSequence program(device, double_recording(4000));
        program.run(std::vector<backend::BufferPtr>{x, y});
        right += read_floats(*y, 1000) == std::vector<float>(1000, 2 * value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST_F(WebgpuTest, AProfileTimesEachDispatch) {
  const auto device = shared_device();
  const auto y = Buffer::create(device, 4 << 20, "y");
  Recording recording{.slots = {{.buffer = y}}, .shaders = {kIncrement}};
  for (int i = 0; i < 2050; ++i)  // more than one query set
    recording.commands.push_back(Dispatch{.label = fmt::format("add {}", i), .bindings = {{0, 0, 64}}});
  recording.commands.push_back(
      Dispatch{.label = "large", .bindings = {{0, 0, 4 << 20}}, .workgroups = fold_workgroups((1 << 20) / 64)});
  recording.commands.push_back(Clear{{0, 0, 4}});
  CommandSequence program(device, recording);
  const std::vector<backend::KernelTime> times = program.profile({});
  ASSERT_EQ(times.size(), 2051u);
  EXPECT_EQ(times[2049].name, "add 2049");
  EXPECT_EQ(times.back().name, "large");
  EXPECT_GT(times.back().microseconds, 0);
  EXPECT_EQ(read_floats(*y, 2), (std::vector<float>{0, 2051}));
}

TEST_F(WebgpuTest, PipelinesAreFoundOnDiskTheSecondTime) {
  TemporaryFolder folder;
  const auto compile = [&] {
    const auto device = open_device({.validate = false, .cache_folder = folder.path});
    const auto y = Buffer::create(device, 64, "y");
    CommandSequence program(device, {.slots = {{.buffer = y}},
                                     .shaders = {kIncrement},
                                     .commands = {Dispatch{.label = "add", .bindings = {{0, 0, 64}}}}});
    program.run({});
    EXPECT_EQ(read_floats(*y, 1), std::vector<float>{1});
    return device->blob_cache().hits();
  };
  EXPECT_EQ(compile(), 0u);
  EXPECT_GT(compile(), 0u);

  // Damage of every kind is a miss, and the entry is written anew.
  const auto damage = [&](auto&& change) {
    for (const auto& entry : fs::recursive_directory_iterator(folder.path))
      if (entry.is_regular_file()) change(entry.path());
    EXPECT_EQ(compile(), 0u);
    EXPECT_GT(compile(), 0u);
  };
  damage([](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); });
  damage([](const fs::path& file) { fs::resize_file(file, 3); });
  damage([](const fs::path& file) { fs::resize_file(file, fs::file_size(file) + 1); });
  damage([](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-5, std::ios::end);
    stream << "xxxx";
  });
  damage([](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(16);
    stream << "\xff\xff\xff\xff\xff\xff\xff\xff";  // the size of the value
  });
}

}  // namespace
}  // namespace weft::webgpu

#else

TEST(WebgpuAbsent, SaysHowToGetIt) {
  try {
    weft::webgpu::list_adapters();
    FAIL() << "listed adapters without a backend";
  } catch (const weft::DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("script/setup"), std::string::npos) << error.what();
  }
}

#endif
