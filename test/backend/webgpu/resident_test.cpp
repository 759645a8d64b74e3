// Dispatches that wait for one another become phases of one, where that is right.
#include "backend/webgpu/resident.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backend/webgpu/meetings.hpp"
#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/staging.hpp"
#include "backend/webgpu/wgsl/meeting.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu::resident_test {
namespace {

Target target(std::uint32_t buffers = 16) {
  Target target{{.storage_buffers = buffers, .workgroup_bytes = 16384, .workgroup_invocations = 256}};
  target.profile.compute_units = 4;
  return target;
}

constexpr std::uint64_t kBytes = 1024;  // 256 elements, 4 workgroups
constexpr BoundRange range(int buffer, std::uint64_t offset = 0) { return {buffer, offset, kBytes}; }

/// out = in + 1, through workgroup memory.
RenderedDispatch plus_one(std::string name, BoundRange in, BoundRange out, int threads = 64) {
  out.written = true;
  ShaderPieces shader{.threads = threads, .storage = {{"f32"}, {"f32", true}}};
  shader.share("tile", "f32", 64);
  shader.functions = {{"next", "(x: f32) -> f32 { return x + 1f; }\n"}};
  shader.body =
      "  $tile[thread] = $next($data0[group * 64u + thread]);\n"
      "  workgroupBarrier();\n"
      "  $data1[group * 64u + thread] = $tile[63u - thread];\n";
  return {std::move(name), std::move(shader), {in, out}, 4};
}

/// out = 2 in + w, by fours.
RenderedDispatch twice(std::string name, BoundRange in, BoundRange w, BoundRange out) {
  out.written = true;
  ShaderPieces shader{.threads = 64, .storage = {{"vec4<f32>"}, {"vec4<f32>"}, {"vec4<f32>", true}}};
  shader.early = {1};
  shader.body =
      "  let add = $data1[thread];\n"
      "  // earlier results\n"
      "  $data2[thread] = 2f * $data0[thread] + add;\n";
  return {std::move(name), std::move(shader), {in, w, out}, 1};
}

std::vector<std::string> names(const std::vector<RenderedDispatch>& dispatches) {
  std::vector<std::string> result;
  for (const RenderedDispatch& d : dispatches) result.push_back(d.name);
  return result;
}
using Names = std::vector<std::string>;

TEST(ResidentTest, WhatWaitsForAnotherBecomesItsNextPhase) {
  const auto joined =
      join_phases({plus_one("a", range(0), range(1)), twice("b", range(1), range(3), range(2))}, target());
  ASSERT_EQ(names(joined), Names{"a > b"});
  const RenderedDispatch& both = joined[0];
  EXPECT_TRUE(both.shader.resident);
  EXPECT_EQ(both.workgroups, 4u);
  ASSERT_EQ(both.bindings.size(), 5u);
  EXPECT_EQ(both.bindings.back().buffer, kMeetingBuffer);
  // What is written as floats is read as vectors, which only one binding may do.
  EXPECT_EQ(both.shader.storage[1].element, "f32");
  EXPECT_TRUE(both.bindings[1].written);
  EXPECT_FALSE(both.bindings[0].written);
}

TEST(ResidentTest, WorkgroupsOfAnotherSizeAndManyWorkgroupsStayApart) {
  EXPECT_EQ(join_phases({plus_one("a", range(0), range(1)), plus_one("b", range(1), range(2), 128)}, target()).size(),
            2u);
  RenderedDispatch large = plus_one("b", range(1), range(2));
  large.workgroups = 100;
  EXPECT_EQ(join_phases({plus_one("a", range(0), range(1)), large}, target()).size(), 2u);
}

TEST(ResidentTest, WhatAnEarlierPhaseTouchedIsNotOverwritten) {
  EXPECT_EQ(names(join_phases({plus_one("a", range(0), range(1)), plus_one("b", range(1), range(0))}, target())),
            (Names{"a", "b"}));
  EXPECT_EQ(names(join_phases({plus_one("a", range(0), range(1)), plus_one("b", range(2), range(1))}, target())),
            (Names{"a", "b"}));
  // A compute unit keeps whole lines of memory.
  BoundRange beside = range(0, kBytes + 64);
  beside.bytes = 64;
  EXPECT_EQ(
      names(join_phases({plus_one("a", {0, 0, kBytes + 64}, range(1)), plus_one("b", range(1), beside)}, target())),
      (Names{"a", "b"}));
}

TEST(ResidentTest, WhatIsReadNearAResultEndsADispatch) {
  BoundRange in = range(1, 0), out = range(1, kBytes + 64);
  in.bytes = kBytes + 64;
  in.written = in.only_read = true;  // as another range of its buffer
  EXPECT_EQ(join_phases({plus_one("a", in, out), plus_one("b", range(1, kBytes + 64), range(2))}, target()).size(), 2u);
  in.bytes = kBytes;
  EXPECT_EQ(
      join_phases({plus_one("a", in, range(1, kBytes)), plus_one("b", range(1, kBytes), range(2))}, target()).size(),
      1u);
}

TEST(ResidentTest, WhatIsChangedInPlaceEndsADispatch) {
  RenderedDispatch update = plus_one("a", range(0), range(1));
  update.shader.body += "  $data1[thread] = $data1[thread] + 1f;\n";
  EXPECT_EQ(names(join_phases({update, plus_one("b", range(1), range(2))}, target())), (Names{"a", "b"}));
  EXPECT_EQ(names(join_phases({update, plus_one("b", range(0), range(2))}, target())), Names{"a > b"});
}

TEST(ResidentTest, BindingsAreLimited) {
  const std::vector<RenderedDispatch> chain = {plus_one("a", range(0), range(1)), plus_one("b", range(1), range(2)),
                                               plus_one("c", range(2), range(3))};
  EXPECT_EQ(names(join_phases(chain, target(5))), Names{"a > b > c"});
  EXPECT_EQ(names(join_phases(chain, target(4))), (Names{"a > b", "c"}));
}

TEST(ResidentTest, LayersAreCutAlike) {
  std::vector<RenderedDispatch> dispatches = {plus_one("first", range(0), range(1), 128)};
  for (int layer = 0; layer < 4; ++layer) {
    const int x = 1 + 3 * layer;
    dispatches.push_back(twice("a", range(x), range(20 + layer), range(x + 1)));
    dispatches.push_back(plus_one("b", range(x + 1), range(x + 2)));
    dispatches.push_back(plus_one("c", range(x + 2), range(x + 3)));
  }
  const auto joined = join_phases(dispatches, target(6));
  EXPECT_EQ(names(joined), (Names{"first", "a > b > c", "a > b > c", "a > b > c", "a > b > c"}));
  std::set<std::string> texts;
  for (std::size_t i = 1; i < joined.size(); ++i) texts.insert(joined[i].shader.text());
  EXPECT_EQ(texts.size(), 1u);
}

TEST(ResidentTest, OnlyWhatIsThereFromTheBeginningIsReadBeforeTheMeeting) {
  const auto text_of = [](int weights) {
    const auto joined =
        join_phases({plus_one("a", range(0), range(1)), twice("b", range(1), range(weights), range(2))}, target());
    return joined.size() == 1 ? joined[0].shader.text() : std::string();
  };
  const auto meets_first = [&](const std::string& text) {
    return text.find("meet(thread);", text.find("fn main")) < text.find("phase_1(at", text.find("fn main"));
  };
  EXPECT_NE(text_of(3).find("meet(thread);\n  data3"), std::string::npos) << text_of(3);
  EXPECT_TRUE(meets_first(text_of(1))) << text_of(1);
}

class WebgpuResidentTest : public RenderTest {};

// One workgroup meets nobody, so the phases are right on any device.
TEST_F(WebgpuResidentTest, PhasesComputeWhatDispatchesCompute) {
  std::mt19937 random(5);
  std::vector<TestBuffer> buffers;
  for (int i = 0; i < 6; ++i) buffers.push_back(random_buffer(random, DType::f32, 512));
  const std::vector<RenderedDispatch> chain = {
      plus_one("a", range(0), range(1, 256)), twice("b", range(1, 256), range(2), range(3)),
      plus_one("c", range(3), range(4, 1024)), twice("d", range(4, 1024), range(1, 256), range(5))};
  Rendered apart{chain, {}};
  const std::vector<reference::Values> wanted = results_of(apart, buffers);
  Rendered together{join_phases(chain, target()), {}};
  ASSERT_EQ(names(together.dispatches), Names{"a > b > c > d"});
  together.dispatches[0].workgroups = 1;
  together.dispatches[0].bindings.back().buffer = static_cast<int>(buffers.size());
  together.scratch_bytes = {kMeetingBytes};
  EXPECT_EQ(results_of(together, buffers), wanted);
}

TEST_F(WebgpuResidentTest, ATrialCountsTheWorkgroupsThatRunAtOnce) {
  const auto device = Device::open(0, {.validate = true, .cache_folder = {}});
  const std::lock_guard lock(device->mutex());
  Meetings meetings(device);
  const auto joined = join_phases({plus_one("a", range(0), range(1)), plus_one("b", range(1), range(2))}, target());
  Shader shader{"pair", joined.at(0).shader.text(), {}};
  for (const BoundRange& bound : joined[0].bindings) shader.read_only.push_back(!bound.written);
  // Software runs as many as there are processors, or one after another.
  const std::uint32_t groups = meetings.resident_groups(shader, 1000, 128);
  EXPECT_TRUE(groups == 0 || groups == 1000 || groups % 128 == 0) << groups;
  EXPECT_EQ(meetings.resident_groups(shader, 1000, 128), groups);
  std::uint32_t missed = 1;
  meetings.buffer()->download(kMissedOffset, &missed, 4);  // a trial that failed leaves no mark
  EXPECT_EQ(missed, 0u);
}

TEST_F(WebgpuResidentTest, AfterAMissedMeetingNothingIsTrusted) {
  const auto device = Device::open(0, {.validate = true, .cache_folder = {}});
  Meetings meetings(device);
  const auto other = Buffer::create(device, 256, "other");
  std::uint32_t word = 7;
  {
    const std::lock_guard lock(device->mutex());
    meetings.buffer();
  }
  other->download(0, &word, 4);
  EXPECT_EQ(word, 0u);
  const std::uint32_t missed = 1;
  meetings.buffer()->upload(kMissedOffset, &missed, 4);
  try {
    other->download(0, &word, 4);
    FAIL() << "a missed meeting is not noticed";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("WEFT_WEBGPU_RESIDENT=off"), std::string::npos) << error.what();
  }
  EXPECT_THROW(other->download(0, &word, 4), DeviceError);
}

TEST_F(WebgpuResidentTest, AnUnknownResidenceIsAnError) {
  setenv("WEFT_WEBGPU_RESIDENT", "sometimes", 1);
  try {
    make_webgpu_backend(0, {.cache_folder = std::filesystem::path()});
    ADD_FAILURE() << "\"sometimes\" is taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("off, tested or single"), std::string::npos) << error.what();
  }
  unsetenv("WEFT_WEBGPU_RESIDENT");
}

}  // namespace
}  // namespace weft::webgpu::resident_test
#endif
