// Profiles: rows of kernels, the roofline, and their table, JSON and trace.
#include "weft/profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "weft/compile.hpp"
#include "weft/ops.hpp"

namespace weft::profile_test {
namespace {

Profile two_kernels() {
  Profile profile{.device = "cpu", .hardware = "a test"};
  profile.rates = {.operations_per_second = 1e12, .half_operations_per_second = 8e12, .bytes_per_second = 1e12};
  profile.kernels = {{.name = "a \"product\"", .begin = 0, .microseconds = 4, .operations = 2e6, .bytes = 1e6},
                     {.name = "sum", .begin = 4, .microseconds = 2, .operations = 1e5, .bytes = 1e6},
                     {.name = "sum", .begin = 6, .microseconds = 2, .operations = 1e5, .bytes = 1e6}};
  return profile;
}

TEST(Profiles, RooflineIsTheLargerShare) {
  Profile profile = two_kernels();
  EXPECT_DOUBLE_EQ(roofline(profile.kernels[0], profile.rates), 0.5);
  EXPECT_DOUBLE_EQ(roofline(profile.kernels[1], profile.rates), 0.5);
  profile.kernels[0].on_matrices = true;
  EXPECT_DOUBLE_EQ(roofline(profile.kernels[0], profile.rates), 0.25) << "bytes count: the product is fast there";
  EXPECT_DOUBLE_EQ(roofline(profile.kernels[0], {}), 0);
  EXPECT_DOUBLE_EQ(profile.microseconds(), 8);
}

TEST(Profiles, TableHasALineForEachName) {
  const std::string table = to_table(two_kernels());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5) << table;
  EXPECT_NE(table.find("all 3 kernels"), std::string::npos) << table;
  EXPECT_NE(table.find("   2  "), std::string::npos) << "the sums were counted: " << table;
  EXPECT_NE(table.find("50 %"), std::string::npos) << table;
  EXPECT_EQ(to_table({}), "this device does not time kernels\n");
}

TEST(Profiles, JsonAndTraceHoldEveryKernel) {
  const Profile profile = two_kernels();
  const Json json = parse_json(to_json(profile), "json"), trace = parse_json(to_trace(profile), "trace");
  ASSERT_EQ(json.at("kernels").size(), 3u);
  EXPECT_EQ(json["kernels"][0]["name"], "a \"product\"");
  EXPECT_DOUBLE_EQ(json["kernels"][0]["tflop_per_s"], 0.5);
  EXPECT_DOUBLE_EQ(json["us"], 8);
  std::vector<Json> complete;
  for (const Json& event : trace.at("traceEvents"))
    if (event["ph"] == "X") complete.push_back(event);
  ASSERT_EQ(complete.size(), 3u);
  EXPECT_DOUBLE_EQ(complete[2]["ts"], 6);
  EXPECT_DOUBLE_EQ(complete[2]["dur"], 2);
}

TEST(Profiles, MeasureTellsWhatEachKernelDoes) {
  const Tensor x = zeros({64, 32}, DType::f32, parse_device("cpu"));
  auto step = compile([](Tensor a) { return sum(matmul(a, transpose(a)), {0}); });
  step(x);
  const Tensor arguments[] = {x};
  const Profile profile = step.compiled().measure(arguments);
  ASSERT_EQ(profile.kernels.size(), step.compiled().kernel_count());
  EXPECT_EQ(profile.device, "cpu");
  double operations = 0;
  for (std::size_t i = 0; i < profile.kernels.size(); ++i) {
    operations += profile.kernels[i].operations;
    EXPECT_GT(profile.kernels[i].bytes, 0);
    EXPECT_GE(profile.kernels[i].begin, i > 0 ? profile.kernels[i - 1].begin : 0);
  }
  EXPECT_GE(operations, 2.0 * 64 * 64 * 32);
}

TEST(Profiles, RatesAreOfThisDevice) {
  const DeviceRates rates = measure_rates(parse_device("cpu"));
  EXPECT_GT(rates.operations_per_second, 1e8);
  EXPECT_GT(rates.half_operations_per_second, 1e8);
  EXPECT_GT(rates.bytes_per_second, 1e8);
}

}  // namespace
}  // namespace weft::profile_test
