#include "base/file_system.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weft {

int FileSystem::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileSystem::read(int fd, void* bytes, std::size_t count) { return ::read(fd, bytes, count); }
ssize_t FileSystem::pread(int fd, void* bytes, std::size_t count, off_t at) { return ::pread(fd, bytes, count, at); }
ssize_t FileSystem::write(int fd, const void* bytes, std::size_t count) { return ::write(fd, bytes, count); }
int FileSystem::ftruncate(int fd, off_t length) { return ::ftruncate(fd, length); }
int FileSystem::fsync(int fd) { return ::fsync(fd); }
int FileSystem::fchmod(int fd, mode_t mode) { return ::fchmod(fd, mode); }
int FileSystem::close(int fd) { return ::close(fd); }
int FileSystem::fstat(int fd, struct ::stat* result) { return ::fstat(fd, result); }
int FileSystem::stat(const char* path, struct ::stat* result) { return ::stat(path, result); }
int FileSystem::statvfs(const char* path, struct ::statvfs* result) { return ::statvfs(path, result); }
int FileSystem::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileSystem::link(const char* from, const char* to) { return ::link(from, to); }
int FileSystem::unlink(const char* path) { return ::unlink(path); }
void* FileSystem::mmap(std::size_t length, int fd) { return ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, fd, 0); }
int FileSystem::munmap(void* address, std::size_t length) { return ::munmap(address, length); }

int FileSystem::list(const char* folder, std::vector<std::string>* names) {
  DIR* const handle = ::opendir(folder);
  if (!handle) return -1;
  int failure = 0;
  while (true) {
    errno = 0;  // readdir tells its end from a failure by errno alone
    const dirent* const entry = ::readdir(handle);
    if (!entry) {
      failure = errno;
      break;
    }
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names->emplace_back(entry->d_name);
  }
  ::closedir(handle);
  errno = failure;
  return failure ? -1 : 0;
}

namespace {
FileSystem& operating_system() {
  static FileSystem instance;
  return instance;
}
std::atomic<FileSystem*> replaced{nullptr};
}  // namespace

FileSystem& file_system() {
  FileSystem* const current = replaced.load(std::memory_order_acquire);
  return current ? *current : operating_system();
}

ScopedFileSystem::ScopedFileSystem(FileSystem& replacement) : before_(replaced.exchange(&replacement)) {}
ScopedFileSystem::~ScopedFileSystem() { replaced.store(before_); }

}  // namespace weft
