// A file system whose n-th call fails.
#pragma once

#include <algorithm>
#include <cerrno>

#include "base/file_system.hpp"

namespace weft::test {

struct Fault {
  const char* name;
  int error;     ///< errno of the failing call; 0: the call, if a write or read, moves half of its bytes
  bool lasting;  ///< every later call fails too
};

inline constexpr Fault kFaults[] = {
    {"interrupted", EINTR, false},     {"short count", 0, false},        {"every count short", 0, true},
    {"I/O error", EIO, false},         {"lasting I/O error", EIO, true}, {"disk full", ENOSPC, false},
    {"disk stays full", ENOSPC, true},
};

/// Counts calls from 1 and lets call `fail_at` fail. No hard links when `hard_links` is false.
class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem(int fail_at, Fault fault, bool hard_links = true)
      : fail_at_(fail_at), fault_(fault), hard_links_(hard_links) {}
  int calls() const { return calls_; }
  bool failed() const { return failed_; }

  int open(const char* path, int flags, mode_t mode) override {
    return hit() ? -1 : FileSystem::open(path, flags, mode);
  }
  ssize_t read(int fd, void* bytes, std::size_t count) override {
    return hit() ? -1 : FileSystem::read(fd, bytes, shortened(count));
  }
  ssize_t pread(int fd, void* bytes, std::size_t count, off_t at) override {
    return hit() ? -1 : FileSystem::pread(fd, bytes, count, at);
  }
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    return hit() ? -1 : FileSystem::write(fd, bytes, shortened(count));
  }
  int ftruncate(int fd, off_t length) override { return hit() ? -1 : FileSystem::ftruncate(fd, length); }
  int fchmod(int fd, mode_t mode) override { return hit() ? -1 : FileSystem::fchmod(fd, mode); }
  int fsync(int fd) override { return hit() ? -1 : FileSystem::fsync(fd); }
  int close(int fd) override {  // a failing close closes all the same
    const int result = FileSystem::close(fd);
    return hit() ? -1 : result;
  }
  int fstat(int fd, struct ::stat* result) override { return hit() ? -1 : FileSystem::fstat(fd, result); }
  int stat(const char* path, struct ::stat* result) override { return hit() ? -1 : FileSystem::stat(path, result); }
  int statvfs(const char* path, struct ::statvfs* result) override {
    return hit() ? -1 : FileSystem::statvfs(path, result);
  }
  int rename(const char* from, const char* to) override { return hit() ? -1 : FileSystem::rename(from, to); }
  int link(const char* from, const char* to) override {
    if (hit()) return -1;
    if (hard_links_) return FileSystem::link(from, to);
    errno = EPERM;
    return -1;
  }
  int unlink(const char* path) override { return hit() ? -1 : FileSystem::unlink(path); }
  void* mmap(std::size_t length, int fd) override {
    return hit() ? reinterpret_cast<void*>(-1) : FileSystem::mmap(length, fd);
  }
  int list(const char* folder, std::vector<std::string>* names) override {
    return hit() ? -1 : FileSystem::list(folder, names);
  }

 private:
  bool hit() {
    ++calls_;
    now_ = calls_ == fail_at_ || (fault_.lasting && calls_ > fail_at_);
    if (!now_) return false;
    failed_ = true;
    errno = fault_.error;
    return fault_.error != 0;
  }
  std::size_t shortened(std::size_t count) const { return now_ ? std::max<std::size_t>(1, count / 2) : count; }

  int fail_at_;
  Fault fault_;
  bool hard_links_;
  int calls_ = 0;
  bool now_ = false;
  bool failed_ = false;
};

}  // namespace weft::test
