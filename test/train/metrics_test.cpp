#include "train/metrics.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.hpp"
#include "train/console.hpp"

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

TEST(Console, PlainOutputGetsALineEveryFewSeconds) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file);
    EXPECT_FALSE(console.is_terminal());
    console.status("one");
    console.status("two");
    console.status("three");
    console.print("kept");
    console.status("four");
  }
  std::rewind(file);
  char text[200] = {};
  const std::size_t length = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  EXPECT_EQ(std::string(text, length), "one\nkept\nfour\n");
}

TEST(Console, TerminalRedrawsOneLine) {
  std::FILE* file = std::tmpfile();
  {
    Console console(file, Console::Style::terminal);
    console.status("one");
    console.status("two", true);
    console.print("kept");
  }
  std::rewind(file);
  char text[200] = {};
  const std::size_t length = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  EXPECT_EQ(std::string(text, length), "\rone\033[K\rtwo\033[K\r\033[Kkept\n");
}

TEST(Console, Numbers) {
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(INFINITY), "-");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(short_count(41234), "41.2k");
  EXPECT_GT(resident_bytes(), 1u << 20);
}

}  // namespace
}  // namespace weft::train
