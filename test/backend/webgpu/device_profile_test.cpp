// Figures of devices: kept, read back, refused where they are damaged, and what they choose.
#include "backend/webgpu/device_profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "backend/webgpu/blob_cache.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

#if WEFT_HAS_WEBGPU
#include "backend/webgpu/measure_profile.hpp"
#endif

namespace weft::webgpu::device_profile_test {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "weft-profile-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

DeviceProfile small_device() {
  return {.compute_units = 8,
          .unit_flops = 1.2e11,
          .bytes_per_second = 5e10,
          .dispatch_microseconds = 12,
          .fma_microseconds = 4e-3,
          .load_microseconds = 0.6,
          .source = "measured"};
}

std::string with(const std::string& text, const std::string& from, const std::string& to) {
  std::string changed = text;
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return changed.replace(at, from.size(), to);
}

TEST(DeviceProfileTest, TextReadsBackAsTheSame) {
  for (const DeviceProfile& profile : {DeviceProfile{}, small_device()})
    EXPECT_EQ(parse_profile(profile_text(profile)), profile) << profile_text(profile);
}

TEST(DeviceProfileTest, DamagedTextIsNothing) {
  const std::string good = profile_text(small_device());
  ASSERT_TRUE(parse_profile(good));
  const std::string bad[] = {"",
                             "{",
                             "[]",
                             "null",
                             good.substr(0, good.size() / 2),
                             with(good, "\"version\": 1", "\"version\": 2"),
                             with(good, "\"version\"", "\"Version\""),
                             with(good, "\"compute_units\": 8", "\"compute_units\": 0"),
                             with(good, "\"compute_units\": 8", "\"compute_units\": -8"),
                             with(good, "\"compute_units\": 8", "\"compute_units\": 8.5"),
                             with(good, "\"compute_units\": 8", "\"compute_units\": 99999999999"),
                             with(good, "\"compute_units\": 8", "\"compute_units\": \"8\""),
                             with(good, "\"dispatch_microseconds\": 12.0", "\"dispatch_microseconds\": -12"),
                             with(good, "\"dispatch_microseconds\": 12.0", "\"dispatch_microseconds\": 1e300"),
                             with(good, "\"dispatch_microseconds\": 12.0", "\"dispatch_microseconds\": null"),
                             with(good, "\"unit_flops\"", "\"unit_flop\"")};
  for (const std::string& text : bad) EXPECT_FALSE(parse_profile(text)) << text;
}

TEST(DeviceProfileTest, ItIsKeptBesideThePipelines) {
  const TemporaryFolder folder;
  {
    BlobCache cache(folder.path, "library and driver");
    EXPECT_FALSE(load_profile(cache));
    store_profile(cache, small_device());
  }
  BlobCache cache(folder.path, "library and driver"), other(folder.path, "another driver");
  EXPECT_EQ(load_profile(cache), small_device());
  EXPECT_FALSE(load_profile(other));
  EXPECT_EQ(fs::status(cache.folder()).permissions() & fs::perms::all, fs::perms::owner_all);
  for (const fs::directory_entry& entry : fs::directory_iterator(cache.folder())) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-20, std::ios::end);
    file << '7';
  }
  EXPECT_FALSE(load_profile(cache)) << "a damaged file";
  cache.store("weft device profile", "{\"version\": 1, \"compute_units\": 1e9}");
  EXPECT_FALSE(load_profile(cache)) << "a whole file with figures that no device has";
}

TEST(DeviceProfileTest, FiguresHaveTwoDigits) {
  DeviceProfile profile = small_device();
  profile.unit_flops = 1.2345e11;
  profile.load_microseconds = 0.6543;
  profile = rounded(profile);
  EXPECT_NEAR(profile.unit_flops, 1.2e11, 1);
  EXPECT_NEAR(profile.load_microseconds, 0.65, 1e-12);
  EXPECT_EQ(profile.compute_units, 8u);
}

TEST(DeviceProfileTest, TheEnvironmentOverrules) {
  const TemporaryFolder folder;
  AdapterInfo adapter;
  adapter.type = AdapterType::integrated;
  const auto set = [](const std::string& value) { setenv("WEFT_WEBGPU_PROFILE", value.c_str(), 1); };
  unsetenv("WEFT_WEBGPU_PROFILE");
  EXPECT_FALSE(profile_from_environment(adapter));
  set("table");
  EXPECT_EQ(profile_from_environment(adapter), profile_from_table(adapter));
  const fs::path path = folder.path / "profile.json";
  std::ofstream(path) << profile_text(small_device());
  set(path.string());
  EXPECT_EQ(profile_from_environment(adapter), small_device());
  std::ofstream(path) << "{}";
  EXPECT_THROW(profile_from_environment(adapter), UsageError);
  set((folder.path / "none.json").string());
  EXPECT_THROW(profile_from_environment(adapter), FileError);
  unsetenv("WEFT_WEBGPU_PROFILE");
}

