// A folder that is written file by file, and is there whole or not at all.
#pragma once

#include <filesystem>

namespace weft {

/// Makes the folder, with its parents, if it is not there. Unless `keep` is called, the destructor takes back what was written since: all of
/// a folder that is new, and the content of one that was empty. What a folder with content gets beside that stays.
class FolderInMaking {
 public:
  /// FileError if the folder cannot be made.
  explicit FolderInMaking(std::filesystem::path path);
  ~FolderInMaking();
  FolderInMaking(const FolderInMaking&) = delete;
  FolderInMaking& operator=(const FolderInMaking&) = delete;
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  bool is_new_ = false, was_empty_ = false, is_kept_ = false;
};

}  // namespace weft
