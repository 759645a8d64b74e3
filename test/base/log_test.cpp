#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_folder.hpp"

namespace weft {
namespace {

TEST(Log, IsOffUntilSomebodyListens) {
  set_log_sink({});
  EXPECT_FALSE(is_logging());
  testing::internal::CaptureStderr();
  log(LogLevel::error, "test", "nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel level, std::string_view source, std::string_view message) {
    heard.push_back(std::string(name_of(level)) + " " + std::string(source) + " " + std::string(message));
  });
  EXPECT_TRUE(is_logging());
  log(LogLevel::warning, "test", "this is heard");
  set_log_sink({});
  log(LogLevel::warning, "test", "this is not");
  EXPECT_EQ(heard, std::vector<std::string>{"warning test this is heard"});
}

TEST(Log, ASinkThatThrowsHarmsNobody) {
  set_log_sink([](LogLevel, std::string_view, std::string_view) { throw std::runtime_error("a full disk"); });
  EXPECT_NO_THROW(log(LogLevel::info, "test", "something"));
  set_log_sink({});
}

// In processes of their own, because the environment is read once.
void log_and_exit(const char* where) {
  setenv("WEFT_LOG", where, 1);
  log(LogLevel::warning, "test", "something");
  std::exit(3);
}

TEST(LogDeathTest, TheEnvironmentSaysWhere) {
  if (std::getenv("WEFT_TEST_EMULATED")) GTEST_SKIP() << "in an emulator a program cannot start itself";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const test::TemporaryFolder folder;
  const std::string file = (folder / "log").string();
  EXPECT_EXIT(log_and_exit("0"), testing::ExitedWithCode(3), "^$");
  EXPECT_EXIT(log_and_exit("1"), testing::ExitedWithCode(3), "^.test. warning: something\n$");
  // The same file for both processes: the name comes from the environment, since each begins anew.
  setenv("WEFT_TEST_LOG_FILE", file.c_str(), 0);
  EXPECT_EXIT(log_and_exit(std::getenv("WEFT_TEST_LOG_FILE")), testing::ExitedWithCode(3), "^$");
  std::ifstream in(std::getenv("WEFT_TEST_LOG_FILE"));
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "[test] warning: something");
}

}  // namespace
}  // namespace weft