Target target_with(const DeviceProfile& profile) {
  Target target{{.binding_bytes = std::uint64_t{2} << 30,
                 .storage_buffers = 10,
                 .workgroup_bytes = 48 << 10,
                 .workgroup_invocations = 1024},
                32};
  target.profile = profile;
  return target;
}

/// The time that was estimated when the figures of an H200 were in the code.
double h200_estimate(const Tile& tile, int split, Extent batch, Extent m, Extent n, Extent k) {
  const double groups = static_cast<double>(divide_up(m, tile.rows) * divide_up(n, tile.columns) * batch) * split;
  const double steps = static_cast<double>(divide_up(divide_up(k, tile.depth), split));
  const double alone = 2.0 * tile.rows * tile.columns * tile.depth * steps / (67e12 / 132 * tile.efficiency) * 1e6;
  const double slots = 132.0 * tile.resident;
  const double full = std::floor(groups / slots);
  const double last = std::ceil((groups - full * slots) / 132);
  const double thread_alone = steps * tile.depth * (10 + 1.25 * tile.thread_rows * tile.thread_columns) / 1700;
  double time = full * tile.resident * alone;
  if (last > 0) time += std::max({last * alone, thread_alone, steps * 0.35});
  time += 4.5;
  if (split > 1) time += 5 + 8.0 * static_cast<double>(batch * m * n) * split / 2.5e12 * 1e6;
  return time;
}

TEST(DeviceProfileTest, AnH200HasTheTilesThatWereMeasuredOnIt) {
  const Target target = target_with({});
  const Extent sizes[] = {8, 33, 64, 100, 256, 512, 768, 1024, 2048, 4096, 16384};
  for (const Extent batch : {1, 12})
    for (const Extent m : sizes)
      for (const Extent n : sizes)
        for (const Extent k : sizes) {
          TileChoice wanted{-1, 1};
          double least = std::numeric_limits<double>::infinity();
          for (int t = 0; t < static_cast<int>(tiles().size()); ++t) {
            const Tile& tile = tiles()[static_cast<std::size_t>(t)];
            const Extent split_max = std::clamp<Extent>(divide_up(k, tile.depth) / 4, 1, 64);
            for (int split = 1; split <= split_max && split_fits(batch, m, n, split, target); ++split) {
              const double time = h200_estimate(tile, split, batch, m, n, k);
              ASSERT_NEAR(estimate(tile, split, batch, m, n, k, target.profile), time, 1e-9 * time);
              if (time < least * 0.999) {
                least = time;
                wanted = {t, split};
              }
            }
          }
          const TileChoice got = choose_tile(batch, m, n, k, target);
          ASSERT_EQ(got.tile, wanted.tile) << batch << " " << m << " " << n << " " << k;
          ASSERT_EQ(got.split, wanted.split) << batch << " " << m << " " << n << " " << k;
        }
}

TEST(DeviceProfileTest, OtherFiguresChooseOtherTiles) {
  const Target large = target_with({}), small = target_with(small_device());
  const TileChoice of_large = choose_tile(1, 256, 256, 2048, large), of_small = choose_tile(1, 256, 256, 2048, small);
  const auto workgroups = [](const TileChoice& choice) {
    const Tile& tile = tiles()[static_cast<std::size_t>(choice.tile)];
    return divide_up(256, tile.rows) * divide_up(256, tile.columns) * choice.split;
  };
  EXPECT_GT(workgroups(of_large), 4 * workgroups(of_small)) << "132 compute units want more workgroups than 8 do";
}

#if WEFT_HAS_WEBGPU
class MeasureProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    test::choose_lavapipe();
    try {
      device_ = Device::open(0, {.validate = true, .cache_folder = {}});
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::shared_ptr<Device> device_;
};

TEST_F(MeasureProfileTest, KernelsRunAndGiveFiguresOfADevice) {
  const auto profile = measure_profile(device_, {.turns = 32, .bytes = 1 << 20, .compute_units_max = 512});
  if (!device_->info().timestamps) {
    EXPECT_FALSE(profile);
    return;
  }
  // On a busy machine times of a software adapter may make no sense, but given profiles must.
  if (!profile) GTEST_SKIP() << "the times made no sense";
  EXPECT_EQ(profile->source, "measured");
  EXPECT_LE(profile->compute_units, 512u);
  EXPECT_EQ(parse_profile(profile_text(*profile)), profile);
}

TEST_F(MeasureProfileTest, WhatIsGivenOrCannotBeKeptIsNotMeasured) {
  unsetenv("WEFT_WEBGPU_PROFILE");
  ProfileKeeper given(device_, small_device());
  EXPECT_EQ(given.assumed(), small_device());
  EXPECT_EQ(given.measured(), small_device());
  ProfileKeeper table(device_, {});
  EXPECT_EQ(table.measured(), profile_from_table(device_->info()));
}
#endif

}  // namespace
}  // namespace weft::webgpu::device_profile_test
