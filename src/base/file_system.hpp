// The system calls that all file work goes through. Tests replace them to inject faults and to record what reaches a
// disk.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace weft {

/// Each function is the POSIX call of its name: -1 (or MAP_FAILED) and errno on failure. Stateless and thread safe; an override
/// with state must guard it.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t read(int fd, void* bytes, std::size_t count);
  virtual ssize_t pread(int fd, void* bytes, std::size_t count, off_t at);
  virtual ssize_t write(int fd, const void* bytes, std::size_t count);
  virtual int ftruncate(int fd, off_t length);
  virtual int fsync(int fd);
  virtual int fchmod(int fd, mode_t mode);
  virtual int close(int fd);
  virtual int fstat(int fd, struct ::stat* result);
  virtual int stat(const char* path, struct ::stat* result);
  virtual int statvfs(const char* path, struct ::statvfs* result);
  virtual int rename(const char* from, const char* to);
  virtual int link(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual void* mmap(std::size_t length, int fd);
  virtual int munmap(void* address, std::size_t length);
  /// Names in a folder without "." and ".."; -1 and errno on failure.
  virtual int list(const char* folder, std::vector<std::string>* names);
};

/// The file system in use: the operating system's unless a ScopedFileSystem is alive.
FileSystem& file_system();

/// Replaces the file system of the whole process until it goes out of scope; `replacement` must outlive it.
class ScopedFileSystem {
 public:
  explicit ScopedFileSystem(FileSystem& replacement);
  ~ScopedFileSystem();
  ScopedFileSystem(const ScopedFileSystem&) = delete;
  ScopedFileSystem& operator=(const ScopedFileSystem&) = delete;

 private:
  FileSystem* before_;
};

}  // namespace weft
