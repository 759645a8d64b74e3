// Compiled pipelines kept on disk between runs, a file for each entry.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace weft::webgpu {

/// A map from bytes to bytes in a folder. Every failure (no space, no permission, a damaged file) is only a miss. Entries
/// contain their key and a checksum, and are written to a temporary file and renamed. Thread safe, and safe with several
/// processes in one folder.
class BlobCache {
 public:
  /// `owner` names the writer of the entries (library and driver); each owner has its own folder. Entries of all owners
  /// together are kept under `bytes_max` and `entries_max`: opening the folder removes the oldest. An empty path switches the
  /// cache off.
  BlobCache(const std::filesystem::path& folder, std::string_view owner, std::uint64_t bytes_max = 512 << 20,
            std::size_t entries_max = 8192);

  /// Value of the key, empty on a miss.
  std::vector<std::byte> load(std::string_view key);
  void store(std::string_view key, std::string_view value);

  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path file_of(std::string_view key) const;

  std::filesystem::path folder_;  // empty: off
  std::atomic<std::uint64_t> hits_ = 0, misses_ = 0, written_ = 0;
};

}  // namespace weft::webgpu
