#include "backend/webgpu/blob_cache.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

namespace weft::webgpu {
namespace {
namespace fs = std::filesystem;

class BlobCacheTest : public testing::Test {
 protected:
  BlobCacheTest() {
    std::string name = (fs::temp_directory_path() / "weft-blobs-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~BlobCacheTest() override { fs::remove_all(folder_); }

  static std::string text(const std::vector<std::byte>& value) {
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
  std::uint64_t stored_bytes() const {
    std::uint64_t total = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file()) total += entry.file_size();
    return total;
  }

  fs::path folder_;
};

TEST_F(BlobCacheTest, KeepsValuesBetweenInstances) {
  BlobCache(folder_, "driver 1").store("key", "value");
  BlobCache cache(folder_, "driver 1");
  EXPECT_EQ(text(cache.load("key")), "value");
  EXPECT_EQ(text(cache.load("other")), "");
  EXPECT_EQ(cache.hits(), 1u);
  EXPECT_EQ(cache.misses(), 1u);
}

TEST_F(BlobCacheTest, AnotherOwnerSeesNothing) {
  BlobCache(folder_, "driver 1").store("key", "value");
  EXPECT_EQ(text(BlobCache(folder_, "driver 2").load("key")), "");
}

TEST_F(BlobCacheTest, ReplacesAndLeavesNoTemporaryFiles) {
  BlobCache cache(folder_, "owner");
  cache.store("key", "first");
  cache.store("key", "second");
  EXPECT_EQ(text(cache.load("key")), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.folder()), fs::directory_iterator{}), 1);
}

TEST_F(BlobCacheTest, OldEntriesGoWhenItGrowsTooLarge) {
  {
    BlobCache cache(folder_, "owner");
    for (int i = 0; i < 10; ++i) cache.store(std::to_string(i), std::string(1000, 'x'));
  }
  EXPECT_GT(stored_bytes(), 10000u);
  BlobCache cache(folder_, "owner", 5000);
  EXPECT_LE(stored_bytes(), 5000u);
  EXPECT_GT(stored_bytes(), 3000u);
}

TEST_F(BlobCacheTest, KeepsAtMostSoManyEntries) {
  for (int i = 0; i < 20; ++i) BlobCache(folder_, "owner").store(std::to_string(i), "value");
  const BlobCache cache(folder_, "owner", 1 << 20, 12);
  const auto files = fs::directory_iterator(cache.folder());
  EXPECT_EQ(std::distance(begin(files), end(files)), 12);
}

TEST_F(BlobCacheTest, WithoutAFolderItIsOff) {
  BlobCache off({}, "owner");
  off.store("key", "value");
  EXPECT_EQ(text(off.load("key")), "");
  BlobCache unwritable("/proc/none", "owner");
  unwritable.store("key", "value");
  EXPECT_EQ(text(unwritable.load("key")), "");
}

TEST_F(BlobCacheTest, IsForItsUserAlone) {
  BlobCache cache(folder_, "owner");
  cache.store("key", "value");
  const auto mode_of = [](const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); };
  EXPECT_EQ(mode_of(cache.folder()), 0700u);
  EXPECT_EQ(mode_of(cache.folder().parent_path()), 0700u);
  const fs::path entry = fs::directory_iterator(cache.folder())->path();
  EXPECT_EQ(mode_of(entry), 0600u);
  // What others may have put there is a miss: a file that they may write, a link, a pipe.
  fs::permissions(entry, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(text(cache.load("key")), "");
  cache.store("key", "value");
  fs::rename(entry, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", entry);
  EXPECT_EQ(text(cache.load("key")), "");
  fs::remove(entry);
  ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);
  EXPECT_EQ(text(cache.load("key")), "");
  cache.store("key", "value");
  EXPECT_EQ(text(cache.load("key")), "value");
}

}  // namespace
}  // namespace weft::webgpu
