#include "train/metrics.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.hpp"

namespace weft::train {
namespace {

TEST(Metrics, LineHoldsTheFields) {
  const Json json = Json::parse(to_json_line({.step = 5,
                                              .loss = 1.5,
                                              .val_loss = 1.25,
                                              .val_tokens = 10,
                                              .tokens_per_second = 100,
                                              .learning_rate = 1e-3,
                                              .grad_norm = INFINITY}));
  for (const char* key : {"step", "loss", "val_loss", "tokens_per_second", "learning_rate", "grad_norm"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["val_loss"], 1.25);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_FALSE(Json::parse(to_json_line({})).contains("val_loss"));
}

TEST(Metrics, ResumingDropsWhatComesAgain) {
  const auto path = std::filesystem::temp_directory_path() / ("weft_metrics_test_" + std::to_string(getpid()));
  {
    MetricsLog log(path, 0);
    for (const int step : {1, 10, 20, 30}) log.append({.step = step, .loss = step * 0.1});
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 40, \"lo";
  MetricsLog log(path, 20);
  ASSERT_EQ(log.all().size(), 3u);
  log.append({.step = 30, .loss = 7});
  std::ifstream file(path);
  std::string line, last;
  int lines = 0;
  while (std::getline(file, line)) last = line, ++lines;
  EXPECT_EQ(lines, 4);
  EXPECT_EQ(Json::parse(last)["loss"], 7);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weft::train
