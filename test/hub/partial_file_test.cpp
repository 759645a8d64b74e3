// A file that grows over several fetches, on disks that fail.
#include "hub/partial_file.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/faulty_file_system.hpp"
#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string whole_text() {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * 7919);
  return text;
}

std::string hash_of(const std::string& text) {
  Sha256 hash;
  hash.add(bytes_of(text));
  return hash.finish();
}

/// What a fetch does: goes on where the file ends, and gives it its name if the hash is right.
void fetch_rest(const fs::path& path, const std::string& text) {
  PartialFile file(path);
  file.hash_content({});
  while (file.size() < text.size())
    file.append(bytes_of(text).subspan(file.size(), std::min<std::size_t>(1000, text.size() - file.size())));
  ASSERT_EQ(file.sha256(), hash_of(text));
  file.finish();
}

TEST(PartialFileTest, EveryFailureLeavesAPartThatGoesOn) {
  const std::string text = whole_text();
  for (const test::Fault& fault : test::kFaults) {
    for (int n = 1;; ++n) {
      const TemporaryFolder folder;
      const fs::path path = folder / "model.gguf";
      bool failed = false;
      {
        test::FaultyFileSystem faulty(n, fault);
        const ScopedFileSystem scope(faulty);
        try {
          fetch_rest(path, text);
        } catch (const FileError&) {
          failed = true;
        }
        if (!faulty.failed()) break;
      }
      if (failed && !fs::exists(path)) fetch_rest(path, text);
      EXPECT_EQ(read_text_file(path), text) << fault.name << ", call " << n;
      EXPECT_FALSE(fs::exists(path.string() + ".incomplete")) << fault.name << ", call " << n;
    }
  }
}

TEST(PartialFileTest, GoesOnWithTheRightHash) {
  const TemporaryFolder folder;
  const std::string text = whole_text();
  folder.put("m.incomplete", text.substr(0, 12'345));
  fetch_rest(folder / "m", text);
  EXPECT_EQ(read_text_file(folder / "m"), text);
}

TEST(PartialFileTest, BeginsAnew) {
  const TemporaryFolder folder;
  folder.put("m.incomplete", "something else");
  PartialFile file(folder / "m");
  EXPECT_EQ(file.beginning(9), "something");
  file.clear();
  file.append(bytes_of("abc"));
  EXPECT_EQ(file.sha256(), hash_of("abc"));
  file.finish();
  EXPECT_EQ(read_text_file(folder / "m"), "abc");
}

TEST(PartialFileTest, LeavesNoEmptyPart) {
  const TemporaryFolder folder;
  { const PartialFile file(folder / "m"); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(PartialFileTest, FollowsNoLinks) {
  const TemporaryFolder folder;
  const fs::path victim = folder.put("victim", "mine");
  fs::create_symlink(victim, folder / "m.incomplete");
  EXPECT_NE(test::message_of([&] { PartialFile(folder / "m"); }).find("symbolic link"), std::string::npos);
  fs::remove(folder / "m.incomplete");
  fs::create_directory(folder / "m.incomplete");
  EXPECT_NE(test::message_of([&] { PartialFile(folder / "m"); }).find("cannot write"), std::string::npos);
  EXPECT_EQ(read_text_file(victim), "mine");
}

TEST(PartialFileTest, OneHoldsTheLock) {
  const TemporaryFolder folder;
  std::stop_source stop;
  int waits = 0;
  const FileLock first(folder / "a" / "lock", {}, {});
  EXPECT_TRUE(first.is_held());
  const FileLock second(folder / "a" / "lock", stop.get_token(), [&] {
    ++waits;
    stop.request_stop();
  });
  EXPECT_FALSE(second.is_held());
  EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace weft::hub
