// Files of bytes that grow at their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace weft {

/// The end of a file of bytes that one writer at a time appends to; created if missing. One thread at a time.
class AppendFile {
 public:
  /// FileError if the file cannot be opened, or another AppendFile, of this process or another, has it.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// FileError on failure, which removes what was written of these bytes.
  void append(std::span<const std::byte> bytes);
  /// Waits until everything so far is on the disk. FileError on failure.
  void sync();
  /// Cuts the file off behind its first bytes. FileError on failure.
  void cut(std::uint64_t kept);
  std::uint64_t size() const { return size_; }
  /// Whether the path still leads to this file.
  bool is_in_place() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace weft
