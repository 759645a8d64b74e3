#include "base/folder_in_making.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

namespace fs = std::filesystem;

FolderInMaking::FolderInMaking(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  was_empty_ = fs::is_directory(path_, error) && fs::is_empty(path_, error) && !error;
  is_new_ = fs::create_directories(path_, error);
  if (error)
    throw FileError(fmt::format("{}: the folder cannot be made: {}; choose another place, or change the permissions",
                                path_.string(), error.message()));
}

FolderInMaking::~FolderInMaking() {
  if (is_kept_) return;
  std::error_code ignored;
  if (is_new_) fs::remove_all(path_, ignored);
  if (!was_empty_) return;
  for (auto entry = fs::directory_iterator(path_, ignored); !ignored && entry != fs::directory_iterator();
       entry.increment(ignored)) {
    std::error_code one;
    fs::remove_all(entry->path(), one);
  }
}

}  // namespace weft
