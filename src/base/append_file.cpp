#include "base/append_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#ifndef __wasi__
#include <sys/file.h>
#endif

#include <algorithm>
#include <cerrno>

#include "base/file_calls.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {
constexpr std::size_t kMaxWriteBytes = std::size_t{64} << 20;  // so that an interrupted call costs little
}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  fd_ = retry_interrupted([&] { return file_system().open(path.c_str(), flags, 0666); });
  if (fd_ < 0) throw_file_error("append to", path, errno);
  try {
#ifndef __wasi__  // which knows no locks, and no second process
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        throw FileError(
            fmt::format("cannot append to '{}': another program does; try again when it has ended", path.string()));
      throw_file_error("lock", path, errno);
    }
#endif
    struct ::stat status {};
    if (file_system().fstat(fd_, &status) != 0) throw_file_error("read the size of", path, errno);
    if (!S_ISREG(status.st_mode))
      throw FileError(fmt::format("cannot append to '{}': it is not a regular file; name a file", path.string()));
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (const int error = sync_folder(folder_of(path)); error != 0)  // its name, if it is new
      throw_file_error("flush the folder of", path, error);
  } catch (...) {
    file_system().close(fd_);
    throw;
  }
}

bool AppendFile::is_in_place() const {
  struct ::stat here {
  }, there{};
  return file_system().fstat(fd_, &here) == 0 && file_system().stat(path_.c_str(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

AppendFile::~AppendFile() { file_system().close(fd_); }

void AppendFile::append(std::span<const std::byte> bytes) {
  const std::uint64_t before = size_;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kMaxWriteBytes);
    const ssize_t put = retry_interrupted([&] { return file_system().write(fd_, bytes.data(), count); });
    if (put <= 0) {
      const int error = put < 0 ? errno : EIO;
      file_system().ftruncate(fd_, static_cast<off_t>(before));
      size_ = before;
      throw_file_error("append to", path_, error);
    }
    size_ += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void AppendFile::sync() {
  if (retry_interrupted([&] { return file_system().fsync(fd_); }) != 0) throw_file_error("flush", path_, errno);
}

void AppendFile::cut(std::uint64_t kept) {
  if (retry_interrupted([&] { return file_system().ftruncate(fd_, static_cast<off_t>(kept)); }) != 0)
    throw_file_error("shorten", path_, errno);
  size_ = kept;
}

}  // namespace weft
