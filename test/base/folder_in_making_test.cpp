// A folder that is whole or not there.
#include "base/folder_in_making.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

TEST(FolderInMaking, TakesBackWhatIsNotKept) {
  const test::TemporaryFolder root;
  const fs::path fresh = root.path() / "a" / "fresh", empty = root.path() / "empty", full = root.path() / "full";
  fs::create_directory(empty);
  fs::create_directory(full);
  std::ofstream(full / "old") << "old";
  for (const bool is_kept : {false, true})
    for (const fs::path& folder : {fresh, empty, full}) {
      SCOPED_TRACE(folder.filename().string() + (is_kept ? ", kept" : ""));
      fs::remove_all(full / "more");
      {
        FolderInMaking making(folder);
        fs::create_directory(folder / "more");
        std::ofstream(folder / "more" / "file") << "new";
        if (is_kept) making.keep();
      }
      EXPECT_EQ(fs::exists(folder / "more" / "file"), is_kept || folder == full);
      EXPECT_EQ(fs::exists(folder), is_kept || folder != fresh);
    }
  EXPECT_TRUE(fs::exists(full / "old"));
  EXPECT_NE(test::message_of<FileError>([&] { FolderInMaking(full / "old" / "x"); }).find("cannot be made"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
