#include "hub/partial_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/file_calls.hpp"
#include "base/interrupt.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

}  // namespace

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error && !fs::is_directory(folder)) throw_file_error("make the folder", folder, error.value());
}

PartialFile::PartialFile(const fs::path& path) : path_(path), partial_(path.string() + ".incomplete") {
  // A link that somebody has put there is not followed.
  fd_ = retry_interrupted([&] {
    return file_system().open(partial_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                              0666);
  });
  if (fd_ < 0) throw_file_error("write", partial_, errno);
  struct ::stat status {};
  if (file_system().fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    file_system().close(fd_);
    throw_file_error("write", partial_, S_ISREG(status.st_mode) ? errno : EISDIR);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

PartialFile::~PartialFile() {
  file_system().close(fd_);
  std::error_code ignored;
  if (size_ == 0) fs::remove(partial_, ignored);  // of a fetch that failed before its first byte
}

void PartialFile::hash_content(const std::stop_token& stop) {
  if (hash_.bytes() == size_) return;
  hash_ = Sha256();
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size_, kReadBytes));
  while (hash_.bytes() < size_ && !stop.stop_requested()) {
    check_interrupt();
    const std::size_t wanted = std::min<std::uint64_t>(size_ - hash_.bytes(), bytes.size());
    const auto count = retry_interrupted(
        [&] { return file_system().pread(fd_, bytes.data(), wanted, static_cast<off_t>(hash_.bytes())); });
    if (count < 0) throw_file_error("read", partial_, errno);
    if (count == 0) throw FileError("cannot read '" + partial_.string() + "': it was cut while it was read; try again");
    hash_.add(std::span(bytes).first(static_cast<std::size_t>(count)));
  }
}

void PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = retry_interrupted([&] { return file_system().write(fd_, bytes.data(), bytes.size()); });
    if (count < 0) throw_file_error("write", partial_, errno);
    const auto written = bytes.first(static_cast<std::size_t>(count));
    hash_.add(written);
    size_ += written.size();
    bytes = bytes.subspan(written.size());
  }
}

void PartialFile::clear() {
  if (retry_interrupted([&] { return file_system().ftruncate(fd_, 0); }) != 0)
    throw_file_error("empty", partial_, errno);
  size_ = 0;
  hash_ = Sha256();
}

std::string PartialFile::beginning(std::size_t bytes) const {
  std::string text(std::min<std::uint64_t>(size_, bytes), '\0');
  const auto count = retry_interrupted([&] { return file_system().pread(fd_, text.data(), text.size(), 0); });
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

void PartialFile::finish() {
  if (retry_interrupted([&] { return file_system().fsync(fd_); }) != 0) throw_file_error("save", partial_, errno);
  if (retry_interrupted([&] { return file_system().rename(partial_.c_str(), path_.c_str()); }) != 0)
    throw_file_error("rename", partial_, errno);
  if (const int error = sync_folder(folder_of(path_)); error != 0) throw_file_error("save the folder of", path_, error);
}

FileLock::FileLock(const fs::path& path, const std::stop_token& stop, const std::function<void()>& on_wait) {
  make_folders(folder_of(path));
  fd_ = retry_interrupted(
      [&] { return file_system().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666); });
  if (fd_ < 0) throw_file_error("write", path, errno);
  for (bool waits = false;; waits = true) {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      is_held_ = true;
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {  // a network file system without locks: then nobody else is known
      is_held_ = true;
      return;
    }
    if (!waits && on_wait) on_wait();
    if (stop.stop_requested()) return;
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) file_system().close(fd_);
}

}  // namespace weft::hub
