#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "base/file_calls.hpp"
#include "base/file_system.hpp"
#include "weft/error.hpp"

namespace weft {

std::string fact_and_cure(int error) {
  switch (error) {
    case ENOENT: return "there is no such file or folder; check the path";
    case ENOTDIR: return "a part of the path is a file, not a folder; check the path";
    case EACCES:
    case EPERM: return "permission denied; change the permissions or choose another place";
    case EROFS: return "the file system is read-only; choose another place";
    case EISDIR: return "it is a folder; name a file";
    case ENAMETOOLONG: return "the name is too long; choose a shorter one";
    case ELOOP: return "the symbolic links form a loop; remove one of them";
    case EMFILE:
    case ENFILE: return "too many files are open; raise the limit (ulimit -n)";
    case EFBIG:
      return "the file system or the limit of this process (ulimit -f) allows no file so large; choose another place";
    case EIO: return "the disk reports an input/output error; check the disk and the cable or network, then try again";
    case ENOSPC: return "no space is left on the disk; free some space or choose another place";
    case EDQUOT: return "the disk quota is used up; free some space or choose another place";
    default: return fmt::format("{}; check the path and the disk", std::strerror(error));
  }
}

void throw_file_error(std::string_view doing, const std::filesystem::path& path, int error) {
  throw FileError(fmt::format("cannot {} '{}': {}", doing, path.string(), fact_and_cure(error)));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

int sync_folder(const std::filesystem::path& folder) {
  const int fd =
      retry_interrupted([&] { return file_system().open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
  if (fd < 0) return errno;
  const int result = retry_interrupted([&] { return file_system().fsync(fd); });
  const int error = errno;
  file_system().close(fd);
  // Some network file systems do not support fsync on folders: they order renames themselves.
  return result == 0 || error == EINVAL || error == ENOTSUP ? 0 : error;
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
// Linux moves at most 0x7ffff000 bytes per call; with smaller pieces an interrupted call costs little.
constexpr std::size_t kMaxCallBytes = std::size_t{64} << 20;
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::size_t kRandomDigits = 16;

/// Owns a descriptor on paths that may throw.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { file_system().close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

FileStamp stamp_from(const struct ::stat& status) {
  const auto nanoseconds = [](const struct ::timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {static_cast<std::uint64_t>(status.st_size), static_cast<std::uint64_t>(status.st_ino),
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

/// Opens for reading. `stamp` receives the file's size, times and identity.
int open_regular_file(const std::filesystem::path& path, FileStamp* stamp,
                      MappedFile::Trust trust = MappedFile::Trust::any) {
  // O_NONBLOCK: opening a pipe must fail below, not wait for a writer.
  const bool own = trust == MappedFile::Trust::own;
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (own ? O_NOFOLLOW : 0);
  const int fd = retry_interrupted([&] { return file_system().open(path.c_str(), flags, 0); });
  if (fd < 0) throw_file_error("open", path, errno);
  struct ::stat status {};
  if (file_system().fstat(fd, &status) != 0) {
    const int error = errno;
    file_system().close(fd);
    throw_file_error("read the size of", path, error);
  }
  if (!S_ISREG(status.st_mode)) {
    file_system().close(fd);
    throw FileError(fmt::format("cannot read '{}': it is {}; name a file", path.string(),
                                S_ISDIR(status.st_mode) ? "a folder" : "not a regular file"));
  }
  if (own && (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)) {
    file_system().close(fd);
    throw FileError(
        fmt::format("cannot trust '{}': another user owns it or may write to it; remove it", path.string()));
  }
  *stamp = stamp_from(status);
  return fd;
}

template <class Bytes>
Bytes read_whole(const std::filesystem::path& path, std::uint64_t max_bytes) {
  FileStamp stamp;
  const Descriptor file(open_regular_file(path, &stamp));
  const std::uint64_t size = stamp.bytes;
  if (size > max_bytes)
    throw FileError(fmt::format("cannot read '{}': it holds {} bytes, over the limit of {}; use a smaller file",
                                path.string(), size, max_bytes));
  Bytes bytes(size, {});
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t count = std::min(bytes.size() - at, kMaxCallBytes);
    const ssize_t got = retry_interrupted([&] { return file_system().read(file.get(), bytes.data() + at, count); });
    if (got < 0) throw_file_error("read", path, errno);
    if (got == 0)
      throw FileError(
          fmt::format("cannot read '{}': it shrank from {} to {} bytes meanwhile; try again when nothing "
                      "writes to it",
                      path.string(), size, at));
    at += static_cast<std::size_t>(got);
  }
  if (size == 0) {  // so say files of the kernel, whatever they hold
    char more = 0;
    const ssize_t got = retry_interrupted([&] { return file_system().read(file.get(), &more, 1); });
    if (got < 0) throw_file_error("read", path, errno);
    if (got > 0)
      throw FileError(
          fmt::format("cannot read '{}': the system does not tell its size, as of files in /proc; copy it, "
                      "and name the copy",
                      path.string()));
  }
  return bytes;
}

std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder) {
  struct ::statvfs status {};
  if (file_system().statvfs(folder.c_str(), &status) != 0) return std::nullopt;  // advice only: writing reports it
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

std::string random_digits() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

bool is_leftover_name(std::string_view name) {
  if (name.size() < kTemporaryMark.size() + kRandomDigits) return false;
  const std::string_view digits = name.substr(name.size() - kRandomDigits);
  const std::string_view mark = name.substr(name.size() - kRandomDigits - kTemporaryMark.size(), kTemporaryMark.size());
  return mark == kTemporaryMark && digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return read_whole<std::vector<std::byte>>(path, max_bytes);
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return read_whole<std::string>(path, max_bytes);
}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(mapped.data()) + page - 1) / page * page,
             end = (reinterpret_cast<std::uintptr_t>(mapped.data()) + mapped.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void expect_pages(const MappedFile& file) {
  if (file.bytes().empty()) return;
  void* const begin = const_cast<std::byte*>(file.bytes().data());
#if defined(MADV_HUGEPAGE)
  madvise(begin, file.bytes().size(), MADV_HUGEPAGE);
#endif
  madvise(begin, file.bytes().size(), MADV_WILLNEED);
}

FileStamp stamp_of(const std::filesystem::path& path) {
  struct ::stat status {};
  if (file_system().stat(path.c_str(), &status) != 0) throw_file_error("look at", path, errno);
  return stamp_from(status);
}

MappedFile::MappedFile(const std::filesystem::path& path, Trust trust) : path_(path) {
  const Descriptor file(open_regular_file(path, &stamp_, trust));
  if (stamp_.bytes == 0) return;  // an empty range cannot be mapped
  if (stamp_.bytes > std::numeric_limits<std::size_t>::max()) throw_file_error("map", path, EFBIG);
  const auto size = static_cast<std::size_t>(stamp_.bytes);
  void* const address = file_system().mmap(size, file.get());
  if (address == MAP_FAILED) throw_file_error("map", path, errno);
  mapping_ =
      std::shared_ptr<const void>(address, [size](const void* p) { file_system().munmap(const_cast<void*>(p), size); });
  bytes_ = {static_cast<const std::byte*>(address), size};
}

AtomicFile::AtomicFile(const std::filesystem::path& path, AtomicFileOptions options)
    : path_(path), folder_(folder_of(path)), options_(options) {
  if (!path.has_filename())
    throw FileError(fmt::format("cannot write '{}': it names no file; add a file name", path.string()));
  struct ::stat status {};
  if (file_system().stat(folder_.c_str(), &status) != 0) {
    if (errno == ENOENT)
      throw FileError(fmt::format("cannot write '{}': folder '{}' does not exist; create it first (mkdir -p {})",
                                  path.string(), folder_.string(), folder_.string()));
    fail("write", errno);
  }
  if (!S_ISDIR(status.st_mode)) fail("write", ENOTDIR);
  const bool replaces = file_system().stat(path.c_str(), &status) == 0;
  if (replaces) {
    if (!S_ISREG(status.st_mode))
      throw FileError(fmt::format("cannot write '{}': it exists and is {}; choose another name", path.string(),
                                  S_ISDIR(status.st_mode) ? "a folder" : "not a regular file"));
  } else if (errno != ENOENT) {
    fail("write", errno);
  }
  if (const auto free = free_bytes(folder_); free && *free < options.expected_bytes) fail("write", ENOSPC);

  temporary_ = path;
  temporary_ += fmt::format("{}{}", kTemporaryMark, random_digits());
  const mode_t mode = replaces ? status.st_mode & 0777 : options_.mode;
  fd_ = retry_interrupted([&] {
    return file_system().open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                              mode & ~(replaces ? 0077u : 0u));
  });
  if (fd_ < 0) fail("write", errno);
  temporary_exists_ = true;
  // File systems without permissions refuse this; their files have none to lose.
  if (replaces && file_system().fchmod(fd_, mode) != 0 && errno != EPERM && errno != ENOTSUP && errno != ENOSYS) {
    const int error = errno;
    discard();
    fail("write", error);
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) file_system().close(fd_);
  fd_ = -1;
  if (temporary_exists_) file_system().unlink(temporary_.c_str());
  temporary_exists_ = false;
}

void AtomicFile::fail(std::string_view doing, int error) const {
  if (error == ENOSPC || error == EDQUOT) {
    const auto free = free_bytes(folder_);
    throw FileError(fmt::format(
        "cannot {} '{}': {}: {} bytes are needed and {} are free in '{}'; free some space or choose another place",
        doing, path_.string(), error == EDQUOT ? "the disk quota is used up" : "the disk is full",
        std::max(options_.expected_bytes, bytes_written_), free ? fmt::to_string(*free) : "an unknown number",
        folder_.string()));
  }
  throw_file_error(doing, path_, error);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0)
    throw UsageError(fmt::format("'{}' is written to after it was committed; open a new AtomicFile", path_.string()));
  bytes_written_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes)
    write_through(bytes);
  else
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AtomicFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kMaxCallBytes);
    const ssize_t put = retry_interrupted([&] { return file_system().write(fd_, bytes.data(), count); });
    if (put < 0) fail("write", errno);
    if (put == 0) fail("write", EIO);  // POSIX allows 0; looping on it could last for ever
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

// The new name is made by link and rename, so that `path_` itself never lacks its file.
void AtomicFile::keep_previous() {
  struct ::stat status {};
  if (file_system().stat(path_.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail("keep the previous version of", errno);
  }
  const std::filesystem::path previous = previous_path(path_);
  std::filesystem::path linked = previous;
  linked += fmt::format("{}{}", kTemporaryMark, random_digits());
  if (file_system().link(path_.c_str(), linked.c_str()) != 0) {
    const int error = errno;
    const bool no_hard_links =
        error == EPERM || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
    if (!no_hard_links) fail("keep the previous version of", error);
    if (file_system().rename(path_.c_str(), previous.c_str()) != 0) fail("keep the previous version of", errno);
    return;
  }
  const int result = file_system().rename(linked.c_str(), previous.c_str());
  const int error = errno;
  // A rename between two links of one file does nothing and removes neither. An earlier save that died here leaves such links.
  file_system().unlink(linked.c_str());
  if (result != 0) fail("keep the previous version of", error);
}

void AtomicFile::sync() {
  flush();
  if (retry_interrupted([&] { return file_system().fsync(fd_); }) != 0) fail("write", errno);
}

void AtomicFile::commit() {
  if (fd_ < 0) throw UsageError(fmt::format("'{}' is committed twice; open a new AtomicFile", path_.string()));
  sync();
  const int closed = file_system().close(fd_);
  fd_ = -1;
  if (closed != 0 && errno != EINTR) fail("write", errno);  // Linux also closes when interrupted
  if (options_.keep_previous) keep_previous();
  if (file_system().rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    struct ::stat status {};
    if (options_.keep_previous && file_system().stat(path_.c_str(), &status) != 0)
      file_system().rename(previous_path(path_).c_str(),
                           path_.c_str());  // undoes the move that replaced a hard link
    fail("write", error);
  }
  temporary_exists_ = false;
  if (const int error = sync_folder(folder_); error != 0)
    throw FileError(
        fmt::format("'{}' is written, but may not survive a loss of power: folder '{}' cannot be flushed: {}",
                    path_.string(), folder_.string(), fact_and_cure(error)));
}

void write_file_atomically(const std::filesystem::path& path, const std::function<void(AtomicFile&)>& writer,
                           AtomicFileOptions options) {
  AtomicFile file(path, options);
  writer(file);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents, AtomicFileOptions options) {
  options.expected_bytes = std::max<std::uint64_t>(options.expected_bytes, contents.size());
  write_file_atomically(
      path, [&](AtomicFile& file) { file.write(contents); }, options);
}

std::filesystem::path previous_path(const std::filesystem::path& path) {
  std::filesystem::path previous = path;
  previous += ".previous";
  return previous;
}

std::vector<std::filesystem::path> find_leftovers(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (file_system().list(folder.c_str(), &names) != 0) throw_file_error("list", folder, errno);
  std::vector<std::filesystem::path> leftovers;
  for (const std::string& name : names)
    if (is_leftover_name(name)) leftovers.push_back(folder / name);
  std::sort(leftovers.begin(), leftovers.end());
  return leftovers;
}

LineLog::LineLog(const std::filesystem::path& path) : path_(path) {
  fd_ = retry_interrupted(
      [&] { return file_system().open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666); });
  if (fd_ < 0) throw_file_error("append to", path, errno);
  try {
    FileStamp stamp;
    const Descriptor reader(open_regular_file(path, &stamp));
    char last = '\n';
    const off_t end = static_cast<off_t>(stamp.bytes);
    if (stamp.bytes > 0 && retry_interrupted([&] { return file_system().pread(reader.get(), &last, 1, end - 1); }) < 0)
      throw_file_error("read", path, errno);
    if (last != '\n') append_bytes("\n");
  } catch (...) {
    file_system().close(fd_);
    throw;
  }
}

LineLog::~LineLog() { file_system().close(fd_); }

void LineLog::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos)
    throw UsageError(fmt::format("a line for '{}' holds a newline; append the parts one by one", path_.string()));
  append_bytes(std::string(line) + "\n");
}

void LineLog::append_bytes(std::string_view bytes) {
  const std::size_t total = bytes.size();
  while (!bytes.empty()) {
    const ssize_t put = retry_interrupted([&] { return file_system().write(fd_, bytes.data(), bytes.size()); });
    if (put > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(put));
      continue;
    }
    const int error = put < 0 ? errno : EIO;
    struct ::stat status {};
    const off_t torn = static_cast<off_t>(total - bytes.size());
    if (torn > 0 && file_system().fstat(fd_, &status) == 0 && status.st_size >= torn)
      file_system().ftruncate(fd_, status.st_size - torn);
    throw_file_error("append to", path_, error);
  }
}

void append_line(const std::filesystem::path& path, std::string_view line) { LineLog(path).append(line); }

}  // namespace weft
