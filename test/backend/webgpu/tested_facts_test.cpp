// What is tested on a device: kept, read back, refused where it is damaged.
#include "backend/webgpu/tested_facts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "backend/webgpu/wgsl/shader.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

#if WEFT_HAS_WEBGPU
#include "backend/webgpu/device.hpp"

namespace weft::webgpu {
namespace {

namespace fs = std::filesystem;

class TestedFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weft-facts-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    test::choose_driver();
    try {
      device_ = Device::open(0, {.validate = true, .cache_folder = folder_});
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
  std::shared_ptr<Device> device_;
};

TEST(TestedFactsTextTest, ReadsBackAndRefusesWhatIsDamaged) {
  for (const TestedFacts& facts :
       {TestedFacts{}, TestedFacts{.exact_halves = true}, TestedFacts{.rounded_halves = true},
        TestedFacts{.matrices = true}, TestedFacts{.integer_matrices = true}, TestedFacts{.integer_dots = true},
        TestedFacts{.meetings = true}})
    EXPECT_EQ(parse_facts(facts_text(facts)), facts);
  const std::string good = facts_text({});
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), std::string("[]"),
        std::string(R"({"version":0,"exact_halves":true})"),
        std::string(R"({"version":2,"exact_halves":1,"matrices":true})"), std::string(R"({"version":1})")})
    EXPECT_FALSE(parse_facts(bad)) << bad;
}

TEST_F(TestedFactsTest, TheDeviceIsTestedOnce) {
  const TestedFacts tested = test_facts(device_);
  FactsKeeper first(device_);
  EXPECT_EQ(first.facts(), tested);
  // Another keeper compiles no test: it takes what was kept.
  const std::uint64_t hits = device_->blob_cache().hits(), misses = device_->blob_cache().misses();
  FactsKeeper second(device_);
  EXPECT_EQ(second.facts(), tested);
  EXPECT_EQ(device_->blob_cache().hits(), hits + 1);
  EXPECT_EQ(device_->blob_cache().misses(), misses);
}

TEST(ExactHalvesTest, HelpersTakeTheDevicesConversionOnlyWhereItIsExact) {
  Helpers helpers;
  helpers.use("f32_from_f16");
  helpers.use("halves_from_f32");
  EXPECT_EQ(helpers.text().find("pack2x16float"), std::string::npos);
  helpers.take_exact_halves(true);
  EXPECT_NE(helpers.text().find("unpack2x16float"), std::string::npos);
  EXPECT_EQ(helpers.text().find(" pack2x16float"), std::string::npos);
  helpers.take_rounded_halves(true);
  EXPECT_NE(helpers.text().find(" pack2x16float"), std::string::npos);
  Helpers merged;
  merged.use(helpers);
  EXPECT_EQ(merged.text(), helpers.text());
}

}  // namespace
}  // namespace weft::webgpu
#endif
