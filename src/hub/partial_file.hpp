// A file that grows over several fetches, and then appears under its name at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/sha256.hpp"

namespace weft::hub {

/// PATH.incomplete, with the hash of its bytes. One thread at a time; `FileLock` keeps other processes away.
class PartialFile {
 public:
  /// Opens what an earlier fetch has left, or makes an empty file. FileError if that is not possible.
  explicit PartialFile(const std::filesystem::path& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Reads the bytes that are there into the hash, unless it has them. FileError if they cannot be read.
  void hash_content(const std::stop_token& stop);
  /// FileError on failure, such as a full disk; what was written before stays.
  void append(std::span<const std::byte> bytes);
  /// Begins anew.
  void clear();
  /// Of all bytes; ends the use of the hash.
  std::string sha256() { return hash_.finish(); }
  /// The first bytes of the file.
  std::string beginning(std::size_t bytes) const;
  /// Flushes the file to the disk and gives it its name.
  void finish();

 private:
  std::filesystem::path path_, partial_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  Sha256 hash_;
};

/// Held by one process at a time, also among the hub's other programs.
class FileLock {
 public:
  /// Makes the file and its folders. Waits while another process has the lock, and calls `on_wait` once; FileError if it cannot be made.
  FileLock(const std::filesystem::path& path, const std::stop_token& stop, const std::function<void()>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool is_held() const { return is_held_; }

 private:
  int fd_ = -1;
  bool is_held_ = false;
};

/// Makes a folder and those above it. FileError if that is not possible.
void make_folders(const std::filesystem::path& folder);

}  // namespace weft::hub
