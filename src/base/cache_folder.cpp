#include "base/cache_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace weft {
namespace fs = std::filesystem;

fs::path default_cache_folder() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return fs::path(text ? text : "");
  };
  if (fs::path own = value("WEFT_CACHE_DIR"); !own.empty()) return own;
  if (fs::path cache = value("XDG_CACHE_HOME"); !cache.empty()) return cache / "weft";
  if (fs::path home = value("HOME"); !home.empty()) return home / ".cache" / "weft";
  return {};
}

bool make_private_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  ::mkdir(folder.c_str(), 0700);
  struct ::stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return false;
  return (status.st_mode & 0077) == 0 || ::chmod(folder.c_str(), 0700) == 0;
}

void remove_oldest(std::span<const fs::path> files, std::uint64_t bytes_max, std::size_t files_max) {
  struct File {
    const fs::path* path;
    std::uint64_t bytes;
    fs::file_time_type time;
  };
  std::vector<File> found;
  std::uint64_t total = 0;
  for (const fs::path& path : files) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(path, error);
    if (error) continue;
    found.push_back({&path, bytes, fs::last_write_time(path, error)});
    total += bytes;
  }
  std::sort(found.begin(), found.end(), [](const File& a, const File& b) { return a.time < b.time; });
  std::size_t left = found.size();
  for (const File& file : found) {
    if (total <= bytes_max && left <= files_max) break;
    std::error_code error;
    if (!fs::remove(*file.path, error)) continue;
    total -= file.bytes;
    --left;
  }
}

}  // namespace weft
